"""How attempts begin to run, end, and are repeated."""

from __future__ import annotations

from dataclasses import replace

from orca_runtime.recorded import Recorded
from orca_schemas.events.common import Noted, StartNoted
from orca_schemas.events.node import OrderRefused, TaskFinished, TaskStarted
from orca_schemas.events.placement import AttemptEnded, Released, StopOrdered
from orca_schemas.limits import STOP_GRACE_MS
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.model import EventData
from orca_schemas.values import MeterEnd, Outcome, Reason

from orca_placement.draft import Draft, nothing
from orca_placement.evolve import RETRIED
from orca_placement.feasible import fits_empty
from orca_placement.limits import BACKOFF_FIRST_MS, BACKOFF_MAX_MS
from orca_placement.schedule import Scope, schedule
from orca_placement.state import Attempt, Phase, Run, State, run_request

Report = TaskStarted | TaskFinished | OrderRefused


def answer_report(draft: Draft, event: Recorded, report: Report) -> EventData | None:
    """Answer what a node says of an attempt, if it is the live one and the node's own.

    Returns a note about the input where no run's event says it all.
    """
    run = draft.state.runs.get(str(report.run_id))
    attempt = run.attempt if run else None
    if run is None or attempt is None or not _is_of(attempt, event, report):
        return nothing("stale: the attempt is over, or another node's")
    match report:
        case TaskStarted():
            return _started(run, attempt, report)
        case TaskFinished():
            _finished(draft, run, attempt, report)
        case OrderRefused():
            _refused(draft, run, attempt, report.reason)
    return None


def _is_of(attempt: Attempt, event: Recorded, report: Report) -> bool:
    said = (event.subject.party, report.fence, report.attempt)
    return said == (attempt.node, attempt.fence, attempt.number)


def _started(run: Run, attempt: Attempt, report: TaskStarted) -> EventData:
    if attempt.started_ms is not None:
        return nothing("repeated: the attempt is known to run")
    fact = StartNoted(run_id=run.run_id, attempt=attempt.number, started_at_ms=report.started_at_ms)
    return Noted(about=f"{attempt.node} runs attempt {attempt.number}", fact=fact)


def _finished(draft: Draft, run: Run, attempt: Attempt, report: TaskFinished) -> None:
    """A container's own exit wins over a requested end; a requested end over a retry."""
    wait_ms = _wait_ms(run, report.outcome)
    if wait_ms is not None and attempt.stop is None:
        retry_at_ms = draft.now_ms + wait_ms
        _end_attempt(draft, run, report.outcome, retry_at_ms, report.exit_code, report.used)
    else:
        _release_attempt(draft, run, report.outcome, report.exit_code, report.used)
    schedule(draft, Scope(freed=(attempt.node,)))


def _wait_ms(run: Run, outcome: Outcome) -> int | None:
    """How long until the run is tried again; None: it is over.

    A node that comes back before its loss is waited out says itself that its watchdog ended the
    attempt. That is a loss and no failure, but one that a broken node could repeat at once.
    """
    if outcome in RETRIED:
        failures = run.failures + 1
        return backoff_ms(failures) if failures <= run.spec.backoff_limit else None
    if outcome is Outcome.NODE_LOST and run.spec.on_node_loss is OnNodeLoss.REQUEUE:
        return backoff_ms(run.attempts)
    return None


def backoff_ms(failures: int) -> int:
    """The wait before the attempt after the ``failures``-th failure: 1 s doubled, to 5 minutes."""
    return int(min(BACKOFF_FIRST_MS << min(failures - 1, 32), BACKOFF_MAX_MS))


def _refused(draft: Draft, run: Run, attempt: Attempt, reason: Reason) -> None:
    """The attempt has not begun: try the other nodes, each once."""
    if attempt.stop is not None:
        _release_attempt(draft, run, attempt.stop.outcome)
    elif _others(draft.state, run, attempt.node):
        _end_attempt(draft, run, Outcome.NEVER_STARTED, draft.now_ms)
    else:
        _release_attempt(draft, run, Outcome.NEVER_STARTED, reasons=(reason,))
    schedule(draft, Scope(freed=(attempt.node,), fresh=_waiting_again(draft, run)))


def _others(state: State, run: Run, refusing: str) -> bool:
    request = run_request(run)
    tried = {*request.excluded, refusing}
    return any(
        name not in tried and fits_empty(node, request) for name, node in state.nodes.items()
    )


def end_lost(draft: Draft, run: Run) -> None:
    """End an attempt whose node is gone: a requested end, or a retry, or node_lost for good.

    A node loss does not count against backoffLimit.
    """
    assert run.attempt is not None
    if run.attempt.stop is not None:
        _release_attempt(draft, run, run.attempt.stop.outcome)
    elif run.spec.on_node_loss is OnNodeLoss.REQUEUE:
        _end_attempt(draft, run, Outcome.NODE_LOST, draft.now_ms)
    else:
        _release_attempt(draft, run, Outcome.NODE_LOST)


def end_all_lost(draft: Draft, keys: tuple[str, ...], scope: Scope) -> None:
    """End the lost attempts of these runs while there is room, then look at the queue.

    A timer brings the rest back.
    """
    ended = []
    for key in keys:
        if draft.full:
            break
        end_lost(draft, draft.state.runs[key])
        ended.append(key)
    again = [key for run in ended for key in _waiting_again(draft, draft.state.runs[run])]
    schedule(draft, replace(scope, fresh=tuple(again)))


def _waiting_again(draft: Draft, run: Run) -> tuple[str, ...]:
    return (run.key,) if draft.state.runs[run.key].phase is Phase.WAITING else ()


def order_stop(draft: Draft, run: Run, outcome: Outcome, message: str) -> None:
    """Order the node to end the live attempt."""
    attempt = run.attempt
    assert attempt is not None
    order = StopOrdered(
        run_id=run.run_id,
        attempt=attempt.number,
        fence=attempt.fence,
        outcome=outcome,
        message=message,
        grace_ms=STOP_GRACE_MS,
    )
    draft.say_of_run(run, order, party=attempt.node)


def release_unplaced(
    draft: Draft, run: Run, outcome: Outcome, reasons: tuple[Reason, ...] = ()
) -> None:
    """End a run that has no live attempt."""
    released = Released(
        run_id=run.run_id, outcome=outcome, exit_code=None, attempt=0, node=None, used=(),
        reasons=reasons,
    )  # fmt: skip
    draft.say_of_run(run, released)


def _end_attempt(
    draft: Draft,
    run: Run,
    outcome: Outcome,
    retry_at_ms: int,
    exit_code: int | None = None,
    used: tuple[MeterEnd, ...] = (),
) -> None:
    assert run.attempt is not None
    ended = AttemptEnded(
        run_id=run.run_id,
        attempt=run.attempt.number,
        node=run.attempt.node,
        outcome=outcome,
        exit_code=exit_code,
        used=used,
        retry_at_ms=retry_at_ms,
    )
    draft.say_of_run(run, ended)


def _release_attempt(
    draft: Draft,
    run: Run,
    outcome: Outcome,
    exit_code: int | None = None,
    used: tuple[MeterEnd, ...] = (),
    reasons: tuple[Reason, ...] = (),
) -> None:
    assert run.attempt is not None
    released = Released(
        run_id=run.run_id,
        outcome=outcome,
        exit_code=exit_code,
        attempt=run.attempt.number,
        node=run.attempt.node,
        used=used,
        reasons=reasons,
    )
    draft.say_of_run(run, released)
