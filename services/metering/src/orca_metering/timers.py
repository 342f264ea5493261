"""When metering acts without an input: at the end of the grace, and to forget."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orca_runtime.recorded import Due, Recorded
from orca_schemas.events.common import EndNoted, ForgetNoted, Noted
from orca_schemas.events.metering import UsageSettled

from orca_metering.state import DAY_MS, State

FINAL_GRACE_MS = 15 * 60 * 1000
"""How long a released run waits for promised records: several of a node's spool retries."""

REMEMBERED_MS = 36 * DAY_MS
"""A day longer than a record may be late, so that a repeat is always known as one."""

GRACE = "grace"
FORGET = "forget"


def timers(state: State, entity: str) -> tuple[Due, ...]:
    """The one timer of a run that is released or final."""
    run = state.runs.get(UUID(entity))
    if run is None or run.released_at_ms is None or run.mark is None:
        return ()
    if run.final_at_ms is None:
        return (Due(run.released_at_ms + FINAL_GRACE_MS, entity, GRACE, run.mark),)
    return (Due(run.final_at_ms + REMEMBERED_MS, entity, FORGET, run.mark),)


def entities(state: State) -> Iterable[str]:
    """Every run, as timers name it."""
    return (str(run_id) for run_id in state.runs)


def touched(event: Recorded) -> Iterable[str]:
    """The run whose timer an own event may have changed."""
    match event.data:
        case (
            UsageSettled(run_id=run_id)
            | Noted(fact=EndNoted(run_id=run_id) | ForgetNoted(run_id=run_id))
        ):
            return (str(run_id),)
        case _:
            return ()
