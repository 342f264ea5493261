"""Which record numbers of one meter were accepted: a high-water mark and what came ahead of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

MAX_GAPS = 64
"""Open gaps kept per meter. Probes send in order, so a gap is a lost message, not a habit; more
gaps than this mean a broken probe, and its records go to quarantine instead of into the state."""


class Range(NamedTuple):
    """Numbers ``first`` to ``last``, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every number below ``next``, and those in ``ahead`` (disjoint, ascending, not touching)."""

    next: int = 1
    ahead: tuple[Range, ...] = ()

    def __contains__(self, number: int) -> bool:
        if number < self.next:
            return True
        at = self._at(number)
        return at > 0 and number <= self.ahead[at - 1].last

    def add(self, number: int) -> Numbers:
        """Return the numbers with ``number``, which must not be among them, added."""
        at = self._at(number)
        before, after = self.ahead[:at], self.ahead[at:]
        joined = Range(number, number)
        if before and before[-1].last == number - 1:
            joined, before = Range(before[-1].first, number), before[:-1]
        if after and after[0].first == number + 1:
            joined, after = Range(joined.first, after[0].last), after[1:]
        if joined.first == self.next:
            return Numbers(joined.last + 1, after)
        return Numbers(self.next, (*before, joined, *after))

    def complete_to(self, last: int) -> bool:
        """Whether 1 to ``last`` are all accepted."""
        return self.next > last

    def missing(self, last: int) -> list[Range]:
        """The ranges of 1 to ``last`` that were not accepted, ascending."""
        found, start = [], self.next
        for have in self.ahead:
            if have.first > last:
                break
            found.append(Range(start, have.first - 1))
            start = have.last + 1
        return [*found, Range(start, last)] if start <= last else found

    def _at(self, number: int) -> int:
        return bisect_right(self.ahead, number, key=lambda have: have.first)
