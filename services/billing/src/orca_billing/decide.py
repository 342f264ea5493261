"""Commands to own events: the only place that refuses."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.recorded import Decided
from orca_schemas.events.admin import PriceSet
from orca_schemas.events.billing import Charged
from orca_schemas.events.common import (
    Fact,
    ForgetNoted,
    InputDeadLettered,
    Noted,
    NothingNoted,
    PriceNoted,
)
from orca_schemas.identifiers import CLUSTER, name_id
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind

from orca_billing.commands import Charge, Command, DeadLetter, Forget, LeaveToAdmission, SetPrice
from orca_billing.prices import MAX_SKUS, MAX_VERSIONS
from orca_billing.rating import lines
from orca_billing.skus import sku_problem
from orca_billing.state import RunCost, State

NAME = "billing"


def decide(state: State, command: Command, now_ms: int) -> list[Decided]:
    """Answer a command with exactly one event."""
    match command:
        case Charge():
            return [_charge(state, command)]
        case SetPrice():
            noted = _set_price(state, command)
            return [Decided(command.namespace, Kind.PRICE, command.price_id, noted)]
        case Forget(run_id=run_id):
            return [_forget(state, run_id)]
        case DeadLetter(fault=fault):
            return [_about_service(InputDeadLettered(fault=fault))]
        case LeaveToAdmission(error=error):
            return [_about_service(_noted(error, NothingNoted()))]


def _charge(state: State, command: Charge) -> Decided:
    settled = command.settled
    known = state.runs.get(settled.run_id) or RunCost(command.namespace, command.task_id)
    charged = tuple(line for record in settled.records for line in lines(record, state.book))
    data = Charged(
        run_id=settled.run_id,
        lines=charged,
        total_pico_usd=known.total_pico_usd + sum(line.amount_pico_usd for line in charged),
        final=settled.final,
    )
    return Decided(command.namespace, Kind.TASK, command.task_id, data, settled.run_id)


def _set_price(state: State, command: SetPrice) -> Noted:
    price = command.price
    problem = (
        _subject_problem(command)
        or sku_problem(price.sku)
        or _time_problem(state, command)
        or _size_problem(state, price)
    )
    if problem is not None:
        return _noted(f"price refused: {problem}", NothingNoted())
    fact = PriceNoted(
        version=str(command.version),
        sku=price.sku,
        tiers=price.tiers,
        effective_at_ms=_effective_at_ms(state, command),
    )
    return _noted(f"price of {price.sku} set", fact)


def _subject_problem(command: SetPrice) -> str | None:
    """Prices are of the whole cluster, and each sku has one id, so that none passes for another."""
    expected = str(name_id(Kind.PRICE, command.price.sku))
    if command.namespace != CLUSTER:
        return f"prices are set in namespace {CLUSTER}, not in {command.namespace}"
    if command.price_id != expected:
        return f"the id of {command.price.sku} is {expected}, not {command.price_id}"
    return None


def _effective_at_ms(state: State, command: SetPrice) -> int:
    """From when the price holds: as said, or else from the first moment that nothing precedes."""
    if command.price.effective_at_ms is not None:
        return command.price.effective_at_ms
    return max(command.received_at_ms, state.priced_to_ms + 1)


def _time_problem(state: State, command: SetPrice) -> str | None:
    """A price may not change what a record was, or could have been, charged.

    A node's clock may run ahead, so a record from after ``effective_at_ms`` may be priced already.
    """
    effective_at_ms = _effective_at_ms(state, command)
    if effective_at_ms < command.received_at_ms:
        return f"effective at {effective_at_ms}, but it came at {command.received_at_ms} (Unix ms)"
    if effective_at_ms <= state.priced_to_ms:
        return f"effective at {effective_at_ms}, but records up to {state.priced_to_ms} are priced"
    return None


def _size_problem(state: State, price: PriceSet) -> str | None:
    if price.sku not in state.book.skus and len(state.book.skus) >= MAX_SKUS:
        return f"the book holds {MAX_SKUS} skus already"
    if len(state.book.skus.get(price.sku, ())) >= MAX_VERSIONS:
        return f"{price.sku} has {MAX_VERSIONS} prices already"
    if price.tiers[0].from_quantity != 0:
        return "the first tier begins at quantity 0"
    return None


def _forget(state: State, run_id: UUID) -> Decided:
    run = state.runs.get(run_id)
    if run is None:
        return _about_service(_noted("already forgotten", NothingNoted()))
    noted = _noted("forgotten", ForgetNoted(run_id=run_id))
    return Decided(run.namespace, Kind.TASK, run.task_id, noted, run_id)


def _noted(about: str, fact: Fact) -> Noted:
    return Noted(about=about, fact=fact)


def _about_service(data: EventData) -> Decided:
    return Decided(CLUSTER, Kind.ACCOUNT, NAME, data)
