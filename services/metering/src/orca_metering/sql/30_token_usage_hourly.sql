-- Tokens by hour and model, in disjoint classes. Bound it by hour and namespace.
CREATE OR REPLACE VIEW token_usage_hourly AS
SELECT
    toStartOfHour(event_time, 'UTC') AS hour,
    namespace,
    model,
    sum(u.input_uncached) AS input_uncached,
    sum(u.input_cache_read) AS input_cache_read,
    sum(u.input_cache_write) AS input_cache_write,
    sum(u.input_audio) AS input_audio,
    sum(u.input_image) AS input_image,
    sum(u.output_text) AS output_text,
    sum(u.output_reasoning) AS output_reasoning,
    sum(u.output_audio) AS output_audio,
    sum(u.output_image) AS output_image,
    sum(u.tokens) AS tokens,
    count() AS records
FROM usage_events AS u FINAL
WHERE meter = 'tokens'
GROUP BY hour, namespace, model
SETTINGS do_not_merge_across_partitions_select_final = 1
