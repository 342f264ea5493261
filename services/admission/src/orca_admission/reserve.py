"""Reserving: for one task, and for those that wait once something came free."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.decider import MAX_DECISION_EVENTS
from orca_runtime.recorded import Decided
from orca_schemas.events.admission import QuotaReserved
from orca_schemas.events.common import RescanNoted
from orca_schemas.spec import TaskSpec

from orca_admission.answers import about_account, about_run, noted
from orca_admission.lease import first_grant
from orca_admission.ledger import TOKENS, UNTOUCHED, Asked, Balances, as_holds, tokens_in
from orca_admission.queue import scan
from orca_admission.state import State


def reservation(run_id: UUID, spec: TaskSpec, asked: Asked, balances: Balances) -> QuotaReserved:
    """Hold what the task asks on every account of its chain (here: its namespace)."""
    limited = balances.get(TOKENS, UNTOUCHED).limit is not None
    return QuotaReserved(
        run_id=run_id,
        accounts=(spec.namespace,),
        held=as_holds(spec.namespace, asked),
        granted_tokens=first_grant(tokens_in(asked), limited),
        spec=spec,
    )


def reserve_waiting(
    state: State, namespace: str, balances: Balances, already: int = 0
) -> list[Decided]:
    """Let in who fits under ``balances``, in order.

    ``already`` events stand in the decision before these. The last place is kept for the note
    that there is more to do.
    """
    found = scan(state.queue(namespace), balances, MAX_DECISION_EVENTS - already - 1)
    events = []
    for place in found.chosen:
        run = state.runs[place.run_id]
        assert run.spec is not None, "a waiting run has its spec"
        events.append(about_run(run, reservation(run.run_id, run.spec, run.asked, balances)))
    if found.more:
        note = noted(f"queue of {namespace}", RescanNoted(namespace=namespace))
        events.append(about_account(namespace, note))
    return events
