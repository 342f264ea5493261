"""Own events to state: total, and without a rule of its own."""

from __future__ import annotations

from dataclasses import replace

from orca_runtime.recorded import Recorded
from orca_schemas.events.billing import Charged
from orca_schemas.events.common import ForgetNoted, Noted, PriceNoted
from orca_schemas.positions import Position

from orca_billing.prices import Price
from orca_billing.state import RunCost, State


def evolve(state: State, event: Recorded) -> State:
    """Fold one own event."""
    match event.data:
        case Charged() as charged:
            return _charged(state, event, charged)
        case Noted(fact=PriceNoted() as fact):
            return replace(state, book=state.book.with_price(fact.sku, _price(fact)))
        case Noted(fact=ForgetNoted(run_id=run_id)) if run_id in state.runs:
            return replace(state, runs=state.runs.delete(run_id))
        case _:
            return state


def _charged(state: State, event: Recorded, charged: Charged) -> State:
    about = event.subject
    run = state.runs.get(charged.run_id) or RunCost(about.namespace, about.id)
    run = replace(
        run,
        total_pico_usd=charged.total_pico_usd,
        unpriced=run.unpriced + sum(line.price is None for line in charged.lines),
    )
    if charged.final:
        run = replace(run, final_at_ms=event.time_ms, mark=event.position)
    priced_to_ms = max((line.at_ms for line in charged.lines), default=0)
    return replace(
        state,
        runs=state.runs.set(charged.run_id, run),
        priced_to_ms=max(state.priced_to_ms, priced_to_ms),
    )


def _price(fact: PriceNoted) -> Price:
    return Price(fact.effective_at_ms, Position.parse(fact.version), fact.tiers[0].price_micro_usd)
