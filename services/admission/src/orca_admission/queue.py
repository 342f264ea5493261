"""Who waits in a namespace, in which order, and who fits now.

Tasks are tried by priority, then by submission. A task that does not fit holds nobody else up:
quota is best effort, first come first served. Tasks with equal requests stand in one group,
because equal requests fail equally: a look at the queue costs one try per group, plus one per
task let in, however many wait.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.positions import Position
from orca_schemas.units import MAX_AMOUNT

from orca_admission.ledger import Asked, Balances


class Place(NamedTuple):
    """A place in the queue; the smaller is served first."""

    rank: int
    """Minus the priority's rank."""
    number: int
    """The how-manieth submission of its namespace it was."""
    run_id: UUID


class Mark(NamedTuple):
    """When and by which own event something was set off."""

    at_ms: int
    origin: Position


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting tasks of a namespace, grouped by request, each group in order.

    ``rescan`` is set while a look at the queue that reached its bound is to be continued.
    """

    groups: Table[Asked, tuple[Place, ...]] = field(default_factory=Map)
    rescan: Mark | None = None


EMPTY = Queue()


class Scan(NamedTuple):
    """Who is let in, in order, and whether somebody more would fit."""

    chosen: tuple[Place, ...]
    more: bool


def insert(queue: Queue, asked: Asked, place: Place) -> Queue:
    """Let a task wait."""
    group = queue.groups.get(asked, ())
    at = bisect_left(group, place)
    return replace(queue, groups=queue.groups.set(asked, (*group[:at], place, *group[at:])))


def remove(queue: Queue, asked: Asked, place: Place) -> Queue:
    """Take a waiting task out."""
    group = queue.groups[asked]
    at = bisect_left(group, place)
    rest = group[:at] + group[at + 1 :]
    groups = queue.groups.set(asked, rest) if rest else queue.groups.delete(asked)
    return replace(queue, groups=groups)


def scan(queue: Queue, balances: Balances, room: int) -> Scan:
    """Choose those that fit one after the other, at most ``room`` of them."""
    # The scan only takes, so who does not fit at first never does.
    free = {name: balance.free for name, balance in balances.items()}
    heads = [(group[0], 0, asked) for asked, group in queue.groups.items() if _fits(free, asked)]
    heapify(heads)
    chosen: list[Place] = []
    while heads:
        place, index, asked = heappop(heads)
        if not _fits(free, asked):
            continue
        if len(chosen) == room:
            return Scan(tuple(chosen), more=True)
        chosen.append(place)
        free.update({name: free.get(name, MAX_AMOUNT) - amount for name, amount in asked})
        group = queue.groups[asked]
        if index + 1 < len(group):
            heappush(heads, (group[index + 1], index + 1, asked))
    return Scan(tuple(chosen), more=False)


def _fits(free: dict[str, int], asked: Asked) -> bool:
    """Like ledger.fits, on plain numbers: this is tried once per group on every release."""
    for name, amount in asked:  # noqa: SIM110 - half the time of all() with a generator
        if amount > free.get(name, MAX_AMOUNT):
            return False
    return True


def in_order(queue: Queue) -> list[Place]:
    """Every waiting task in the order in which they are tried."""
    return sorted(place for group in queue.groups.values() for place in group)
