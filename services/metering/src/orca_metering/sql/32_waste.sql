-- What runs used that ended otherwise than in success, by outcome.
CREATE OR REPLACE VIEW waste AS
WITH outcomes AS
(
    SELECT
        namespace,
        toUUID(run_id) AS run_id,
        argMax(JSONExtractString(data, 'outcome'), stream_sequence) AS outcome
    FROM task_events FINAL
    WHERE event = 'Released' AND stream = 'PLACEMENT'
    GROUP BY namespace, run_id
    HAVING outcome != 'succeeded'
)
SELECT
    toDate(u.event_time, 'UTC') AS day,
    u.namespace AS namespace,
    o.outcome AS outcome,
    u.meter AS meter,
    u.model AS model,
    sum(u.tokens) AS tokens,
    sum(u.milli_ms) AS milli_ms,
    uniqExact(u.run_id) AS runs
FROM (SELECT *, tokens, milli_ms FROM usage_events FINAL) AS u
INNER JOIN outcomes AS o ON u.namespace = o.namespace AND u.run_id = o.run_id
GROUP BY day, namespace, outcome, meter, model
SETTINGS do_not_merge_across_partitions_select_final = 1
