-- One row per record that metering accepted. The key is the record's whole identity, so that a
-- record id that a probe used twice hides nothing; every part of it is a function of the event.
CREATE TABLE IF NOT EXISTS usage_events
(
    namespace LowCardinality(String),
    task_id UUID,
    run_id UUID,
    record_id UUID,
    event_time DateTime64(3, 'UTC') DEFAULT UUIDv7ToDateTime(record_id, 'UTC'),
    meter LowCardinality(String),
    attempt UInt64,
    node LowCardinality(String),
    probe_epoch UInt64,
    number UInt64,
    model LowCardinality(String),
    input_uncached UInt64,
    input_cache_read UInt64,
    input_cache_write UInt64,
    input_audio UInt64,
    input_image UInt64,
    output_text UInt64,
    output_reasoning UInt64,
    output_audio UInt64,
    output_image UInt64,
    tokens UInt64 ALIAS input_uncached + input_cache_read + input_cache_write + input_audio
        + input_image + output_text + output_reasoning + output_audio + output_image,
    milli UInt64,
    duration_ms UInt64,
    milli_ms UInt64 ALIAS milli * duration_ms,
    stream_epoch UInt64,
    stream_sequence UInt64,
    CONSTRAINT time_of_id CHECK event_time = UUIDv7ToDateTime(record_id, 'UTC'),
    CONSTRAINT tokens_take_no_time CHECK meter != 'tokens' OR (milli = 0 AND duration_ms = 0),
    CONSTRAINT time_is_no_tokens CHECK meter = 'tokens' OR input_uncached + input_cache_read
        + input_cache_write + input_audio + input_image + output_text + output_reasoning
        + output_audio + output_image = 0
)
ENGINE = ReplacingMergeTree(stream_sequence)
PARTITION BY toYYYYMM(event_time)
PRIMARY KEY (namespace, toDate(event_time, 'UTC'), record_id)
ORDER BY (namespace, toDate(event_time, 'UTC'), record_id, run_id, attempt, meter, probe_epoch, number)
