"""What to do about a command. The only place, with the modules it calls, that refuses."""

from __future__ import annotations

from typing import assert_never

from orca_runtime.recorded import Decided, Unreadable
from orca_schemas.events.common import (
    ForgetNoted,
    InputDeadLettered,
    LimitNoted,
    NamespaceNoted,
    NothingNoted,
)
from orca_schemas.gpu_types import MEMORY_MIB_BY_TYPE
from orca_schemas.identifiers import run_id
from orca_schemas.subjects import Kind, Role, Subject
from orca_schemas.values import MAX_REASON_CHARS, Fault, Reason, ReasonCode

from orca_admission import commands as c
from orca_admission.answers import (
    about_account,
    about_run,
    about_service,
    noted,
    refused,
    rejected,
)
from orca_admission.consume import (
    extend_lease,
    note_attempt,
    note_end,
    release_concurrent,
    settle_usage,
)
from orca_admission.ledger import limit, period_of
from orca_admission.reasons import reason
from orca_admission.reserve import reserve_waiting
from orca_admission.state import State
from orca_admission.submit import cancel, submit


def decide(state: State, command: c.Command, _now_ms: int) -> list[Decided]:  # noqa: PLR0911, PLR0912
    """Answer a command with 1 to 100 events. No rule of admission depends on the time."""
    match command:
        case c.Submit():
            return submit(state, command)
        case c.Settle():
            return settle_usage(state, command)
        case c.Release():
            return release_concurrent(state, command)
        case c.NoteAttempt():
            return note_attempt(state, command)
        case c.NoteEnd():
            return note_end(state, command)
        case c.ExtendLease():
            return extend_lease(state, command)
        case c.Cancel():
            return cancel(state, command)
        case c.KnowNamespace():
            return _know_namespace(command)
        case c.SetLimit():
            return _set_limit(state, command)
        case c.Rescan():
            return _rescan(state, command)
        case c.Forget():
            return _forget(state, command)
        case c.AnswerUnreadable():
            return _answer_unreadable(state, command.message)
        case _:
            assert_never(command)


def _know_namespace(command: c.KnowNamespace) -> list[Decided]:
    subject = command.origin.subject
    foreign = _not_its_own_account(subject)
    if foreign is not None:
        return refused(command.origin, foreign)
    fact = NamespaceNoted(admins=command.admins)
    return [about_account(subject.namespace, noted("NamespaceSet", fact))]


def _set_limit(state: State, command: c.SetLimit) -> list[Decided]:
    namespace = command.origin.subject.namespace
    unsupported = _not_its_own_account(command.origin.subject) or _not_a_limit(command)
    if unsupported is not None:
        return refused(command.origin, unsupported)
    fact = LimitNoted(
        account=namespace,
        dimension=command.dimension,
        period=command.period,
        limit=command.limit,
    )
    events = [about_account(namespace, noted("QuotaSet", fact))]
    balances = limit(state.account(namespace).balances, command.dimension, command.limit)
    return events + reserve_waiting(state, namespace, balances, already=len(events))


def _not_its_own_account(subject: Subject) -> Reason | None:
    if subject.id == subject.namespace:
        return None
    message = f"supported is the namespace's own account; use id {subject.namespace}"
    return reason(ReasonCode.UNSUPPORTED, message, "subject.id")


def _not_a_limit(command: c.SetLimit) -> Reason | None:
    supported = period_of(command.dimension)
    if command.period is not supported:
        message = f"supported for {command.dimension} is the period {supported}"
        return reason(ReasonCode.UNSUPPORTED, message, "period")
    _, _, gpu_type = command.dimension.partition(":")
    if gpu_type and gpu_type not in MEMORY_MIB_BY_TYPE:
        # It would count nothing, and its author would believe in it.
        message = f"no GPU type {gpu_type}; supported are {', '.join(MEMORY_MIB_BY_TYPE)}"
        return reason(ReasonCode.UNSUPPORTED, message, "dimension")
    return None


def _rescan(state: State, command: c.Rescan) -> list[Decided]:
    namespace = command.namespace
    events = reserve_waiting(state, namespace, state.account(namespace).balances)
    # Nothing noted about an account says: its queue was looked through.
    done = about_account(namespace, noted(f"queue of {namespace}", NothingNoted()))
    return events or [done]


def _forget(state: State, command: c.Forget) -> list[Decided]:
    run = state.runs.get(command.run_id)
    if run is None:
        return [about_service(noted(f"run {command.run_id}", NothingNoted()))]
    return [about_run(run, noted("remembered long enough", ForgetNoted(run_id=run.run_id)))]


def _answer_unreadable(state: State, message: Unreadable) -> list[Decided]:
    subject = message.parsed_subject()
    if subject is None or subject.role not in (Role.CLIENT, Role.ADMIN):
        return [about_service(InputDeadLettered(fault=_fault(message)))]
    error = message.error
    why = reason(ReasonCode.MALFORMED, f"{error.field}: {error.value}: {error.remedy}", error.field)
    fresh = subject.kind is Kind.TASK and state.run_of(subject.id) is None
    if subject.event == "TaskSubmitted" and fresh:
        return rejected(subject, run_id(message.position, message.time_ms), (why,))
    return refused(c.Origin(message.position, subject), why)


def _fault(message: Unreadable) -> Fault:
    return Fault(
        position=str(message.position),
        subject=message.subject[:MAX_REASON_CHARS],
        error=str(message.error)[:MAX_REASON_CHARS],
        body_sha256=message.body_sha256,
    )
