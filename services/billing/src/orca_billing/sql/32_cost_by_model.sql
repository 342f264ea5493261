-- Cost by UTC day and model (the GPU type for meter gpu). Bound it by day and namespace.
CREATE OR REPLACE VIEW cost_by_model AS
SELECT
    toDate(event_time, 'UTC') AS day,
    namespace,
    meter,
    model,
    sum(c.quantity) AS quantity,
    sum(c.amount_usd) AS amount_usd
FROM charges AS c FINAL
GROUP BY day, namespace, meter, model
SETTINGS do_not_merge_across_partitions_select_final = 1
