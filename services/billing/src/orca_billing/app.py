"""The billing service: what it is made of."""

from __future__ import annotations

from collections.abc import Sequence

from orca_runtime.asks import Verb
from orca_runtime.projector import Projector
from orca_runtime.service import Service
from orca_schemas.asks import PriceQuery, RunQuery

from orca_billing.clickhouse import STREAMS, charge_sink
from orca_billing.decider import DECIDER
from orca_billing.explain import MONEY
from orca_billing.queries import cost, prices
from orca_billing.settings import Settings


def projectors(settings: Settings) -> Sequence[Projector]:
    """What is written to ClickHouse."""
    return (Projector("billing-charges", STREAMS, charge_sink(settings.clickhouse_url)),)


SERVICE = Service(
    name="billing",
    decider=DECIDER,
    verbs={"prices": Verb(PriceQuery, prices), "cost": Verb(RunQuery, cost)},
    projectors=projectors,
    explains={"money": MONEY},
)
