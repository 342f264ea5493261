-- One row per event of the log, known by its position.
CREATE TABLE IF NOT EXISTS task_events
(
    event_time DateTime64(3, 'UTC'),
    namespace LowCardinality(String),
    kind LowCardinality(String),
    id String,
    run_id String,
    event LowCardinality(String),
    party LowCardinality(String),
    cause String,
    data String CODEC(ZSTD(3)),
    stream LowCardinality(String),
    stream_epoch UInt64,
    stream_sequence UInt64
)
ENGINE = ReplacingMergeTree(stream_sequence)
PARTITION BY toYYYYMM(event_time)
PRIMARY KEY (namespace, toDate(event_time, 'UTC'), event)
ORDER BY (namespace, toDate(event_time, 'UTC'), event, stream, stream_epoch, stream_sequence)
