"""Tasks run while every process is killed and paused at random: all promises hold after it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from orca_client.connection import Connection
from stack_kit import running_stack

from tests.chaos.faults import Chaos, Fault, schedule
from tests.chaos.load import declare, say_usage_again, send, tasks
from tests.chaos.verdict import all_done, check_no_other_death, judge

SHORT_TASKS, SHORT_KILLS, SHORT_S = 500, 16, 75.0
LONG_TASKS, LONG_KILLS, LONG_S = 5000, 100, 600.0


async def run(
    home: Path, rng: Random, count: int, seconds: float, faults: list[Fault], limit_s: float
) -> None:
    """Load and faults together, then the verdict."""
    witness = home / "began"
    witness.touch()
    load = tasks(rng, count, witness)
    print(*faults, sep="\n")
    with running_stack(home, ORCA_STANDBY="true") as stack:
        async with await Connection.open(stack.nats_url, "root") as root:
            await declare(root)
        chaos = Chaos(stack)
        await asyncio.gather(chaos.run(faults), send(stack, load, seconds))
        repeated = await say_usage_again(stack, rng, 50)
        await all_done(stack, load, limit_s)
        print("killed", dict(chaos.kills), "missed", chaos.missed, "usage said again", repeated)
        print("events", await judge(stack, load, witness))
        check_no_other_death(stack, chaos.kills)
        assert sum(chaos.kills.values()) >= 0.8 * sum(not fault.pause_s for fault in faults)


@pytest.mark.timeout(600)
async def test_tasks_survive_kills_and_pauses_of_every_part(tmp_path: Path, seed: int) -> None:
    """Given 16 kills, a broker pause and ClickHouse away, 500 tasks end as if nothing was."""
    rng = Random(seed)
    faults = schedule(rng, SHORT_S, SHORT_KILLS, ("nats", 6.0), ("clickhouse", 10.0))
    await run(tmp_path, rng, SHORT_TASKS, SHORT_S, faults, 240)


@pytest.mark.long
@pytest.mark.timeout(3000)
async def test_thousands_of_tasks_survive_a_hundred_kills(tmp_path: Path, seed: int) -> None:
    """Given 100 kills, long pauses of the broker and ClickHouse, 5,000 tasks end all the same."""
    rng = Random(seed)
    pauses = (("nats", 20.0), ("nats", 6.0), ("clickhouse", 60.0), ("placement", 8.0))
    faults = schedule(rng, LONG_S, LONG_KILLS, *pauses)
    await run(tmp_path, rng, LONG_TASKS, LONG_S, faults, 900)
