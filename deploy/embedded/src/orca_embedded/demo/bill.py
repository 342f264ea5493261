"""The bill twice: by plain arithmetic on what nodes and programs said, and as ClickHouse has it.

The arithmetic uses nothing of metering's or billing's: times from the nodes' own TaskStarted
and TaskFinished events, token counts from the programs' own last lines, prices from the story.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orca_client import sql
from orca_client.connection import Connection
from orca_client.errors import QueryError
from orca_client.money import parse_price_micro_usd
from orca_schemas.asks import Status
from orca_schemas.subjects import Stream
from orca_schemas.units import PICO_PER_USD

from orca_embedded.demo.play import Play, Played
from orca_embedded.demo.problem import DemoError
from orca_embedded.demo.story import CPU_MILLI, PRICES
from orca_embedded.demo.worker import COUNTED

COST_SQL = (
    "SELECT namespace, sku, sum(quantity) AS quantity, sum(amount_usd) AS usd "
    "FROM cost_daily GROUP BY namespace, sku ORDER BY namespace, sku"
)
TOTAL_SQL = "SELECT sum(amount_usd) FROM cost_daily"
CURSOR_SQL = (
    "SELECT max(sequence) FROM projection_cursors "
    "WHERE projector = 'billing-charges' AND stream = 'BILLING'"
)
PROJECT_S = 20.0
POLL_S = 0.1
MILLI_MS_PER_PICO_STEP = 3600
"""pico-USD per (micro-USD an hour x milli x ms): 1e6 / (1000 milli x 3,600,000 ms)."""


@dataclass(frozen=True, slots=True)
class Line:
    """One sku of a team. ``quantity`` in tokens or milli-unit milliseconds, money in pico-USD.

    ``found_quantity`` and ``found_pico_usd`` are what ClickHouse has.
    """

    team: str
    sku: str
    quantity: int
    price_micro_usd: int
    pico_usd: int
    found_quantity: int
    found_pico_usd: int

    @property
    def equal(self) -> bool:
        """Equal to the last digit, in quantity and money."""
        wanted = (self.quantity, self.pico_usd)
        return wanted == (self.found_quantity, self.found_pico_usd)


@dataclass(frozen=True, slots=True)
class Bill:
    """Every line, and the total that ClickHouse adds up by itself."""

    lines: tuple[Line, ...]
    found_total_pico_usd: int

    @property
    def total_pico_usd(self) -> int:
        """The total by arithmetic."""
        return sum(line.pico_usd for line in self.lines)

    @property
    def equal(self) -> bool:
        """Whether everything is equal to the last digit."""
        total = self.total_pico_usd == self.found_total_pico_usd
        return total and all(line.equal for line in self.lines)

    def team(self, name: str) -> tuple[int, int]:
        """A team's total by arithmetic and in ClickHouse."""
        of_team = [line for line in self.lines if line.team == name]
        return sum(one.pico_usd for one in of_team), sum(one.found_pico_usd for one in of_team)


def usage(tasks: Iterable[Played]) -> Counter[tuple[str, str]]:
    """What was used by (team, sku), as nodes and programs say."""
    used: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        started, finished = task.first("TaskStarted"), task.first("TaskFinished")
        if started is None or finished is None:
            continue
        part, duration_ms = task.part, finished["finished_at_ms"] - started["started_at_ms"]
        used[part.team, "cpu"] += CPU_MILLI * duration_ms
        if part.gpus is not None:
            used[part.team, f"gpu:{part.gpus[0]}"] += part.gpu_milli * duration_ms
        for token_class, tokens in counted(task).items():
            used[part.team, f"tokens:{part.model}:{token_class}"] += tokens
    return used


def counted(task: Played) -> dict[str, int]:
    """The tokens that the program says it counted. Raises DemoError."""
    last = (task.output.strip().splitlines() or [""])[-1]
    if not last.startswith(COUNTED):
        raise DemoError(f"{task.part.team}/{task.part.name} wrote no count, but: {last!r}")
    found: dict[str, int] = json.loads(last.removeprefix(COUNTED))
    return found


def price_pico_usd(sku: str, quantity: int, price_micro_usd: int) -> int:
    """Quantity times price in pico-USD; the story's prices leave nothing to round."""
    if sku.startswith("tokens:"):
        return quantity * price_micro_usd
    amount, rest = divmod(quantity * price_micro_usd, MILLI_MS_PER_PICO_STEP)
    assert rest == 0, "prices an hour are multiples of $0.0036"
    return amount


async def bill(connection: Connection, clickhouse_url: str, play: Play) -> Bill:
    """Make the bill both ways, once ClickHouse holds all that billing charged."""
    await _projected(connection, clickhouse_url)
    cost = await asyncio.to_thread(sql.query, clickhouse_url, COST_SQL)
    total = await asyncio.to_thread(sql.query, clickhouse_url, TOTAL_SQL)
    found = {(team, sku): (quantity, _pico(usd)) for team, sku, quantity, usd in cost.rows}
    used = usage(play.tasks)
    lines = [_line(key, used[key], found.get(key, (0, 0))) for key in sorted(used | found.keys())]
    return Bill(tuple(lines), _pico(total.rows[0][0]))


def _line(key: tuple[str, str], quantity: int, found: tuple[int, int]) -> Line:
    team, sku = key
    price = parse_price_micro_usd(PRICES[sku])
    return Line(team, sku, quantity, price, price_pico_usd(sku, quantity, price), *found)


def _pico(usd: Any) -> int:
    """A Decimal of dollars as pico-USD, exactly."""
    sign, digits, exponent = usd.as_tuple()
    number = int("".join(map(str, digits)))
    scale: int = PICO_PER_USD // 10**-exponent
    return (-number if sign else number) * scale


async def _projected(connection: Connection, url: str) -> None:
    """Wait until the charges in ClickHouse are complete. Raises DemoError."""
    last = (await connection.ask(Status, "billing", "status")).sequence
    deadline_s = time.monotonic() + PROJECT_S
    while await _cursor(url) < last:
        if time.monotonic() > deadline_s:
            lacking = f"{Stream.BILLING}#{last}"
            raise DemoError(f"ClickHouse does not hold {lacking} after {PROJECT_S:.0f} s")
        await asyncio.sleep(POLL_S)


async def _cursor(url: str) -> int:
    try:
        return int((await asyncio.to_thread(sql.query, url, CURSOR_SQL)).rows[0][0] or 0)
    except QueryError:  # billing makes the table with its first batch
        return 0
