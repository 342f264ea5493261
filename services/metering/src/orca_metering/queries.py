"""Answers from committed state. Who asks from a namespace sees that namespace only."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.asks import Ask
from orca_runtime.runs import newest
from orca_schemas.asks import RunQuery, UsageRow, Usages, UsedRow

from orca_metering.settle import missing
from orca_metering.state import Run, State


def usage(state: State, query: RunQuery, ask: Ask) -> Usages:
    """The totals of the runs asked for that metering has not forgotten."""
    found = newest(state.runs, query, ask)
    return Usages(runs=tuple(_row(run_id, run) for run_id, run in found))


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
