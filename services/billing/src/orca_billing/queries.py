"""Answers from committed state. Who asks from a namespace sees that namespace only."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from orca_runtime.asks import Ask
from orca_runtime.runs import newest
from orca_schemas.asks import CostRow, Costs, PriceQuery, PriceRow, Prices, RunQuery

from orca_billing.prices import Price
from orca_billing.skus import price_unit
from orca_billing.state import RunCost, State


def prices(state: State, query: PriceQuery, ask: Ask) -> Prices:
    """The prices of one sku or of all, by sku and then by the time they take effect.

    At most ``limit`` of them. Prices are the whole cluster's: anyone may see them.
    """
    book = state.book.skus
    skus = sorted(book) if query.sku is None else [query.sku]
    rows = (_price_row(sku, price) for sku in skus for price in book.get(sku, ()))
    return Prices(prices=tuple(islice(rows, query.limit)))


def _price_row(sku: str, price: Price) -> PriceRow:
    return PriceRow(
        sku=sku,
        price_micro_usd=price.price_micro_usd,
        unit=price_unit(sku),
        effective_at_ms=price.effective_at_ms,
        version=str(price.version),
    )


def cost(state: State, query: RunQuery, ask: Ask) -> Costs:
    """The costs of the runs asked for that billing has not forgotten."""
    found = newest(state.runs, query, ask)
    return Costs(runs=tuple(_row(run_id, run) for run_id, run in found))


def _row(run_id: UUID, run: RunCost) -> CostRow:
    return CostRow(
        run_id=run_id,
        task_id=UUID(run.task_id),
        namespace=run.namespace,
        total_pico_usd=run.total_pico_usd,
        unpriced=run.unpriced,
        final=run.final_at_ms is not None,
    )
