-- Cost by UTC day, namespace, user, meter and sku. Bound it by day and namespace.
CREATE OR REPLACE VIEW cost_daily AS
SELECT
    c.day AS day,
    c.namespace AS namespace,
    o.user AS user,
    c.meter AS meter,
    c.sku AS sku,
    sum(c.quantity) AS quantity,
    sum(c.amount_usd) AS amount_usd
FROM
(
    SELECT
        toDate(event_time, 'UTC') AS day, namespace, run_id, meter, sku,
        sum(charges.quantity) AS quantity, sum(charges.amount_usd) AS amount_usd
    FROM charges FINAL
    GROUP BY day, namespace, run_id, meter, sku
) AS c
LEFT JOIN (SELECT namespace, run_id, user FROM run_owners FINAL) AS o
    ON c.namespace = o.namespace AND c.run_id = o.run_id
GROUP BY day, namespace, user, meter, sku
SETTINGS do_not_merge_across_partitions_select_final = 1
