"""What a run came to: whether all is billed, and whether ClickHouse says what the log says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal

from checks import charged_totals, event_of
from orca_runtime.log import Stored
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, eventually

ASK_S = 10.0


async def all_final(stack: RunningStack, runs: int) -> bool:
    """Whether billing said final of this many runs. False while the broker does not answer."""
    try:
        async with asyncio.timeout(ASK_S), stack.log() as log:
            end = (await log.state(Stream.BILLING)).last_sequence
        events = {} if end < runs else await stack.events(Stream.BILLING)
    except TimeoutError:
        return False
    done = len(final_runs(events.get(Stream.BILLING, ()))) >= runs
    if not done:
        await asyncio.sleep(1)
    return done


def final_runs(billing: Sequence[Stored]) -> set[str]:
    """The runs whose last charge is made."""
    return {
        data["run_id"]
        for name, data in map(event_of, billing)
        if name == "Charged" and data["final"]
    }


async def sql_says_the_same(
    stack: RunningStack, events: Mapping[str, Sequence[Stored]], limit_s: float = 60
) -> None:
    """SELECT totals equal the fold of the log to the last digit, soon."""
    charged = charged_totals(events[Stream.BILLING])
    expected = {
        namespace: Decimal(pico).scaleb(-12) for namespace, pico in charged.pico_usd.items()
    }
    query = "SELECT namespace, sum(amount_usd) FROM charges FINAL GROUP BY namespace"

    def equal() -> bool:
        return dict(stack.sql(query)) == expected

    await eventually("ClickHouse has what the log has", equal, limit_s)
    for meter, folded in (("tokens", charged.tokens), ("cpu", charged.cpu_milli_ms)):
        found = stack.sql(f"SELECT sum(quantity) FROM charges FINAL WHERE meter = '{meter}'")
        assert int(found[0][0]) == sum(folded.values()), meter
