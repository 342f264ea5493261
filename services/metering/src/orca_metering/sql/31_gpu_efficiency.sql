-- GPU time held by day and type, and how much of it runs held that succeeded so far.
CREATE OR REPLACE VIEW gpu_efficiency AS
WITH outcomes AS
(
    SELECT
        namespace,
        toUUID(run_id) AS run_id,
        argMax(JSONExtractString(data, 'outcome'), stream_sequence) AS outcome
    FROM task_events FINAL
    WHERE event = 'Released' AND stream = 'PLACEMENT'
    GROUP BY namespace, run_id
)
SELECT
    toDate(u.event_time, 'UTC') AS day,
    u.namespace AS namespace,
    u.model AS gpu_type,
    sum(u.milli_ms) AS held_milli_ms,
    sumIf(u.milli_ms, o.outcome = 'succeeded') AS succeeded_milli_ms,
    held_milli_ms / 3600000000 AS held_gpu_hours,
    succeeded_milli_ms / 3600000000 AS succeeded_gpu_hours,
    uniqExact(u.run_id) AS runs
FROM (SELECT *, milli_ms FROM usage_events FINAL WHERE meter = 'gpu') AS u
LEFT JOIN outcomes AS o ON u.namespace = o.namespace AND u.run_id = o.run_id
GROUP BY day, namespace, gpu_type
SETTINGS do_not_merge_across_partitions_select_final = 1
