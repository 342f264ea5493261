"""Releases of one decider around a change of an event: ``python releases.py RELEASE URL OUT``.

``before`` knows Noted v1 alone. ``reads`` reads v2, by an upcast where it finds v1, and still says
v1. ``writes`` says v2. Runs until it is killed, and keeps what it is in the file OUT.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from orca_runtime import streams
from orca_runtime.clock import SystemClock
from orca_runtime.decider import Decider
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.lease import KvLease
from orca_runtime.recorded import Decided, Recorded
from orca_runtime.shell import DeciderShell
from orca_runtime.tables import state_digest
from orca_runtime.testing_toy import TOY, Toy
from orca_schemas.events.common import Noted
from orca_schemas.registry import EVENTS
from orca_schemas.upcasts import UPCASTS
from pydantic import create_model

RELEASES = ("before", "reads", "writes")
WEIGHT_V1, WEIGHT_V2 = 1, 10
STORE_BYTES = 2_000_000_000
TELL_S = 0.05


def newer_noted() -> type[Noted]:
    """Noted v2: it says besides how much what it notes weighs."""
    made: type[Noted] = create_model("Noted", __base__=Noted, weight=(int, ...))
    made.VERSION = 2
    return made


def upcast(data: dict[str, Any]) -> dict[str, Any]:
    """From v1 to v2: what never said its weight weighs one."""
    return data | {"weight": WEIGHT_V1}


def learn() -> type[Noted]:
    """Make this process one of a release that reads Noted v2."""
    newest = newer_noted()
    EVENTS["Noted"] = newest
    UPCASTS["Noted", 1] = upcast
    return newest


def decider_of(release: str) -> Decider[Toy, Any]:
    """The decider as this release has it."""
    if release == "before":
        return TOY
    newest = learn()

    def decide(state: Toy, command: Any, now_ms: int) -> list[Decided]:
        decided = TOY.decide(state, command, now_ms)
        return [_newer(one, newest) for one in decided] if release == "writes" else decided

    return replace(TOY, decide=decide, evolve=_evolve)


def _newer(one: Decided, newest: type[Noted]) -> Decided:
    if not isinstance(one.data, Noted):
        return one
    data = newest(about=one.data.about, fact=one.data.fact, weight=WEIGHT_V2)  # type: ignore[call-arg]
    return replace(one, data=data)


def _evolve(state: Toy, event: Recorded) -> Toy:
    """As before, and a number counts as often as its note weighs."""
    after = TOY.evolve(state, event)
    weight = getattr(event.data, "weight", None)
    assert weight is not None or not isinstance(event.data, Noted), "every note is read as v2"
    return replace(after, total=state.total + (after.total - state.total) * (weight or 1))


async def main(release: str, url: str, out: Path) -> None:
    """Run one replica and tell how it is."""
    decider = decider_of(release)
    log = await JetStreamLog.connect(url, name=release)
    await streams.apply(log.nc, STORE_BYTES)
    clock = SystemClock()
    lease = KvLease(log.nc, "toy", release, clock)
    shell = DeciderShell(decider, log, clock=clock, lease=lease)
    async with asyncio.TaskGroup() as group:
        group.create_task(lease.keep())
        group.create_task(shell.run())
        group.create_task(_tell(shell, out))


async def _tell(shell: DeciderShell[Toy], out: Path) -> None:
    while True:
        folded = shell.folded
        told = {
            "ready": shell.ready,
            "active": shell.active,
            "reason": shell.reason,
            "sequence": folded.sequence,
            "total": folded.state.total,
            "digest": state_digest(shell.decider.state_type, folded.state),
        }
        part = out.with_suffix(".part")
        part.write_text(json.dumps(told))
        part.replace(out)
        await asyncio.sleep(TELL_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
