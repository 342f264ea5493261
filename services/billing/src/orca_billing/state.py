"""What billing remembers: the price book, and what each run costs so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.positions import Position
from pydantic import TypeAdapter

from orca_billing.prices import EMPTY_BOOK, PriceBook


@dataclass(frozen=True, slots=True)
class RunCost:
    """What one run costs so far.

    ``unpriced`` counts lines without a price in force. ``final_at_ms`` and ``mark`` are of the
    last Charged that said final: it set the run's one timer.
    """

    namespace: str
    task_id: str
    total_pico_usd: int = 0
    unpriced: int = 0
    final_at_ms: int | None = None
    mark: Position | None = None


@dataclass(frozen=True, slots=True)
class State:
    """The book, the costs by run id, and the latest record time (Unix ms) that was priced."""

    book: PriceBook = EMPTY_BOOK
    runs: Table[UUID, RunCost] = field(default_factory=Map)
    priced_to_ms: int = 0


STATE = TypeAdapter(State)
