"""The metering service: what it is made of."""

from __future__ import annotations

from collections.abc import Sequence

from orca_runtime.asks import Verb
from orca_runtime.projector import Projector
from orca_runtime.service import Service
from orca_schemas.asks import RunQuery

from orca_metering.clickhouse import TASK_STREAMS, USAGE_STREAMS, task_sink, usage_sink
from orca_metering.decider import DECIDER
from orca_metering.queries import usage
from orca_metering.settings import Settings


def projectors(settings: Settings) -> Sequence[Projector]:
    """What is written to ClickHouse."""
    url = settings.clickhouse_url
    return (
        Projector("metering-usage", USAGE_STREAMS, usage_sink(url)),
        Projector("metering-tasks", TASK_STREAMS, task_sink(url)),
    )


SERVICE = Service(
    name="metering",
    decider=DECIDER,
    verbs={"usage": Verb(RunQuery, usage)},
    projectors=projectors,
)
