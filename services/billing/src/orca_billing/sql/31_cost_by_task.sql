-- Cost of each run, and how many of its charge lines found no price.
CREATE OR REPLACE VIEW cost_by_task AS
SELECT
    c.namespace AS namespace,
    c.task_id AS task_id,
    c.run_id AS run_id,
    o.name AS name,
    o.user AS user,
    c.first_used_at AS first_used_at,
    c.last_used_at AS last_used_at,
    c.amount_usd AS amount_usd,
    c.lines AS lines,
    c.unpriced_lines AS unpriced_lines
FROM
(
    SELECT
        namespace, task_id, run_id,
        min(event_time) AS first_used_at, max(event_time) AS last_used_at,
        sum(charges.amount_usd) AS amount_usd, count() AS lines, countIf(price = '') AS unpriced_lines
    FROM charges FINAL
    GROUP BY namespace, task_id, run_id
) AS c
LEFT JOIN (SELECT namespace, run_id, name, user FROM run_owners FINAL) AS o
    ON c.namespace = o.namespace AND c.run_id = o.run_id
SETTINGS do_not_merge_across_partitions_select_final = 1
