"""When billing acts without an input: to forget a run."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orca_runtime.recorded import Due, Recorded
from orca_schemas.events.billing import Charged
from orca_schemas.events.common import ForgetNoted, Noted

from orca_billing.state import State

REMEMBERED_MS = 36 * 24 * 60 * 60 * 1000
"""From the last final charge on; metering lets late records in for a day less after its final."""

FORGET = "forget"


def timers(state: State, entity: str) -> tuple[Due, ...]:
    """The one timer of a final run."""
    run = state.runs.get(UUID(entity))
    if run is None or run.final_at_ms is None or run.mark is None:
        return ()
    return (Due(run.final_at_ms + REMEMBERED_MS, entity, FORGET, run.mark),)


def entities(state: State) -> Iterable[str]:
    """Every run, as timers name it."""
    return (str(run_id) for run_id in state.runs)


def touched(event: Recorded) -> Iterable[str]:
    """The run whose timer an own event may have changed."""
    match event.data:
        case Charged(run_id=run_id) | Noted(fact=ForgetNoted(run_id=run_id)):
            return (str(run_id),)
        case _:
            return ()
