"""Timers of a state, kept as a heap that follows the fold. The state alone says what is due."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

from orca_runtime.decider import Decider
from orca_runtime.recorded import Due, Recorded

S = TypeVar("S")


class Timers(Generic[S]):
    """The timers of one decider. Stale heap entries are dropped when they surface."""

    def __init__(self, decider: Decider[S, Any]) -> None:
        self._decider = decider
        self._by_entity: dict[str, frozenset[Due]] = {}
        self._heap: list[tuple[int, str, str, Due]] = []

    def reset(self, state: S) -> None:
        """Compute all timers from a state."""
        self._by_entity, self._heap = {}, []
        for entity in self._decider.entities(state):
            self._refresh(state, entity)

    def follow(self, state: S, event: Recorded) -> None:
        """Bring the timers up to a state that one more event led to."""
        for entity in self._decider.touched(event):
            self._refresh(state, entity)

    def _refresh(self, state: S, entity: str) -> None:
        now = frozenset(self._decider.timers(state, entity))
        before = self._by_entity.pop(entity, frozenset())
        if now:
            self._by_entity[entity] = now
        for due in now - before:
            heapq.heappush(self._heap, (due.at_ms, due.entity, due.kind, due))

    def next_at_ms(self) -> int | None:
        """When the next timer falls due; None without timers."""
        while self._heap and not self._live(self._heap[0][3]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, limit: int) -> list[Due]:
        """Up to ``limit`` timers due at ``now_ms``, earliest first. They stay until decided."""
        found: list[Due] = []
        kept = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < limit:
            entry = heapq.heappop(self._heap)
            if self._live(entry[3]):
                found.append(entry[3])
                kept.append(entry)
        for entry in kept:
            heapq.heappush(self._heap, entry)
        return found

    def _live(self, due: Due) -> bool:
        return due in self._by_entity.get(due.entity, frozenset())
