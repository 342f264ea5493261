-- One row per charge line: one record, or one token class of one record, at the price of its time.
CREATE TABLE IF NOT EXISTS charges
(
    namespace LowCardinality(String),
    task_id UUID,
    run_id UUID,
    record_id UUID,
    event_time DateTime64(3, 'UTC') DEFAULT UUIDv7ToDateTime(record_id, 'UTC'),
    meter LowCardinality(String),
    model LowCardinality(String),
    sku LowCardinality(String),
    quantity UInt64,
    unit LowCardinality(String),
    price LowCardinality(String) COMMENT 'position of the PriceSet; empty where none was in force',
    price_micro_usd UInt64,
    amount_usd Decimal(38, 12),
    stream_epoch UInt64,
    stream_sequence UInt64,
    CONSTRAINT time_of_id CHECK event_time = UUIDv7ToDateTime(record_id, 'UTC'),
    CONSTRAINT not_negative CHECK amount_usd >= 0,
    CONSTRAINT unpriced_is_free CHECK price != '' OR amount_usd = 0
)
ENGINE = ReplacingMergeTree(stream_sequence)
PARTITION BY toYYYYMM(event_time)
PRIMARY KEY (namespace, toDate(event_time, 'UTC'), record_id)
ORDER BY (namespace, toDate(event_time, 'UTC'), record_id, sku, run_id)
