"""Explaining money: each record at its price, summing to the total, and seen where it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from orca_billing.decider import DECIDER
from orca_billing.explain import Bill, Line, Month, bill, usd, versions
from orca_runtime.histories import packaged, read_history
from orca_runtime.memory_log import MemoryLog, MemoryStream
from orca_runtime.past import Moment
from orca_runtime.recorded import recorded
from orca_schemas.errors import MalformedError
from orca_schemas.subjects import stream_filter

TEAM = "team-alpha"
(RECORDED,) = [one for one in packaged("orca_billing") if one.name == "v1.jsonl.gz"]
HISTORY = list(read_history(RECORDED.read_bytes()))
ALWAYS = 10_000


@pytest.fixture
def log() -> MemoryLog:
    """A log whose BILLING stream is a recorded one; its prices' ADMIN is not there."""
    made = MemoryLog(lambda: 1)
    stream = DECIDER.stream
    made._streams[stream] = MemoryStream(
        stream, stream_filter(stream), HISTORY[0].epoch, messages=list(HISTORY)
    )
    return made


def month_of(ms: int) -> Month:
    """The month in which a time falls."""
    return next(
        Month(year, month)
        for year in range(2020, 2100)
        for month in range(1, 13)
        if Month(year, month).holds(ms)
    )


MONTH = month_of(HISTORY[-1].time_ms)


def raw_lines() -> list[dict[str, int | str]]:
    """Every charge line of the team, from the bytes alone."""
    ours = [one for one in HISTORY if one.subject.split(".")[1] == TEAM]
    return [line for one in ours for line in json.loads(one.body)["data"].get("lines", ())]


async def test_the_lines_sum_to_the_total_to_the_last_digit(log: MemoryLog) -> None:
    """Given a recorded month, then the total is the sum of the amounts in its bytes, by group as
    by line, and few lines are kept."""
    found = await bill(log, Bill(TEAM, MONTH, last=3), Moment())
    lines = raw_lines()
    total = sum(int(line["amount_pico_usd"]) for line in lines)
    assert (found.count, found.total_pico_usd) == (len(lines), total)
    assert sum(group.amount_pico_usd for group in found.groups.values()) == total > 0
    assert len(found.lines) == 3
    assert found.adds_up


async def test_each_line_is_told_once_as_it_is_read(log: MemoryLog) -> None:
    """Given a listener, then it hears of every record and sku, in order, and of no other month."""
    heard: list[Line] = []
    await bill(log, Bill(TEAM, MONTH, ALWAYS), Moment(), heard.append)
    assert [str(line.charge.record_id) for line in heard] == [
        line["record_id"] for line in raw_lines()
    ]
    assert heard
    nothing = await bill(log, Bill(TEAM, Month(2001, 1), ALWAYS), Moment())
    assert (nothing.count, nothing.total_pico_usd) == (0, 0)
    assert nothing.adds_up


async def test_an_amount_that_is_not_quantity_times_price_is_named(log: MemoryLog) -> None:
    """Given a line off by one pico-USD, then the bill does not add up and names the record."""
    found = await bill(log, Bill(TEAM, MONTH, ALWAYS), Moment())
    line = found.lines[-1]
    off = line.charge.model_copy(update={"amount_pico_usd": line.charge.amount_pico_usd + 1})
    found.add(replace(line, charge=off))
    assert not found.adds_up
    assert str(off.record_id) in found.wrong[0]


async def test_a_total_that_is_not_the_sum_of_its_lines_is_named(log: MemoryLog) -> None:
    """Given a run that cost more before than its total says, then the event is named."""
    found = Bill(TEAM, MONTH, ALWAYS)
    charged = next(recorded(one) for one in HISTORY if one.subject.endswith(".Charged"))
    found.check(charged, known_pico_usd=7)
    assert not found.adds_up
    assert found.wrong == [f"{charged.position}: the run's total is not the sum of its lines"]


async def test_a_price_version_that_nobody_has_is_shown_as_unknown(log: MemoryLog) -> None:
    """Given no ADMIN event where a version points, then who set it is unknown; the sums stand."""
    found = await bill(log, Bill(TEAM, MONTH, ALWAYS), Moment())
    known = await versions(log, found)
    assert {version.by for version in known.values()} == {"?"}
    assert found.adds_up


@pytest.mark.parametrize(
    ("pico_usd", "text"),
    [(0, "$0.000000000000"), (1, "$0.000000000001"), (1_300_000_000_000, "$1.300000000000"),
     (-5, "-$0.000000000005"), (10**18, "$1,000,000.000000000000")],
)  # fmt: skip
def test_money_keeps_every_digit(pico_usd: int, text: str) -> None:
    """Given pico-USD, then dollars with all twelve digits, which read back to the same."""
    assert usd(pico_usd) == text
    read = Decimal(text.replace("$", "").replace(",", ""))
    assert read == Decimal(pico_usd).scaleb(-12)


@pytest.mark.parametrize("text", ["2026", "2026-13", "11-2026", "november", ""])
def test_what_is_no_month_is_refused(text: str) -> None:
    """Given anything but a year and a month, then it says how a month is written."""
    with pytest.raises(MalformedError, match="write a month such as 2026-11"):
        Month.parse(text)
