"""Submissions and cancellations: what a user may ask for and what becomes of it."""

from __future__ import annotations

from orca_runtime.recorded import Decided
from orca_schemas.events.admission import Rejection, TaskQueued, TaskRejected, TaskStopRequested
from orca_schemas.values import MAX_REASON_CHARS, Outcome, Reason, ReasonCode

from orca_admission.answers import about_run, about_task, refused, rejected
from orca_admission.commands import Cancel, Submit
from orca_admission.ledger import Asked, Balances, asked_of, fits
from orca_admission.reasons import blockers, never_fits, reason
from orca_admission.reserve import reservation
from orca_admission.state import Run, State

_YOUR_TURN_COMES = "earlier tasks of the namespace are being let in; this one is tried after them"


def submit(state: State, command: Submit) -> list[Decided]:
    """Reject what can never run, reserve what fits, queue the rest."""
    subject = command.origin.subject
    known = state.run_of(subject.id)
    if known is not None:
        same = known.namespace == subject.namespace
        return refused(command.origin, _repeated(known, same), known.run_id if same else None)
    asked = asked_of(command.spec)
    reasons = _why_never(state, command, asked)
    if reasons:
        return rejected(subject, command.run_id, reasons, command.spec.name)
    return [_reserve_or_queue(state, command, asked)]


def _repeated(known: Run, same_namespace: bool) -> Reason:
    # Another namespace's run is nobody's business here.
    whose = f"by run {known.run_id} ({known.phase})" if same_namespace else "in another namespace"
    return reason(
        ReasonCode.REPEATED, f"this task id is taken {whose}; submit under a new id", "id"
    )


def _why_never(state: State, command: Submit, asked: Asked) -> tuple[Reason, ...]:
    named, namespace = command.spec.namespace, command.origin.subject.namespace
    account = state.account(namespace)
    if named != namespace:
        message = f"the manifest says {named}, the subject {namespace}; make them agree"
        return (reason(ReasonCode.MALFORMED, message, "metadata.namespace"),)
    if account.admins is None and not account.has_quota:
        message = f"namespace {named} is not known; an operator makes it with orca quota set"
        return (reason(ReasonCode.UNKNOWN_NAMESPACE, message, "metadata.namespace"),)
    if not account.has_quota:
        message = f"namespace {named} has no quota; an operator gives it one with orca quota set"
        return (reason(ReasonCode.NO_QUOTA, message, "metadata.namespace"),)
    return never_fits(named, account.balances, asked)


def _reserve_or_queue(state: State, command: Submit, asked: Asked) -> Decided:
    spec, subject, run_id = command.spec, command.origin.subject, command.run_id
    balances = state.account(spec.namespace).balances
    # Nobody waits who fits, so who fits overtakes nobody with an equal request; except while a
    # look at the queue is unfinished.
    if state.queue(spec.namespace).rescan is None and fits(balances, asked):
        reserved = reservation(run_id, spec, asked, balances)
        return about_task(subject.namespace, subject.id, run_id, reserved)
    queued = TaskQueued(
        run_id=run_id, spec=spec, blockers=_blockers(spec.namespace, balances, asked)
    )
    return about_task(subject.namespace, subject.id, run_id, queued)


def _blockers(namespace: str, balances: Balances, asked: Asked) -> tuple[Reason, ...]:
    found = blockers(namespace, balances, asked)
    return found or (reason(ReasonCode.PRIORITY, _YOUR_TURN_COMES),)


def cancel(state: State, command: Cancel) -> list[Decided]:
    """End a waiting task, ask for the stop of a reserved one; for its owner and the admins."""
    subject, party = command.origin.subject, command.origin.subject.party
    run = state.run_of(subject.id)
    if run is None or run.namespace != subject.namespace:
        message = f"no task {subject.id} in namespace {subject.namespace}; see orca get tasks"
        return refused(command.origin, reason(ReasonCode.NOT_FOUND, message))
    why_not = _why_not_cancel(state, run, party)
    if why_not is not None:
        return refused(command.origin, why_not, run.run_id)
    message = f"cancelled by {party}: {command.reason}".removesuffix(": ")[:MAX_REASON_CHARS]
    return [about_run(run, _cancelled(run, message))]


def _why_not_cancel(state: State, run: Run, party: str) -> Reason | None:
    if run.ended:
        return reason(ReasonCode.ENDED, f"the task has ended ({run.outcome or 'see placement'})")
    if party != run.user and party not in (state.account(run.namespace).admins or ()):
        message = f"the task belongs to {run.user}; its owner and the namespace's admins may cancel"
        return reason(ReasonCode.NOT_ALLOWED, message)
    if run.stopping:
        return reason(ReasonCode.REPEATED, f"its stop was already requested ({run.outcome})")
    return None


def _cancelled(run: Run, message: str) -> TaskRejected | TaskStopRequested:
    if run.live:
        return TaskStopRequested(run_id=run.run_id, outcome=Outcome.CANCELLED, message=message)
    return TaskRejected(
        run_id=run.run_id,
        outcome=Rejection.CANCELLED,
        reasons=(reason(ReasonCode.CANCELLED, message),),
    )
