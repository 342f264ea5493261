"""How admission's own events change what it knows. Total, and without a rule of its own."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from orca_runtime.recorded import Recorded
from orca_schemas.events import admission as e
from orca_schemas.events.common import (
    AttemptNoted,
    EndNoted,
    ForgetNoted,
    InputDeadLettered,
    LetterNoted,
    LimitNoted,
    NamespaceNoted,
    Noted,
    NothingNoted,
    RescanNoted,
)
from orca_schemas.manifest import PRIORITY_RANK
from orca_schemas.subjects import Kind

from orca_admission import ledger
from orca_admission.queue import Mark, insert, remove
from orca_admission.state import (
    Run,
    State,
    with_balances,
    with_new_run,
    with_queue,
    with_run,
    without_run,
)


def evolve(state: State, event: Recorded) -> State:  # noqa: PLR0911
    """Fold one own event into the state."""
    match event.data:
        case e.QuotaReserved():
            return _reserved(state, event, event.data)
        case e.TaskQueued():
            return _queued(state, event, event.data)
        case e.QuotaSettled():
            return _settled(state, event.data)
        case e.QuotaReleased():
            return _released(state, event, event.data)
        case e.TaskRejected():
            return _rejected(state, event, event.data)
        case e.TaskStopRequested(run_id=run_id, outcome=outcome):
            return _change(
                state, run_id, stopping=True, outcome=outcome.value, since_ms=event.time_ms
            )
        case e.LeaseExtended(run_id=run_id, granted_tokens=granted):
            return _change(state, run_id, granted_tokens=granted)
        case Noted():
            return _noted(state, event, event.data)
        case e.RequestRefused() | InputDeadLettered():
            return state
        case _:
            raise AssertionError(f"admission does not say {type(event.data).__name__}")


def _change(state: State, run_id: UUID, **changes: object) -> State:
    return with_run(state, replace(state.runs[run_id], **changes))  # type: ignore[arg-type]


def _queued(state: State, event: Recorded, data: e.TaskQueued) -> State:
    asked = ledger.asked_of(data.spec)
    run = replace(_new_run(state, event, data), asked=asked, spec=data.spec)
    queue = insert(state.queue(run.namespace), asked, run.place)
    return with_queue(with_new_run(state, run), run.namespace, queue)


def _new_run(state: State, event: Recorded, data: e.TaskQueued | e.QuotaReserved) -> Run:
    return Run(
        run_id=data.run_id,
        task_id=event.subject.id,
        namespace=event.subject.namespace,
        number=state.next_number(event.subject.namespace),
        name=data.spec.name,
        user=data.spec.user,
        since_ms=event.time_ms,
        rank=-PRIORITY_RANK[data.spec.priority],
    )


def _reserved(state: State, event: Recorded, data: e.QuotaReserved) -> State:
    waited = state.runs.get(data.run_id)
    run = replace(
        waited or _new_run(state, event, data),
        asked=ledger.from_holds(data.held),
        spec=None,
        reserved=True,
        granted_tokens=data.granted_tokens,
        open_parts=(e.Part.CONCURRENT, e.Part.CONSUMABLE),
        since_ms=event.time_ms,
    )
    if waited is None:
        state = with_new_run(state, run)
    else:
        state = with_run(_not_waiting(state, waited), run)
    balances = ledger.hold(state.account(run.namespace).balances, run.asked)
    return _scanned(with_balances(state, run.namespace, balances), run.namespace)


def _not_waiting(state: State, run: Run) -> State:
    queue = remove(state.queue(run.namespace), run.asked, run.place)
    return with_queue(state, run.namespace, queue)


def _scanned(state: State, namespace: str) -> State:
    """The queue was looked through from its head; if there is more, a RescanNoted follows.

    While one is pending, reservations come from such a look only: who is submitted then waits.
    """
    queue = state.queue(namespace)
    if queue.rescan is None:
        return state
    return with_queue(state, namespace, replace(queue, rescan=None))


def _settled(state: State, data: e.QuotaSettled) -> State:
    run = state.runs[data.run_id]
    balances = ledger.settle(
        state.account(run.namespace).balances,
        data.used_tokens - run.used_tokens,
        run.tokens_left(run.used_tokens),
        run.tokens_left(data.used_tokens),
    )
    state = with_balances(state, run.namespace, balances)
    return with_run(state, replace(run, used_tokens=data.used_tokens))


def _released(state: State, event: Recorded, data: e.QuotaReleased) -> State:
    run = state.runs[data.run_id]
    balances = ledger.release(
        state.account(run.namespace).balances, ledger.from_holds(data.amounts)
    )
    open_parts = tuple(part for part in run.open_parts if part is not data.part)
    ends = data.part is e.Part.CONCURRENT
    run = replace(
        run,
        open_parts=open_parts,
        ended=run.ended or ends,
        outcome=data.outcome.value if data.outcome else run.outcome,
        since_ms=event.time_ms if ends else run.since_ms,
        finished=None if open_parts else Mark(event.time_ms, event.position),
    )
    return with_balances(with_run(state, run), run.namespace, balances)


def _rejected(state: State, event: Recorded, data: e.TaskRejected) -> State:
    waited = state.runs.get(data.run_id)
    if waited is not None:
        return with_run(_not_waiting(state, waited), _end(waited, event, data))
    unheard = Run(
        run_id=data.run_id,
        task_id=event.subject.id,
        namespace=event.subject.namespace,
        number=state.next_number(event.subject.namespace),
        name=data.name or "",
        user=data.user or "",
        since_ms=event.time_ms,
    )
    return with_new_run(state, _end(unheard, event, data))


def _end(run: Run, event: Recorded, data: e.TaskRejected) -> Run:
    return replace(
        run,
        spec=None,
        ended=True,
        outcome=data.outcome.value,
        reasons=data.reasons,
        since_ms=event.time_ms,
        finished=Mark(event.time_ms, event.position),
    )


def _noted(state: State, event: Recorded, data: Noted) -> State:
    match data.fact:
        case NothingNoted() | RescanNoted() as fact:
            return _looked_through(state, event, fact)
        case AttemptNoted() as fact:
            return _attempt(state, event, fact)
        case EndNoted(run_id=run_id):
            return _change(state, run_id, node=None, fence=None, since_ms=event.time_ms)
        case NamespaceNoted() | LimitNoted() as fact:
            return _account(state, event.subject.namespace, fact)
        case ForgetNoted(run_id=run_id):
            return without_run(state, state.runs[run_id])
        case LetterNoted():  # the runtime's own book
            return state
        case _:
            raise AssertionError(f"admission does not note a {data.fact.kind}")


def _looked_through(state: State, event: Recorded, fact: NothingNoted | RescanNoted) -> State:
    """A look at a queue reached its bound, or its end; of all else nothing is noted here."""
    if isinstance(fact, RescanNoted):
        mark = Mark(event.time_ms, event.position)
        queue = replace(state.queue(fact.namespace), rescan=mark)
        return with_queue(state, fact.namespace, queue)
    about_a_queue = event.subject.kind is Kind.ACCOUNT
    return _scanned(state, event.subject.namespace) if about_a_queue else state


def _attempt(state: State, event: Recorded, fact: AttemptNoted) -> State:
    return _change(
        state,
        fact.run_id,
        attempt=fact.attempt,
        node=fact.node,
        fence=fact.fence,
        since_ms=event.time_ms,
    )


def _account(state: State, namespace: str, fact: NamespaceNoted | LimitNoted) -> State:
    account = state.account(namespace)
    if isinstance(fact, NamespaceNoted):
        account = replace(account, admins=fact.admins)
    else:
        balances = ledger.limit(account.balances, fact.dimension, fact.limit)
        account = replace(account, has_quota=True, balances=balances)
    return replace(state, accounts=state.accounts.set(namespace, account))
