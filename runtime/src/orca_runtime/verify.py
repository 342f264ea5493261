"""Whether a state is what its log says: by digest, and where not, from which event on.

Three ways lead to a state: the fold from zero, a snapshot and the tail after it, and the service
that runs. They must meet (invariant I3).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from orca_runtime.decider import Decider
from orca_runtime.fold import Folded, fold_one
from orca_runtime.log import EventLog, Stored
from orca_runtime.past import messages
from orca_runtime.snapshot import UNREADABLE, FileSnapshots
from orca_runtime.tables import state_digest

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison found. ``same`` None: there was nothing to compare with."""

    what: str
    same: bool | None
    text: str


def same(decider: Decider[S, Any], one: Folded[S], other: Folded[S]) -> bool:
    """Whether two folds stand at the same place with the same state."""
    places = [(fold.sequence, fold.previous, fold.cursor, fold.time_ms) for fold in (one, other)]
    digests = {state_digest(decider.state_type, fold.state) for fold in (one, other)}
    return places[0] == places[1] and len(digests) == 1


async def first_difference(
    decider: Decider[S, Any], log: EventLog, one: Folded[S], other: Folded[S], end: int
) -> int:
    """The event after which two folds differ that are the same now and differ at ``end``.

    Halves the events in between; each is folded at most once more. Memory stays that of the states.
    """
    while one.sequence + 1 < end:
        middle = (one.sequence + end) // 2
        a, b = one, other
        async for stored in messages(log, decider.stream, one.sequence, middle):
            a, _ = fold_one(decider, a, stored)
            b, _ = fold_one(decider, b, stored)
        if same(decider, a, b):
            one, other = a, b
        else:
            end = middle
    return end


@dataclass
class SnapshotCheck(Generic[S]):
    """Follows a fold from zero and compares it with every snapshot that it passes.

    ``kept`` are the snapshots' digests by sequence; ``newest`` is folded on beside the other.
    """

    decider: Decider[S, Any]
    newest: Folded[S] | None
    kept: dict[int, str]
    passed: dict[int, bool] = field(default_factory=dict)
    tail: Folded[S] | None = None
    at_newest: Folded[S] | None = None
    """The fold from zero where the newest snapshot stands."""

    def follow(self, folded: Folded[S], stored: Stored) -> None:
        """Take in the fold from zero after one more event."""
        if self.tail is not None:
            self.tail, _ = fold_one(self.decider, self.tail, stored)
        if folded.sequence in self.kept:
            digest = state_digest(self.decider.state_type, folded.state)
            self.passed[folded.sequence] = digest == self.kept[folded.sequence]
        if self.newest is not None and folded.sequence == self.newest.sequence:
            self.tail, self.at_newest = self.newest, folded
            self.passed[folded.sequence] = same(self.decider, folded, self.newest)

    async def verdict(self, log: EventLog, folded: Folded[S]) -> Verdict:
        """Compare at the end; where they differ, find the event."""
        if self.newest is None or self.tail is None or self.at_newest is None:
            return Verdict("snapshot", None, "none is kept that this release reads")
        at = self.newest.sequence
        if not self.passed[at]:
            agreed = max((s for s, good in self.passed.items() if good and s < at), default=0)
            text = f"parted at or before {self._place(at)}, and after {self._place(agreed)}"
            return Verdict("snapshot", False, text)
        if same(self.decider, folded, self.tail):
            tail = folded.sequence - at
            return Verdict("snapshot", True, f"{at:,} and a tail of {tail:,} events: the same")
        found = await first_difference(
            self.decider, log, self.at_newest, self.newest, folded.sequence
        )
        stored = await log.get(self.decider.stream, found)
        event = stored.subject if stored else "?"
        return Verdict("snapshot", False, f"parted after {self._place(found)} ({event})")

    def _place(self, sequence: int) -> str:
        return f"{self.decider.stream}#{sequence}"


async def snapshot_check(
    decider: Decider[S, Any], snapshots: FileSnapshots[S], end: int
) -> SnapshotCheck[S]:
    """Prepare to compare with what is kept up to ``end``; changes nothing there."""
    newest: Folded[S] | None = None
    kept: dict[int, str] = {}
    for path in snapshots.paths():
        header = _header(path)
        if header is None or header["sequence"] > end:
            continue
        kept[header["sequence"]] = header["digest"]
        if newest is None:
            newest = await _read(snapshots, path)
    return SnapshotCheck(decider, newest, kept)


def _header(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            found: dict[str, Any] = json.loads(file.readline())
            return found if {"sequence", "digest"} <= found.keys() else None
    except UNREADABLE:
        return None


async def _read(snapshots: FileSnapshots[S], path: Path) -> Folded[S] | None:
    try:
        return await snapshots.read(path)
    except UNREADABLE:
        return None


def live_verdict(
    stream: str, sequence: int, live: str, replayed: str, agreed: Sequence[int]
) -> Verdict:
    """Compare the digest that a running service gives with that of the fold at its sequence."""
    if live == replayed:
        return Verdict("live", True, f"the same state at {stream}#{sequence}")
    since = max((one for one in agreed if one <= sequence), default=0)
    text = f"parted after {stream}#{since} and at or before #{sequence}: {live}, not {replayed}"
    return Verdict("live", False, text)
