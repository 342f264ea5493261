"""Metering's tables against a real engine: they say what the log says, however often it is read."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orca_metering.clickhouse import task_sink, usage_rows, usage_sink
from orca_metering.state import bucket_key, quantity
from orca_runtime.testing import EPOCH, START_MS
from orca_schemas.subjects import Stream
from orca_schemas.values import Outcome, TokenClasses

HOUR = 3_600_000
VIEWS = ("token_usage_hourly", "gpu_efficiency", "waste")
EVERY_CLASS = TokenClasses(**{name: n for n, name in enumerate(TokenClasses.model_fields, 1)})


@pytest.fixture
def history(world: Any, say: Any) -> Any:
    """Records of each meter on both sides of a month's end (START_MS is 1 December, 00:00 UTC)."""
    then = world
    for number in range(1, 13):
        at_ms = START_MS + (number - 7) * HOUR
        then = then.says("tokens", number, at_ms=at_ms, classes=EVERY_CLASS)
        then = then.says("gpu", number, at_ms=at_ms + 1, duration_ms=number)
        then = then.says("cpu", number, at_ms=START_MS - 1)
    return then.after(say.released(outcome=Outcome.FAILED))


async def all_views(tables: Any) -> dict[str, Any]:
    return {view: await tables.rows(f"SELECT * FROM {view} ORDER BY ALL") for view in VIEWS}


def done(sequence: int, stream: Stream = Stream.METERING) -> dict[str, tuple[int, int]]:
    return {stream: (EPOCH, sequence)}


async def written(tables: Any, history: Any, say: Any) -> Any:
    """Everything is written once; returns the usage sink."""
    sink, tasks = usage_sink(tables.url), task_sink(tables.url)
    await sink.open()
    await tasks.open()
    log = history.scenario.log
    await sink.write(log, done(len(log)))
    failed = say.released(outcome=Outcome.FAILED)
    await tasks.write([say.placed(), failed], done(1000, Stream.PLACEMENT))
    await tasks.close()
    return sink


async def test_the_views_say_what_the_fold_says(tables: Any, history: Any, say: Any) -> None:
    """Totals per hour, model and class, GPU time by day and type, and all of it wasted."""
    sink = await written(tables, history, say)
    (tokens, classes) = (await tables.rows(
        "SELECT sum(tokens), (sum(input_uncached), sum(input_cache_read), sum(input_cache_write),"
        " sum(input_audio), sum(input_image), sum(output_text), sum(output_reasoning),"
        " sum(output_audio), sum(output_image)) FROM token_usage_hourly"
    ))[0]  # fmt: skip
    assert tokens == history.run.used_tokens == 12 * 45
    assert tuple(classes) == tuple(12 * n for n in range(1, 10))
    gpu: dict[str, int] = defaultdict(int)
    for number in range(1, 13):
        gpu["2025-11-30" if number < 7 else "2025-12-01"] += 1000 * number
    assert await tables.rows(
        "SELECT toString(day), gpu_type, held_milli_ms, succeeded_milli_ms, runs"
        " FROM gpu_efficiency ORDER BY day"
    ) == [(day, "A100", held, 0, 1) for day, held in gpu.items()]
    assert await tables.rows(
        "SELECT outcome, meter, sum(tokens), sum(milli_ms) FROM waste GROUP BY ALL ORDER BY meter"
    ) == [
        ("failed", "cpu", 0, 12 * 500_000),
        ("failed", "gpu", 0, 78_000),
        ("failed", "tokens", 540, 0),
    ]
    await sink.close()


async def test_each_bucket_of_the_fold_is_a_sum_of_rows(
    tables: Any, history: Any, say: Any
) -> None:
    """What metering told admission of a quarter of an hour is what the table adds up to."""
    sink = await written(tables, history, say)
    rows = await tables.rows(
        "SELECT meter, model, toUnixTimestamp64Milli(event_time) AS ms,"
        " sum(if(meter = 'tokens', tokens, milli_ms)) FROM usage_events FINAL GROUP BY ALL"
    )
    found: dict[tuple[str, str, int], int] = defaultdict(int)
    for meter, model, at_ms, used in rows:
        found[meter, model, at_ms - at_ms % 900_000] += used
    folded = {tuple(key): used for day in history.run.days.values() for key, used in day.items()}
    assert found == folded
    await sink.close()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(st.tuples(st.integers(0, 38), st.integers(0, 38)), max_size=4))
async def test_replaying_any_part_leaves_every_view_unchanged(
    tables: Any, history: Any, say: Any, parts: list[tuple[int, int]]
) -> None:
    """In any bounds, any number of times, across the month's end."""
    sink, log = await written(tables, history, say), history.scenario.log
    before = await all_views(tables)
    for a, b in parts:
        await sink.write(log[min(a, b) : max(a, b)], done(max(a, b)))
    assert await all_views(tables) == before
    assert sum(before["token_usage_hourly"][n][-1] for n in range(12)) == 12
    await sink.close()


async def test_each_view_can_be_asked_by_each_of_its_columns(
    tables: Any, history: Any, say: Any
) -> None:
    """A condition is pushed through joins and groups; no form of it may meet a refusal."""
    sink = await written(tables, history, say)
    for view in VIEWS:
        for column, *_ in await tables.rows(f"DESCRIBE {view}"):
            of_first = f"(SELECT {column} FROM {view} ORDER BY ALL LIMIT 1)"
            (found,) = await tables.rows(f"SELECT count() FROM {view} WHERE {column} = {of_first}")
            assert found[0] > 0, (view, column)
    await sink.close()


async def test_merged_tables_say_the_same(tables: Any, history: Any, say: Any) -> None:
    """Whether ClickHouse has merged the parts yet is not to be seen in a view."""
    sink = await written(tables, history, say)
    await sink.write(history.scenario.log[3:30], done(30))
    before = await all_views(tables)
    await tables.client.command("OPTIMIZE TABLE usage_events FINAL")
    assert await all_views(tables) == before
    assert await tables.rows("SELECT count() FROM usage_events") == [(36,)]
    await sink.close()


async def test_a_record_id_used_twice_hides_no_record(tables: Any, world: Any, say: Any) -> None:
    """The key is the record's whole identity, not only what a probe chose as its id."""
    same = say.usage("tokens", 1).record_id
    then = world.says("tokens", 1).says("tokens", 2).says("tokens", 3, record_id=same)
    sink = usage_sink(tables.url)
    await sink.open()
    await sink.write(then.scenario.log, done(4))
    assert await tables.rows("SELECT sum(tokens) FROM token_usage_hourly") == [(30,)]
    await sink.close()


async def test_a_bounded_view_reads_only_the_months_asked_for(
    tables: Any, history: Any, say: Any
) -> None:
    """FINAL alone would read every partition; the views carry the setting that prunes them."""
    sink = await written(tables, history, say)
    await sink.write(history.scenario.log, done(38))
    for view, bound in [("token_usage_hourly", "hour"), ("gpu_efficiency", "day")]:
        plan = await tables.rows(
            f"EXPLAIN indexes = 1 SELECT * FROM {view} WHERE {bound} >= '2025-12-01'"
        )
        assert any("Parts: 2/4" in line for (line,) in plan), plan
    await sink.close()


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        pytest.param(
            "event_time", "'2025-01-01 00:00:00.000'", id="a time that is not that of the id"
        ),
        pytest.param("milli", "5", id="tokens that take time"),
        pytest.param("meter, output_text", "'gpu', 5", id="a gpu that speaks"),
    ],
)
async def test_the_table_refuses_what_cannot_be(tables: Any, columns: str, values: str) -> None:
    """Constraints are the last resort against a writer that is not this one."""
    sink = usage_sink(tables.url)
    await sink.open()
    meter = "" if "meter" in columns else ", meter"
    value = "" if "meter" in columns else ", 'tokens'"
    with pytest.raises(Exception, match="CONSTRAINT"):
        await tables.client.command(
            f"INSERT INTO usage_events (namespace, record_id, {columns}{meter}) VALUES"
            f" ('team-alpha', '019ad735-8400-71b6-a4eb-216455a0296a', {values}{value})"
        )
    await sink.close()


async def test_task_events_tell_a_tasks_life(tables: Any, world: Any, say: Any) -> None:
    """One row per event whatever its stream, once, with its run and its data."""
    sink = task_sink(tables.url)
    await sink.open()
    placements = [say.placed(), say.released()]
    await sink.write(placements, done(1000, Stream.PLACEMENT))
    await sink.write(world.scenario.log, done(1))
    await sink.write(placements[1:], done(1000, Stream.PLACEMENT))
    rows = await tables.rows(
        "SELECT stream, event, id, run_id, JSONExtractString(data, 'outcome') FROM task_events"
        " FINAL ORDER BY stream, stream_sequence"
    )
    run = str(say.RUN)
    assert rows == [
        ("METERING", "Noted", say.TASK, run, ""),
        ("PLACEMENT", "Placed", say.TASK, run, ""),
        ("PLACEMENT", "Released", say.TASK, run, "succeeded"),
    ]
    await sink.close()


def test_only_settlements_give_usage_rows(world: Any, say: Any) -> None:
    """Other events of the stream move the cursor and write nothing."""
    then = world.says("tokens", 1).after(say.released())
    rows = [list(usage_rows(event)) for event in then.scenario.log]
    assert [len(of_event) for of_event in rows] == [0, 1, 0]
    record = then.settled[0].records[0]
    assert quantity(record) == 10
    assert bucket_key(record).bucket_start_ms == START_MS
