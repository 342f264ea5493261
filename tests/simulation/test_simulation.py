"""A fixed set of worlds on every change, and proof that bugs are found.

Each runs in a process of its own, where the order of hash maps is fixed: a seed is the same world
everywhere. More worlds: ``make simulate SEEDS=1000``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SEEDS_EACH = 24
"""Two processes of so many worlds take about 40 s on two idle cores; the bugs as long again."""

BUGS: dict[str, tuple[int, tuple[str, ...]]] = {
    "cursor_before_append": (5, ("I8",)),
    "state_before_append": (10, ("I", "law", "the model")),
    "conflict_is_success": (5, ("law 9",)),
    "random_ids": (2, ("law 5",)),
    "release_twice": (2, ("I2",)),
    "forgotten_hold": (5, ("I1", "I2")),
    "clock_in_evolve": (10, ("I3",)),
    "delta_top_up": (20, ("I1",)),
    "no_fence": (40, ("I4",)),
    "repeats_count": (10, ("I5",)),
    "hasty_nodes": (20, ("I4",)),
}
"""How many worlds each planted bug may take to be found, and what it must be found as."""


async def _simulate(*arguments: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.simulation", "--json", *arguments,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert out, err.decode()[-2000:]
    summary: dict[str, Any] = json.loads(out)
    return summary


@pytest.mark.timeout(900)
async def test_no_world_breaks_a_law() -> None:
    """Given the worlds of the first seeds, then I1 to I8 and the laws of the log hold in each."""
    seeds = ("--seeds", str(SEEDS_EACH))
    halves = await asyncio.gather(
        _simulate("--first", "0", *seeds), _simulate("--first", str(SEEDS_EACH), *seeds)
    )
    assert [half["failure"] for half in halves] == [None, None]
    # Worlds in which nothing happens would pass too.
    counts = {name: sum(half["counts"].get(name, 0) for half in halves) for name in _MUST_HAPPEN}
    assert all(counts.values()), counts


_MUST_HAPPEN = (
    "ADMISSION LeaseExtended", "ADMISSION Noted rescan", "ADMISSION QuotaReserved",
    "ADMISSION TaskQueued", "ADMISSION TaskRejected cancelled", "ADMISSION RequestRefused",
    "ADMISSION TaskStopRequested quota_exhausted", "ADMISSION InputDeadLettered",
    "PLACEMENT AttemptEnded failed", "PLACEMENT AttemptEnded node_lost", "PLACEMENT NodeLost",
    "PLACEMENT NodeReturned", "PLACEMENT Noted rescan", "PLACEMENT Released deadline_exceeded",
    "PLACEMENT PlacementDeferred", "METERING UsageQuarantined",
    "METERING UsageSettled with missing", "BILLING Charged", "BILLING Noted price",
)  # fmt: skip


async def test_a_seed_is_the_same_world_every_time() -> None:
    """Given one seed in two processes, then every message of both logs is the same to the byte;
    another seed gives another log."""
    one, again, other = await asyncio.gather(
        *(_simulate("--first", first, "--seeds", "1") for first in ("5", "5", "6"))
    )
    assert one["digests"] == again["digests"] != other["digests"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_found(bug: str) -> None:
    """Given the real code with one bug around it, then a world within the bound breaks a law."""
    seeds, invariants = BUGS[bug]
    found = (await _simulate("--bug", bug, "--seeds", str(seeds)))["failure"]
    assert found is not None, f"{bug} is not found in {seeds} worlds"
    assert found["problem"].startswith(invariants), found


@pytest.mark.timeout(300)
async def test_a_failure_is_its_seed() -> None:
    """Given a bug found in some world, then that seed alone fails at the same step by the same
    law."""
    found = (await _simulate("--bug", "delta_top_up", "--seeds", "20"))["failure"]
    alone = ("--first", str(found["seed"]), "--seeds", "1")
    assert (await _simulate("--bug", "delta_top_up", *alone))["failure"] == found
