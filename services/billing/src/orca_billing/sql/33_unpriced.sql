-- What was used while no price was in force. A price of 0 is a price.
CREATE OR REPLACE VIEW unpriced AS
SELECT
    toDate(event_time, 'UTC') AS day,
    namespace,
    meter,
    sku,
    sum(c.quantity) AS quantity,
    count() AS lines
FROM charges AS c FINAL
WHERE price = ''
GROUP BY day, namespace, meter, sku
SETTINGS do_not_merge_across_partitions_select_final = 1
