"""Picking runs for an answer: who asks from a namespace sees that namespace only."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Protocol, TypeVar
from uuid import UUID

from immutables import Map
from orca_schemas.asks import RunQuery
from orca_schemas.identifiers import CLUSTER, id_time_ms

from orca_runtime.asks import Ask


class _Run(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def task_id(self) -> str: ...


R = TypeVar("R", bound=_Run)


def newest(runs: Map[UUID, R], query: RunQuery, ask: Ask) -> list[tuple[UUID, R]]:
    """The runs that match, newest first, at most ``query.limit`` of them."""
    found = (one for one in _among(runs, query.run_id) if _matches(one[1], query, ask))
    return nlargest(query.limit, found, key=lambda one: (id_time_ms(one[0]), one[0]))


def _among(runs: Map[UUID, R], run_id: UUID | None) -> Iterator[tuple[UUID, R]]:
    if run_id is None:
        yield from runs.items()
    elif run_id in runs:
        yield run_id, runs[run_id]


def _matches(run: _Run, query: RunQuery, ask: Ask) -> bool:
    return (
        ask.namespace in (CLUSTER, run.namespace)
        and query.namespace in (None, run.namespace)
        and (query.task_id is None or str(query.task_id) == run.task_id)
    )
