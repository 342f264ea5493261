"""Billing's tables against a real engine: they say what the log says, however often it is read."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orca_billing.clickhouse import charge_sink, usd
from orca_runtime.testing import EPOCH, START_MS
from orca_schemas.subjects import Stream
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import TokenClasses

HOUR = 3_600_000
VIEWS = ("cost_daily", "cost_by_task", "cost_by_model", "unpriced")
EVERY_CLASS = TokenClasses(**{name: n for n, name in enumerate(TokenClasses.model_fields, 1)})


def done(sequence: int, stream: Stream = Stream.BILLING) -> dict[str, tuple[int, int]]:
    return {stream: (EPOCH, sequence)}


@pytest.fixture
def history(world: Any) -> Any:
    """Charges on both sides of a month's end (START_MS is 1 December, 00:00 UTC), one unpriced."""
    long_ago = START_MS - 10 * HOUR
    then = world.priced("tokens:llama:*", 333_333, long_ago).priced("gpu:A100", 3_123_457, long_ago)
    for number in range(12):
        at_ms = START_MS + (number - 6) * HOUR
        then = then.used("tokens", at_ms=at_ms, classes=EVERY_CLASS)
        then = then.used("gpu", at_ms=at_ms + 1, duration_ms=number + 1)
        then = then.used("cpu", at_ms=START_MS - 1)
    return then


async def all_views(tables: Any) -> dict[str, Any]:
    return {view: await tables.rows(f"SELECT * FROM {view} ORDER BY ALL") for view in VIEWS}


async def written(tables: Any, history: Any, say: Any) -> Any:
    """Everything is written once; returns the sink."""
    sink = charge_sink(tables.url)
    await sink.open()
    log = history.scenario.log
    await sink.write([say.reserved()], done(1, Stream.ADMISSION))
    await sink.write(log, done(len(log)))
    return sink


async def test_the_views_say_what_the_fold_says(tables: Any, history: Any, say: Any) -> None:
    """To the last digit, by task, by day and sku, and by model."""
    sink = await written(tables, history, say)
    total = usd(history.run.total_pico_usd)
    assert total > 0
    assert await tables.rows(
        "SELECT run_id, name, user, amount_usd, lines, unpriced_lines FROM cost_by_task"
    ) == [(say.RUN, "train", "alice", total, 12 * 11, 12)]
    by_day: dict[tuple[str, str], int] = defaultdict(int)
    by_model: dict[str, int] = defaultdict(int)
    for charge in history.charged:
        for line in charge.lines:
            day = "2025-11-30" if line.at_ms < START_MS else "2025-12-01"
            by_day[day, line.sku] += line.amount_pico_usd
            by_model[line.meter] += line.amount_pico_usd
    assert {
        (day, sku): amount
        for day, sku, user, amount in await tables.rows(
            "SELECT toString(day), sku, user, amount_usd FROM cost_daily"
        )
        if user == "alice"
    } == {key: usd(amount) for key, amount in by_day.items()}
    assert await tables.rows(
        "SELECT meter, model, sum(amount_usd) FROM cost_by_model GROUP BY ALL ORDER BY meter"
    ) == [
        ("cpu", "", Decimal(0)),
        ("gpu", "A100", usd(by_model["gpu"])),
        ("tokens", "llama", usd(by_model["tokens"])),
    ]
    await sink.close()


async def test_what_had_no_price_is_named(tables: Any, world: Any, say: Any) -> None:
    """A price of 0 is a price; having none is not."""
    then = world.priced("gpu:A100", 0).used("gpu").used("cpu")
    sink = await written(tables, then, say)
    assert await tables.rows("SELECT sku, quantity, lines FROM unpriced") == [("cpu", 10**6, 1)]
    await sink.close()


@pytest.mark.parametrize(
    "pico_usd",
    [
        pytest.param(1, id="the smallest"),
        pytest.param(MAX_AMOUNT**2, id="the largest line"),
        pytest.param(10**30 + 1, id="more digits than a Decimal's context"),
    ],
)
async def test_an_amount_keeps_each_digit(tables: Any, world: Any, say: Any, pico_usd: int) -> None:
    """There and back; Python's decimals would round to 28 digits in arithmetic."""
    then = world.priced("cpu", 1).used("cpu")
    event = then.scenario.log[-1]
    line = event.data.lines[0].model_copy(update={"amount_pico_usd": pico_usd})
    changed = event.data.model_copy(update={"lines": (line,)})
    sink = charge_sink(tables.url)
    await sink.open()
    await sink.write([type(event)(event.position, event.subject, 0, changed)], done(2))
    ((text,),) = await tables.rows("SELECT toString(sum(amount_usd)) FROM cost_daily")
    whole, _, fraction = text.partition(".")
    assert int(whole + fraction.ljust(12, "0")) == pico_usd
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
        await sink.write([say.reserved()], done(1, Stream.ADMISSION))
    assert await all_views(tables) == before
    await tables.client.command("OPTIMIZE TABLE charges FINAL")
    assert await all_views(tables) == before
    assert await tables.rows("SELECT count() FROM charges") == [(12 * 11,)]
    await sink.close()


async def test_a_run_whose_owner_is_not_known_yet_is_charged_all_the_same(
    tables: Any, history: Any, say: Any
) -> None:
    """The two streams are written apart: who comes first changes no amount."""
    sink = charge_sink(tables.url)
    await sink.open()
    await sink.write(history.scenario.log, done(38))
    total = usd(history.run.total_pico_usd)
    assert await tables.rows("SELECT user, sum(amount_usd) FROM cost_daily GROUP BY user") == [
        ("", total)
    ]
    await sink.write([say.reserved()], done(1, Stream.ADMISSION))
    assert await tables.rows("SELECT user, sum(amount_usd) FROM cost_daily GROUP BY user") == [
        ("alice", total)
    ]
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


async def test_a_bounded_view_reads_only_the_months_asked_for(
    tables: Any, history: Any, say: Any
) -> None:
    """FINAL alone would read every partition; the views carry the setting that prunes them."""
    sink = await written(tables, history, say)
    await sink.write(history.scenario.log, done(38))
    for view in ("cost_daily", "cost_by_model", "unpriced"):
        plan = await tables.rows(
            f"EXPLAIN indexes = 1 SELECT * FROM {view} WHERE day >= '2025-12-01'"
        )
        assert any("Parts: 2/4" in line for (line,) in plan), plan
    await sink.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("event_time", "'2025-01-01 00:00:00.000'", id="a time not that of the id"),
        pytest.param("amount_usd", "-1", id="a negative charge"),
        pytest.param("amount_usd", "1", id="an amount without a price"),
    ],
)
async def test_the_table_refuses_what_cannot_be(tables: Any, column: str, value: str) -> None:
    """Constraints are the last resort against a writer that is not this one."""
    sink = charge_sink(tables.url)
    await sink.open()
    with pytest.raises(Exception, match="CONSTRAINT"):
        await tables.client.command(
            f"INSERT INTO charges (namespace, record_id, {column}) VALUES"
            f" ('team-alpha', '019ad735-8400-71b6-a4eb-216455a0296a', {value})"
        )
    await sink.close()
