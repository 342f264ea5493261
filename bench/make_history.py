"""A long life of admission, in a broker: ``python bench/make_history.py --events 1000000``.

The real decider decides every event, on synthetic inputs: a task is submitted, placed, uses
tokens, ends, is settled, and is forgotten 36 days later. The life spans ``--days``, so that the
state holds what it would hold. Then it measures what a start costs: the replay from zero, the start
of a real admission process from zero and from a snapshot, and their memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from harness import arguments, finish, manifest
from log import broker, start_to_ready
from orca_admission.decider import DECIDER
from orca_runtime.fold import unfolded
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Outgoing
from orca_runtime.recorded import Due, Recorded
from orca_runtime.speculate import Speculation, seal, speculate
from orca_runtime.testing_nats import NatsServer
from orca_runtime.timers import Timers
from orca_schemas.events.admin import NamespaceSet, QuotaSet
from orca_schemas.events.client import TaskSubmitted
from orca_schemas.events.metering import UsageSettled
from orca_schemas.events.placement import Placed, Released
from orca_schemas.identifiers import derived_id, run_id
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import ROLE_OF_STREAM, Kind, Stream, Subject
from orca_schemas.values import Outcome, Period

GROUP_EVENTS = 500
ROUND_TASKS = 50
DAY_MS = 86_400_000
MARGIN = 1.25
EVENTS_PER_TASK = 6
TEAM = "team-a"
EPOCH = 1_700_000_000_000_000_000


class Life:
    """Admission's own events, in groups that go into one append."""

    def __init__(self, epoch: int, events: int, days: float) -> None:
        self.epoch, self._events = epoch, events
        # Some days more than it spans: what is not forgotten yet makes fewer events of a task.
        self._now_ms = float(int(time.time() * 1000 - days * MARGIN * DAY_MS))
        self._step_ms = days * DAY_MS / (events / EVENTS_PER_TASK / ROUND_TASKS)
        self.folded = unfolded(DECIDER)
        self._timers: Timers[Any] = Timers(DECIDER)
        self._ends = dict.fromkeys(DECIDER.inputs, 0)
        self._tasks = 0

    def groups(self) -> Iterator[tuple[Outgoing, ...]]:
        """Live until there are so many events."""
        yield self._decide([self._said(Stream.ADMIN, "root", TEAM, NamespaceSet())])
        quota = QuotaSet(dimension="tokens", limit=None, period=Period.TOTAL)
        yield self._decide([self._said(Stream.ADMIN, "root", TEAM, quota)])
        while self.folded.sequence < self._events:
            yield from self._round()
            self._now_ms += self._step_ms

    def _round(self) -> Iterator[tuple[Outgoing, ...]]:
        due = self._timers.due(int(self._now_ms), GROUP_EVENTS)
        if due:
            yield self._decide(due)
        lives = [self._task() for _ in range(ROUND_TASKS)]
        for inputs in zip(*lives, strict=True):
            yield self._decide(list(inputs))

    def _decide(self, inputs: list[Recorded] | list[Due]) -> tuple[Outgoing, ...]:
        spec: Speculation[Any] = Speculation(self.folded, self.epoch)
        for given in inputs:
            spec = speculate(DECIDER, spec, given, int(self._now_ms))
        # The inputs stand in no stream here: a cursor would name what does not exist.
        sealed = seal(DECIDER, replace(spec, folded=replace(spec.folded, cursor={})))
        self.folded = sealed.folded
        for event in sealed.events:
            assert event.subject.event != "InputDeadLettered", event.data
            self._timers.follow(self.folded.state, event)
        return sealed.outgoing

    def _said(
        self, stream: Stream, party: str, id_: str, data: EventData, run: str | None = None
    ) -> Recorded:
        self._ends[stream] += 1
        kind = data.KIND or Kind.TASK
        subject = Subject(TEAM, kind, id_, ROLE_OF_STREAM[stream], party, type(data).__name__)
        position = Position(stream, EPOCH, self._ends[stream])
        return Recorded(position, subject, int(self._now_ms), data, run)

    def _task(self) -> list[Recorded]:
        """A task's inputs, in the order in which they come."""
        document = manifest(self._tasks)
        document["metadata"]["namespace"] = TEAM
        document["spec"]["resources"]["tokenQuota"] = 10_000
        id_ = str(derived_id(int(self._now_ms), "task", self._tasks))
        self._tasks += 1
        submitted = TaskSubmitted.model_validate({"manifest": document})
        first = self._said(Stream.CLIENT, "alice", id_, submitted)
        run = run_id(first.position, first.time_ms)
        placed = self._said(Stream.PLACEMENT, "-", id_, self._placed(run, document), str(run))
        return [
            first,
            placed,
            self._said(Stream.METERING, "-", id_, _settled(run, final=False), str(run)),
            self._said(Stream.PLACEMENT, "-", id_, _released(run), str(run)),
            self._said(Stream.METERING, "-", id_, _settled(run, final=True), str(run)),
        ]

    def _placed(self, run: UUID, document: dict[str, Any]) -> Placed:
        spec = _spec_of(document)
        return Placed(
            run_id=run, spec=spec, node="node-1", slots=(), attempt=1, granted_tokens=10_000,
            lease_base_tokens=0,
        )  # fmt: skip


def _spec_of(document: dict[str, Any]) -> Any:
    """The spec as admission writes it: taken from what it decides on the first such task."""
    if not _SPECS:
        life = Life(EPOCH, 1, 1)
        list(life.groups())
        submitted = TaskSubmitted.model_validate({"manifest": document})
        id_ = str(derived_id(1, "first"))
        given = life._said(Stream.CLIENT, "alice", id_, submitted)
        spec = speculate(DECIDER, Speculation(life.folded, EPOCH), given, int(life._now_ms))
        _SPECS.append(spec.events[-1].data.spec)  # type: ignore[attr-defined]
    return _SPECS[0]


_SPECS: list[Any] = []


def _released(run: UUID) -> Released:
    return Released(
        run_id=run, outcome=Outcome.SUCCEEDED, exit_code=0, attempt=1, node="node-1", used=()
    )


def _settled(run: UUID, *, final: bool) -> UsageSettled:
    return UsageSettled(run_id=run, records=(), totals=(), used_tokens=1149, final=final)


async def make(server: NatsServer, events: int, days: float) -> Life:
    """Put a life into the broker."""
    log = await JetStreamLog.connect(server.url, name="bench")
    life = Life((await log.state(Stream.ADMISSION)).epoch, events, days)
    last, waiting = 0, []
    for group in life.groups():
        waiting.extend(group)
        if len(waiting) >= GROUP_EVENTS:
            last = await log.append(Stream.ADMISSION, last, waiting)
            waiting = []
    if waiting:
        await log.append(Stream.ADMISSION, last, waiting)
    await log.close()
    return life


def replayed(server: NatsServer, folder: Path, *flags: str) -> dict[str, Any]:
    """``orca replay admission`` in a process of its own, with the processor time it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "orca_admission", "replay", "--json", *flags],
        env={"ORCA_NATS_URL": server.url, "ORCA_DATA_DIR": str(folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = json.loads(done.stdout)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found | {"process_s": time.perf_counter() - began, "cpu_s": round(cpu_s, 2)}


async def measure(events: int, days: float) -> dict[str, Any]:
    """Make it, replay it, start on it."""
    async with broker("2m") as server:
        began = time.perf_counter()
        life = await make(server, events, days)
        found: dict[str, Any] = {
            "events": life.folded.sequence,
            "days": days,
            "runs_remembered": len(life.folded.state.runs),
            "made_in_s": round(time.perf_counter() - began, 1),
        }
        with tempfile.TemporaryDirectory(prefix="orca-bench-data-") as name:
            folder = Path(name)
            found["replay_from_zero"] = replayed(server, folder, "--from-zero")
            found["start_from_zero"] = await start_to_ready(server, folder)
            snapshots = sorted((folder / "snapshots").glob("*.snapshot"))
            found["snapshot_bytes"] = snapshots[-1].stat().st_size if snapshots else 0
            found["start_from_snapshot"] = [await start_to_ready(server, folder) for _ in range(3)]
            found["replay_from_snapshot"] = replayed(server, folder)
            found["verify"] = replayed(server, folder, "--verify")
    return found


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__ or "", events=1_000_000, days=90.0)
    found = asyncio.run(measure(options.events, options.days))
    print(json.dumps(found, indent=2))
    best = min(one["ready_s"] for one in found["start_from_snapshot"])
    finish(
        options,
        {
            "metric": "start_from_snapshot",
            "value": best,
            "unit": f"s to ready, admission, log of {found['events']} own events",
        }
        | found,
    )


if __name__ == "__main__":
    main()
