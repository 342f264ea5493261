"""Timers of a state, kept as a heap that follows the fold. The state alone says what is due."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

from orca_schemas.positions import Position

from orca_runtime.decider import Decider
from orca_runtime.recorded import Due, Recorded

S = TypeVar("S")

_Entry = tuple[int, str, str, Position]
"""A Due by time, then by what orders those of one time."""


class Timers(Generic[S]):
    """The timers of one decider. Stale heap entries are dropped when they surface."""

    def __init__(self, decider: Decider[S, Any]) -> None:
        self._decider = decider
        self._by_entity: dict[str, frozenset[Due]] = {}
        self._heap: list[_Entry] = []
        self._set_aside: set[Due] = set()

    def reset(self, state: S) -> None:
        """Compute all timers from a state."""
        self._by_entity, self._heap, self._set_aside = {}, [], set()
        for entity in self._decider.entities(state):
            self.refresh(state, entity)

    def follow(self, state: S, event: Recorded) -> None:
        """Bring the timers up to a state that one more event led to."""
        for entity in self._decider.touched(event):
            self.refresh(state, entity)

    def refresh(self, state: S, entity: str) -> None:
        """Compute the timers of one entity."""
        now = frozenset(self._decider.timers(state, entity))
        before = self._by_entity.pop(entity, frozenset())
        if now:
            self._by_entity[entity] = now
        for due in now - before:
            heapq.heappush(self._heap, (due.at_ms, due.entity, due.kind, due.origin))

    def set_aside(self, due: Due) -> None:
        """Let a timer that cannot be answered rest until the next reset.

        The state still has it, so it would fall due again at once, and for ever.
        """
        self._set_aside.add(due)

    def next_at_ms(self) -> int | None:
        """When the next timer falls due; None without timers."""
        while self._heap and not self._live(_due(self._heap[0])):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, limit: int) -> list[Due]:
        """Up to ``limit`` timers due at ``now_ms``, earliest first. They stay until decided."""
        found: dict[Due, _Entry] = {}
        while self._heap and self._heap[0][0] <= now_ms and len(found) < limit:
            entry = heapq.heappop(self._heap)
            if self._live(_due(entry)):
                found[_due(entry)] = entry
        for entry in found.values():
            heapq.heappush(self._heap, entry)
        return list(found)

    def _live(self, due: Due) -> bool:
        return due in self._by_entity.get(due.entity, ()) and due not in self._set_aside


def _due(entry: _Entry) -> Due:
    at_ms, entity, kind, origin = entry
    return Due(at_ms, entity, kind, origin)
