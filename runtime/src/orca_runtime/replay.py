"""``python -m orca_<service> replay``: rebuild the state from the log and say what it is."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from nats.errors import Error as NatsError
from orca_schemas.asks import Reply, Status
from orca_schemas.identifiers import CLUSTER
from orca_schemas.subjects import ask_subject

from orca_runtime import text
from orca_runtime.decider import Decider
from orca_runtime.fold import Folded, unfolded
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.past import Moment, end_of, folds, peak_memory_mib
from orca_runtime.snapshot import UNREADABLE, FileSnapshots
from orca_runtime.tables import state_digest
from orca_runtime.verify import Verdict, live_verdict, snapshot_check

ASK_S = 10.0
"""A large state takes a while to be digested."""
ASKER = "replay"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: the state at ``sequence``, and what it took to get there."""

    service: str
    start: int
    sequence: int
    time_ms: int
    digest: str
    events: int
    seconds: float
    events_per_s: int
    peak_memory_mib: float
    verdicts: tuple[Verdict, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether a comparison found another state."""
        return any(verdict.same is False for verdict in self.verdicts)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what may be asked for."""
    parser.add_argument("--from-zero", action="store_true", help="read no snapshot")
    parser.add_argument("--until", help="a sequence, or a time such as 2026-11-30T12:00 (UTC)")
    parser.add_argument(
        "--verify", action="store_true",
        help="fold from zero; compare with the running service and with the snapshots",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document")


async def main(
    decider: Decider[Any, Any],
    log: JetStreamLog,
    snapshots: FileSnapshots[Any],
    options: argparse.Namespace,
) -> int:
    """Replay, print, return the exit code: 1 where states differ."""
    until = Moment.parse(options.until) if options.until else Moment()
    if options.verify:
        found = await verify(decider, log, snapshots, until)
    else:
        start = None if options.from_zero else await newest(decider, log, snapshots, until)
        found = await replay(decider, log, start or unfolded(decider), until)
    print(json.dumps(asdict(found)) if options.json else shown(found))
    return int(found.differs)


async def newest(
    decider: Decider[Any, Any], log: JetStreamLog, snapshots: FileSnapshots[Any], until: Moment
) -> Folded[Any] | None:
    """The newest snapshot that is not past the moment; none is set aside here."""
    end = await end_of(log, decider.stream, until)
    for path in snapshots.paths():
        try:
            found = await snapshots.read(path)
        except UNREADABLE:
            continue
        in_time = until.time_ms is None or found.time_ms <= until.time_ms
        if found.sequence <= end and in_time:
            return found
    return None


async def replay(
    decider: Decider[Any, Any], log: JetStreamLog, start: Folded[Any], until: Moment
) -> Replayed:
    """Fold from ``start`` to the moment."""
    began_s, folded = time.perf_counter(), start
    async for folded, _, _ in folds(decider, log, start, until):  # noqa: B007 - the last counts
        pass
    return _replayed(decider, start, folded, time.perf_counter() - began_s)


def _replayed(
    decider: Decider[Any, Any],
    start: Folded[Any],
    folded: Folded[Any],
    seconds: float,
    *verdicts: Verdict,
) -> Replayed:
    events = folded.sequence - start.sequence
    return Replayed(
        service=decider.role.value,
        start=start.sequence,
        sequence=folded.sequence,
        time_ms=folded.time_ms,
        digest=state_digest(decider.state_type, folded.state),
        events=events,
        seconds=round(seconds, 3),
        events_per_s=round(events / seconds) if seconds else 0,
        peak_memory_mib=round(peak_memory_mib(), 1),
        verdicts=verdicts,
    )


async def verify(
    decider: Decider[Any, Any], log: JetStreamLog, snapshots: FileSnapshots[Any], until: Moment
) -> Replayed:
    """Fold from zero; on the way compare with the snapshots, and with the service where it is.

    The service is asked first, so that its sequence lies on the way.
    """
    live = await _live(log, decider.role.value)
    start, live_digest = unfolded(decider), None
    check = await snapshot_check(decider, snapshots, await end_of(log, decider.stream, until))
    began_s, folded = time.perf_counter(), start
    async for folded, _, stored in folds(decider, log, start, until):
        check.follow(folded, stored)
        if live is not None and folded.sequence == live.sequence:
            live_digest = state_digest(decider.state_type, folded.state)
    seconds = time.perf_counter() - began_s
    if live is not None and live.sequence == 0:
        live_digest = state_digest(decider.state_type, start.state)
    kept = await check.verdict(log, folded)
    agreed = [sequence for sequence, good in check.passed.items() if good]
    ran = _live_verdict(decider, live, live_digest, agreed)
    return _replayed(decider, start, folded, seconds, ran, kept)


def _live_verdict(
    decider: Decider[Any, Any], live: Status | None, replayed: str | None, agreed: list[int]
) -> Verdict:
    if live is None:
        return Verdict("live", None, "nobody answers: it does not run")
    if replayed is None:
        return Verdict("live", None, f"it is at {live.sequence}, past the moment asked for")
    return live_verdict(decider.stream, live.sequence, live.digest, replayed, agreed)


async def _live(log: JetStreamLog, service: str) -> Status | None:
    """What the running service says of itself; None where none answers."""
    try:
        subject = ask_subject(CLUSTER, ASKER, service, "status")
        message = await log.nc.request(subject, b"", timeout=ASK_S)
    except (NatsError, TimeoutError):
        return None
    reply = Reply.model_validate_json(message.data)
    return Status.model_validate(reply.data) if reply.ok else None


WORDS = {True: "ok", False: "DIFFERS", None: "not compared"}


def shown(found: Replayed) -> str:
    """The whole answer on one screen."""
    since = f"a snapshot at {found.start:,}" if found.start else "zero"
    head = (
        f"{found.service}: {found.events:,} events from {since} in {found.seconds:.2f} s "
        f"({found.events_per_s:,}/s), at most {found.peak_memory_mib:.0f} MiB"
    )
    at = f"{found.sequence:,}" + (f", {text.clock(found.time_ms)} UTC" if found.sequence else "")
    rows = [("sequence", at), ("digest", found.digest)]
    rows += [(one.what, f"{WORDS[one.same]}: {one.text}") for one in found.verdicts]
    return f"{head}\n{text.fields(rows)}"
