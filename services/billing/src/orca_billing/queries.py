"""Answers from committed state. Who asks from a namespace sees that namespace only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice
from typing import Protocol
from uuid import UUID

from orca_schemas.asks import MAX_ROWS, PriceRow, Prices
from orca_schemas.identifiers import CLUSTER, id_time_ms
from pydantic import BaseModel, ConfigDict, Field

from orca_billing.prices import Price
from orca_billing.skus import price_unit
from orca_billing.state import RunCost, State


class Asker(Protocol):
    """Who asks: all that these answers need of an ask."""

    @property
    def namespace(self) -> str:
        """The namespace asked from; ``_cluster`` sees everything."""
        ...


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CostQuery(_Body):
    """Which runs: one, those of a task, those of a namespace, or all; newest first."""

    run_id: UUID | None = None
    task_id: UUID | None = None
    namespace: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class PriceQuery(_Body):
    """Which prices: those of one sku, or all."""

    sku: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class CostRow(_Body):
    """What one run costs so far, in 1e-12 USD; ``unpriced`` lines found no price in force."""

    run_id: UUID
    task_id: UUID
    namespace: str
    total_pico_usd: int
    unpriced: int
    final: bool


class Costs(_Body):
    """The answer of ``billing.cost``."""

    runs: tuple[CostRow, ...]


def prices(state: State, query: BaseModel | None, ask: Asker) -> Prices:
    """The prices of one sku or of all, by sku and then by the time they take effect.

    At most ``limit`` of them. Prices are the whole cluster's: anyone may see them.
    """
    wanted = query if isinstance(query, PriceQuery) else PriceQuery()
    book = state.book.skus
    skus = sorted(book) if wanted.sku is None else [wanted.sku]
    rows = (_price_row(sku, price) for sku in skus for price in book.get(sku, ()))
    return Prices(prices=tuple(islice(rows, wanted.limit)))


def _price_row(sku: str, price: Price) -> PriceRow:
    return PriceRow(
        sku=sku,
        price_micro_usd=price.price_micro_usd,
        unit=price_unit(sku),
        effective_at_ms=price.effective_at_ms,
        version=str(price.version),
    )


def cost(state: State, query: BaseModel | None, ask: Asker) -> Costs:
    """The costs of the runs asked for that billing has not forgotten."""
    wanted = query if isinstance(query, CostQuery) else CostQuery()
    found = nlargest(
        wanted.limit, _matching(state, wanted, ask), key=lambda one: (id_time_ms(one[0]), one[0])
    )
    return Costs(runs=tuple(_row(run_id, run) for run_id, run in found))


def _matching(state: State, query: CostQuery, ask: Asker) -> Iterator[tuple[UUID, RunCost]]:
    task_id = None if query.task_id is None else str(query.task_id)
    for run_id, run in _among(state, query.run_id):
        if (
            ask.namespace in (CLUSTER, run.namespace)
            and query.namespace in (None, run.namespace)
            and task_id in (None, run.task_id)
        ):
            yield run_id, run


def _among(state: State, run_id: UUID | None) -> Iterable[tuple[UUID, RunCost]]:
    if run_id is None:
        return state.runs.items()
    run = state.runs.get(run_id)
    return () if run is None else ((run_id, run),)


def _row(run_id: UUID, run: RunCost) -> CostRow:
    return CostRow(
        run_id=run_id,
        task_id=UUID(run.task_id),
        namespace=run.namespace,
        total_pico_usd=run.total_pico_usd,
        unpriced=run.unpriced,
        final=run.final_at_ms is not None,
    )
