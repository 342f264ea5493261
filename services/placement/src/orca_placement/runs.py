"""What admission wants of runs: begin them, let them spend more, end them."""

from __future__ import annotations

from orca_runtime.recorded import Recorded
from orca_schemas.events.admission import LeaseExtended, QuotaReserved, TaskStopRequested
from orca_schemas.events.common import Noted, RunNoted
from orca_schemas.events.placement import LeaseUpdated
from orca_schemas.model import EventData
from orca_schemas.values import MAX_REASON_CHARS, Outcome, Reason, ReasonCode

from orca_placement.attempts import order_stop, release_unplaced
from orca_placement.cluster import Mark
from orca_placement.draft import Draft, nothing
from orca_placement.feasible import unfitting
from orca_placement.schedule import defer, place, reasons_of
from orca_placement.state import Phase, Run, run_request

BEHIND = Reason(
    code=ReasonCode.PRIORITY, message="others came first; the look at the queue goes on"
)


def reserve(draft: Draft, event: Recorded, reserved: QuotaReserved) -> EventData | None:
    """Place a new run, or let it wait with the reasons. Runs that wait are not passed over
    while a look at the queue is owed."""
    if str(reserved.run_id) in draft.state.runs:
        return nothing("repeated: the run is known")
    run = _new_run(draft, event, reserved)
    owed = draft.state.rescan is not None
    if owed or not place(draft, run):
        fact = RunNoted(run_id=run.run_id, spec=run.spec, granted_tokens=reserved.granted_tokens)
        draft.say_of_run(run, Noted(about="the run waits for a place", fact=fact))
        defer(draft, run, (BEHIND,) if owed else reasons_of(draft.state, run_request(run)))
    return None


def _new_run(draft: Draft, event: Recorded, reserved: QuotaReserved) -> Run:
    """The run as it is before any event of ours; the fold gives it its place in the queue."""
    return Run(
        run_id=reserved.run_id,
        namespace=event.subject.namespace,
        task_id=event.subject.id,
        spec=reserved.spec,
        order=0,
        phase=Phase.WAITING,
        since=Mark(draft.now_ms, event.position),
        granted_tokens=reserved.granted_tokens,
    )


def extend(draft: Draft, extended: LeaseExtended) -> EventData | None:
    """Pass a larger grant on to the attempt's probe, or keep it for the next attempt."""
    run = draft.state.runs.get(str(extended.run_id))
    if run is None or run.phase is Phase.ENDED:
        return nothing("the run is over or unknown")
    granted = extended.granted_tokens
    if run.granted_tokens is None or granted <= run.granted_tokens:
        return nothing("the run may spend as much already")
    if run.attempt is None:
        fact = RunNoted(run_id=run.run_id, spec=run.spec, granted_tokens=granted)
        return Noted(about="the grant is for the next attempt", fact=fact)
    update = LeaseUpdated(
        run_id=run.run_id,
        attempt=run.attempt.number,
        fence=run.attempt.fence,
        granted_tokens=granted,
    )
    draft.say_of_run(run, update, party=run.attempt.node)
    return None


def stop(draft: Draft, requested: TaskStopRequested) -> EventData | None:
    """End a run: at once where nothing runs, by an order where something does."""
    run = draft.state.runs.get(str(requested.run_id))
    if run is None or run.phase is Phase.ENDED:
        return nothing("the run is over or unknown")
    return _stop(draft, run, requested.outcome, requested.message[:MAX_REASON_CHARS])


def _stop(draft: Draft, run: Run, outcome: Outcome, message: str) -> EventData | None:
    if run.attempt is None:
        release_unplaced(draft, run, outcome)
    elif run.attempt.stop is None:
        order_stop(draft, run, outcome, message)
    else:
        return nothing("repeated: the stop is ordered")
    return None


def deadline(draft: Draft, run: Run) -> EventData | None:
    """End a run whose time since its first start is up."""
    message = f"activeDeadline of {run.spec.active_deadline_ms} ms since the first start is over"
    return _stop(draft, run, Outcome.DEADLINE_EXCEEDED, message)


def retry(draft: Draft, run: Run) -> None:
    """Try again after the backoff, or wait in the queue with the reasons."""
    if draft.state.rescan is not None:
        defer(draft, run, (BEHIND,))
    elif not place(draft, run):
        defer(draft, run, reasons_of(draft.state, run_request(run)))


def never_fits(draft: Draft, run: Run) -> None:
    """The grace is over: end a run that still no node could ever take."""
    request = run_request(run)
    reasons = unfitting(list(draft.state.nodes.values()), request)
    if reasons:
        release_unplaced(draft, run, Outcome.NEVER_STARTED, reasons)
    else:
        defer(draft, run, reasons_of(draft.state, request))
