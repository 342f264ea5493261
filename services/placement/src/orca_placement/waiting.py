"""The queue: waiting runs, grouped by request, each group in order.

Runs with equal requests fit or fail together, so a pass asks once per group, not once per run.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

from immutables import Map
from orca_schemas.manifest import PRIORITY_RANK, Priority

from orca_placement.request import Request


class Ticket(NamedTuple):
    """A place in the queue. Tickets sort as the queue does: urgent first, then by ``order``.

    ``order`` is the sequence of the own event that first knew the run: a retry keeps its place.
    """

    rank: int
    order: int
    run: str


Waiting = Map[Request, tuple[Ticket, ...]]


def ticket_of(priority: Priority, order: int, run: str) -> Ticket:
    """Return the run's place."""
    return Ticket(-PRIORITY_RANK[priority], order, run)


def entered(waiting: Waiting, request: Request, ticket: Ticket) -> Waiting:
    """Return the queue with the ticket in it."""
    group = list(waiting.get(request, ()))
    insort(group, ticket)
    return waiting.set(request, tuple(group))


def left(waiting: Waiting, request: Request, ticket: Ticket) -> Waiting:
    """Return the queue without the ticket; a group without tickets is no group."""
    group = waiting[request]
    at = bisect_left(group, ticket)
    assert group[at] == ticket
    rest = group[:at] + group[at + 1 :]
    return waiting.set(request, rest) if rest else waiting.delete(request)


def in_order(waiting: Waiting) -> list[Ticket]:
    """Return every ticket, first in the queue first."""
    return sorted(chain.from_iterable(waiting.values()))


def first_of(waiting: Waiting, count: int) -> list[Ticket]:
    """Return the first ``count`` tickets of the queue."""
    return nsmallest(count, chain.from_iterable(group[:count] for group in waiting.values()))
