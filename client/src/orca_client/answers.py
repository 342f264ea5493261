"""Answers that a client reads, beside those of orca_schemas.asks. Unknown fields are ignored."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, ConfigDict


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RunQuery(_Answer):
    """Whose cost or usage: of one run, one task, one namespace, or all, newest first."""

    run_id: UUID | None = None
    task_id: UUID | None = None
    namespace: str | None = None
    limit: int = 1000


class CostRow(_Answer):
    """What one run costs so far, in 1e-12 USD; ``unpriced`` lines found no price in force."""

    run_id: UUID
    task_id: UUID
    namespace: str
    total_pico_usd: int
    unpriced: int
    final: bool


class Costs(_Answer):
    """The answer of ``billing.cost``."""

    runs: tuple[CostRow, ...]
