-- Whose run it is: one row per reserved run.
CREATE TABLE IF NOT EXISTS run_owners
(
    namespace LowCardinality(String),
    run_id UUID,
    task_id UUID,
    name String,
    user LowCardinality(String),
    stream_epoch UInt64,
    stream_sequence UInt64
)
ENGINE = ReplacingMergeTree(stream_sequence)
ORDER BY (namespace, run_id)
