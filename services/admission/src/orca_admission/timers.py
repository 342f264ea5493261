"""What falls due: an unfinished look at a queue, at once; a finished run, to be forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orca_runtime.recorded import Due, Recorded
from orca_schemas.events.admission import QuotaReleased, TaskRejected
from orca_schemas.events.common import ForgetNoted, Noted

from orca_admission.react import FORGET, QUEUE_PREFIX, RESCAN
from orca_admission.state import REMEMBER_MS, State


def timers(state: State, entity: str) -> tuple[Due, ...]:
    """The timers of a queue (``queue/<namespace>``) or a run (its id)."""
    if entity.startswith(QUEUE_PREFIX):
        mark = state.queue(entity.removeprefix(QUEUE_PREFIX)).rescan
        return () if mark is None else (Due(mark.at_ms, entity, RESCAN, mark.origin),)
    run = state.runs.get(UUID(entity))
    if run is None or run.finished is None:
        return ()
    at_ms = run.finished.at_ms + REMEMBER_MS
    return (Due(at_ms, entity, FORGET, run.finished.origin),)


def entities(state: State) -> Iterable[str]:
    """Every queue and run that may have a timer."""
    yield from (QUEUE_PREFIX + namespace for namespace in state.queues)
    yield from (str(run_id) for run_id, run in state.runs.items() if run.finished is not None)


def touched(event: Recorded) -> Iterable[str]:
    """The queue and the run whose timers the event may have changed."""
    yield QUEUE_PREFIX + event.subject.namespace
    match event.data:
        case QuotaReleased(run_id=run_id) | TaskRejected(run_id=run_id):
            yield str(run_id)
        case Noted(fact=ForgetNoted(run_id=run_id)):
            yield str(run_id)
