"""Why an amount is what it is: usage record -> price version -> amount, summing to the total.

Read from the log alone: BILLING's own events, each line computed again from its quantity and the
price that its version set in ADMIN. Nothing here asks ClickHouse.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from orca_runtime import text
from orca_runtime.fold import unfolded
from orca_runtime.inbox import read_input
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import EventLog
from orca_runtime.past import Moment, folds
from orca_runtime.recorded import Recorded
from orca_runtime.service import Explain
from orca_schemas.errors import MalformedError
from orca_schemas.events.admin import PriceSet
from orca_schemas.events.billing import Charged
from orca_schemas.identifiers import check_label, id_time_ms
from orca_schemas.positions import Position
from orca_schemas.units import PICO_PER_USD
from orca_schemas.values import ChargeLine

from orca_billing.decider import DECIDER
from orca_billing.rating import amount_pico_usd

LAST = 40
"""Lines shown: a screen. The others are in the groups, and in --json all are written."""
MAX_LAST = 10_000
PICO_DIGITS = 12
NO_PRICE = "no price"


@dataclass(frozen=True, slots=True)
class Month:
    """A calendar month in UTC, in which a record counts by the time of its own id."""

    year: int
    month: int

    @classmethod
    def parse(cls, text_: str) -> Month:
        """Read ``2026-11``; raises MalformedError."""
        try:
            found = datetime.strptime(text_, "%Y-%m").replace(tzinfo=UTC)
        except ValueError:
            raise MalformedError("period", text_, "write a month such as 2026-11") from None
        return cls(found.year, found.month)

    def holds(self, at_ms: int) -> bool:
        """Whether the time (Unix ms) falls into the month."""
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        return (moment.year, moment.month) == (self.year, self.month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"


@dataclass(frozen=True, slots=True)
class Line:
    """One charge line, and whose it is."""

    position: Position
    task_id: str
    run_id: UUID
    charge: ChargeLine

    @property
    def adds_up(self) -> bool:
        """Whether quantity and price give the amount."""
        one = self.charge
        if one.price is None:
            return one.amount_pico_usd == 0
        return amount_pico_usd(one.quantity, one.unit, one.price_micro_usd) == one.amount_pico_usd


@dataclass
class Group:
    """The lines of one sku at one price version, added up."""

    price_micro_usd: int
    unit: str
    lines: int = 0
    quantity: int = 0
    amount_pico_usd: int = 0

    def add(self, line: ChargeLine) -> None:
        """One more."""
        self.lines += 1
        self.quantity += line.quantity
        self.amount_pico_usd += line.amount_pico_usd


GroupKey = tuple[str, str | None]


@dataclass
class Bill:
    """The account's lines of the month: all of them as sums, the last as they are."""

    account: str
    month: Month
    last: int
    sequence: int = 0
    count: int = 0
    total_pico_usd: int = 0
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    lines: deque[Line] = field(default_factory=deque)
    wrong: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """One more; of the lines themselves only the last are kept."""
        one = line.charge
        self.count += 1
        self.total_pico_usd += one.amount_pico_usd
        made = Group(one.price_micro_usd, one.unit)
        self.groups.setdefault((one.sku, one.price), made).add(one)
        self.lines.append(line)
        if len(self.lines) > self.last:
            self.lines.popleft()
        if not line.adds_up:
            self._blame(f"{line.position}: record {one.record_id} is not quantity x price")

    def check(self, event: Recorded, known_pico_usd: int) -> None:
        """Whether the event's lines lead from what the run cost to what it says it costs."""
        assert isinstance(event.data, Charged)
        charged = sum(line.amount_pico_usd for line in event.data.lines)
        if known_pico_usd + charged != event.data.total_pico_usd:
            self._blame(f"{event.position}: the run's total is not the sum of its lines")

    def _blame(self, problem: str) -> None:
        if len(self.wrong) < self.last:
            self.wrong.append(problem)

    @property
    def adds_up(self) -> bool:
        """Whether nothing is wrong and the groups sum to the total."""
        summed = sum(group.amount_pico_usd for group in self.groups.values())
        return not self.wrong and summed == self.total_pico_usd


async def bill(log: EventLog, found: Bill, until: Moment, each: Any = lambda _: None) -> Bill:
    """Fold BILLING to the moment; ``each`` is told every line of the account and month."""
    before = unfolded(DECIDER)
    async with aclosing(folds(DECIDER, log, before, until)) as reading:
        async for folded, event, _ in reading:
            if isinstance(event.data, Charged) and event.subject.namespace == found.account:
                known = before.state.runs.get(event.data.run_id)
                found.check(event, known.total_pico_usd if known else 0)
                for line in _lines(event, found.month):
                    found.add(line)
                    each(line)
            before = folded
    found.sequence = before.sequence
    return found


def _lines(event: Recorded, month: Month) -> Iterator[Line]:
    assert isinstance(event.data, Charged)
    for charge in event.data.lines:
        if month.holds(id_time_ms(charge.record_id)):
            yield Line(event.position, event.subject.id, event.data.run_id, charge)


@dataclass(frozen=True, slots=True)
class Version:
    """A price version as ADMIN has it: who set it, when, and what it says."""

    by: str
    at_ms: int
    price_micro_usd: int | None


async def versions(log: EventLog, found: Bill) -> dict[str, Version]:
    """The price versions that the bill names; a group whose price is another is wrong."""
    known: dict[str, Version] = {}
    for (sku, version), group in found.groups.items():
        if version is None:
            continue
        known[version] = await _version(log, version)
        if known[version].price_micro_usd not in (None, group.price_micro_usd):
            found.wrong.append(f"{version} does not set {sku} to {group.price_micro_usd}")
    return known


async def _version(log: EventLog, version: str) -> Version:
    position = Position.parse(version)
    stored = await log.get(position.stream, position.sequence)
    if stored is None:  # ADMIN never expires; then it was restored to before this price
        return Version("?", 0, None)
    given = read_input(stored)
    if not isinstance(given, Recorded) or not isinstance(given.data, PriceSet):
        return Version("?", stored.time_ms, None)
    price = given.data.tiers[0].price_micro_usd
    return Version(given.subject.party, stored.time_ms, price)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("account", help="the namespace")
    parser.add_argument("--period", required=True, help="a month (UTC), such as 2026-11")
    parser.add_argument("--at", help="a sequence of BILLING, or a time; default: the end")
    parser.add_argument("--last", type=int, default=LAST, help="how many lines to show")
    parser.add_argument(
        "--json", action="store_true", help="every line as one JSON object, then one of the sums"
    )


async def _run(log: JetStreamLog, options: Namespace) -> int:
    check_label("account", options.account)
    if not 1 <= options.last <= MAX_LAST:
        raise MalformedError("last", str(options.last), f"use 1 to {MAX_LAST}")
    until = Moment.parse(options.at) if options.at else Moment()
    found = Bill(options.account, Month.parse(options.period), options.last)
    await bill(log, found, until, _write if options.json else lambda _: None)
    known = await versions(log, found)
    print(json.dumps(_sums_json(found, known)) if options.json else _shown(found, known))
    return 0 if found.adds_up else 1


MONEY = Explain(_arguments, _run)


# -- how it reads -----------------------------------------------------------------------------


def usd(pico_usd: int) -> str:
    """Write pico-USD with all twelve digits, so that columns line up and nothing is rounded."""
    whole, rest = divmod(abs(pico_usd), PICO_PER_USD)
    return f"{'-' if pico_usd < 0 else ''}${whole:,}.{rest:0{PICO_DIGITS}d}"


def _shown(found: Bill, known: dict[str, Version]) -> str:
    if not found.count:
        return f"{found.account} in {found.month}: nothing was charged"
    earlier = found.count - len(found.lines)
    more = f", the last {len(found.lines)} shown (--last, --json)" if earlier else ""
    head = (
        f"{found.account} in {found.month}: {usd(found.total_pico_usd)} from {found.count:,} "
        f"lines{more}; BILLING read to #{found.sequence:,}"
    )
    return "\n\n".join(
        (
            head,
            text.table(
                ("USED AT (UTC)", "TASK", "USAGE RECORD", "SKU", "QUANTITY", "UNIT", "PRICE",
                 "AMOUNT"),
                [_line(line) for line in found.lines],
                right="    r  r",
            ),
            text.table(
                ("SKU", "PRICE VERSION", "SET BY", "USD", "LINES", "QUANTITY", "UNIT", "AMOUNT"),
                [*_groups(found, known), _total(found)],
                right="   rrr r",
            ),
            _conclusion(found),
        )
    )  # fmt: skip


def _line(line: Line) -> tuple[str, ...]:
    one = line.charge
    return (
        text.clock(one.at_ms), line.task_id[:8], str(one.record_id), one.sku, f"{one.quantity:,}",
        one.unit, _short(one.price), usd(one.amount_pico_usd),
    )  # fmt: skip


def _groups(found: Bill, known: dict[str, Version]) -> Iterator[tuple[str, ...]]:
    for (sku, version), group in sorted(found.groups.items(), key=lambda one: str(one[0])):
        author = known.get(version or "")
        by = f"{author.by}, {text.clock(author.at_ms)}" if author else "-"
        each = usd(group.price_micro_usd * 1_000_000).rstrip("0").rstrip(".") if version else "-"
        yield (
            sku, _short(version), by, each, f"{group.lines:,}", f"{group.quantity:,}", group.unit,
            usd(group.amount_pico_usd),
        )  # fmt: skip


def _total(found: Bill) -> tuple[str, ...]:
    return ("TOTAL", "", "", "", f"{found.count:,}", "", "", usd(found.total_pico_usd))


def _short(version: str | None) -> str:
    if version is None:
        return NO_PRICE
    position = Position.parse(version)
    return f"{position.stream}#{position.sequence}"


def _conclusion(found: Bill) -> str:
    if found.adds_up:
        return (
            "every line is its quantity x its price, every run's total the sum of its lines, "
            "and the groups sum to the total"
        )
    return "DOES NOT ADD UP:\n" + "\n".join(found.wrong)


def _write(line: Line) -> None:
    """Write a line at once: a month of a busy account need not fit into memory."""
    document = line.charge.model_dump(mode="json") | {
        "position": str(line.position),
        "task_id": line.task_id,
        "run_id": str(line.run_id),
    }
    sys.stdout.write(json.dumps(document) + "\n")


def _sums_json(found: Bill, known: dict[str, Version]) -> dict[str, Any]:
    return {
        "account": found.account,
        "period": str(found.month),
        "sequence": found.sequence,
        "lines": found.count,
        "total_pico_usd": found.total_pico_usd,
        "total_usd": usd(found.total_pico_usd).replace("$", "").replace(",", ""),
        "adds_up": found.adds_up,
        "wrong": found.wrong,
        "groups": [
            {"sku": sku, "price": version, "price_micro_usd": group.price_micro_usd,
             "unit": group.unit, "lines": group.lines, "quantity": group.quantity,
             "amount_pico_usd": group.amount_pico_usd,
             "set_by": known[version].by if version else None}
            for (sku, version), group in found.groups.items()
        ],
    }  # fmt: skip
