"""Answers from committed state. Who asks from a namespace sees that namespace only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Protocol
from uuid import UUID

from orca_schemas.asks import MAX_ROWS
from orca_schemas.identifiers import CLUSTER, id_time_ms
from orca_schemas.units import UnixMs
from orca_schemas.values import Meter, MissingRange
from pydantic import BaseModel, ConfigDict, Field

from orca_metering.settle import missing
from orca_metering.state import Run, State


class Asker(Protocol):
    """Who asks: all that these answers need of an ask."""

    @property
    def namespace(self) -> str:
        """The namespace asked from; ``_cluster`` sees everything."""
        ...


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UsageQuery(_Body):
    """Which runs: one, those of a task, those of a namespace, or all; newest first."""

    run_id: UUID | None = None
    task_id: UUID | None = None
    namespace: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class UsedRow(_Body):
    """One meter of a run: ``used`` in tokens, or in milli-GPU (milli-core) milliseconds."""

    meter: Meter
    model: str
    used: int


class UsageRow(_Body):
    """What one run used so far. ``waiting_for`` is promised and has not come."""

    run_id: UUID
    task_id: UUID
    namespace: str
    used: tuple[UsedRow, ...]
    used_tokens: int
    released_at_ms: UnixMs | None
    final: bool
    waiting_for: tuple[MissingRange, ...]


class Usages(_Body):
    """The answer of ``metering.usage``."""

    runs: tuple[UsageRow, ...]


def usage(state: State, query: BaseModel | None, ask: Asker) -> Usages:
    """The totals of the runs asked for that metering has not forgotten."""
    wanted = query if isinstance(query, UsageQuery) else UsageQuery()
    found = nlargest(
        wanted.limit, _matching(state, wanted, ask), key=lambda one: (id_time_ms(one[0]), one[0])
    )
    return Usages(runs=tuple(_row(run_id, run) for run_id, run in found))


def _matching(state: State, query: UsageQuery, ask: Asker) -> Iterator[tuple[UUID, Run]]:
    task_id = None if query.task_id is None else str(query.task_id)
    for run_id, run in _among(state, query.run_id):
        if (
            ask.namespace in (CLUSTER, run.namespace)
            and query.namespace in (None, run.namespace)
            and task_id in (None, run.task_id)
        ):
            yield run_id, run


def _among(state: State, run_id: UUID | None) -> Iterable[tuple[UUID, Run]]:
    if run_id is None:
        return state.runs.items()
    run = state.runs.get(run_id)
    return () if run is None else ((run_id, run),)


def _row(run_id: UUID, run: Run) -> UsageRow:
    return UsageRow(
        run_id=run_id,
        task_id=UUID(run.task_id),
        namespace=run.namespace,
        used=tuple(
            UsedRow(meter=key.meter, model=key.model, used=used)
            for key, used in sorted(run.used.items())
        ),
        used_tokens=run.used_tokens,
        released_at_ms=run.released_at_ms,
        final=run.final_at_ms is not None,
        waiting_for=missing(run),
    )
