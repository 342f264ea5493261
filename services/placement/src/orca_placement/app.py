"""The placement service: its decider and what it answers."""

from __future__ import annotations

from orca_runtime.asks import Verb
from orca_runtime.service import Service
from orca_schemas.asks import DesiredQuery, TaskQuery
from orca_schemas.identifiers import CLUSTER

from orca_placement import queries
from orca_placement.decider import DECIDER
from orca_placement.draft import ITSELF
from orca_placement.heartbeats import watch_nodes

SERVICE = Service(
    name=ITSELF,
    decider=DECIDER,
    verbs={
        "desired": Verb(DesiredQuery, queries.desired, asked_from=CLUSTER),
        "tasks": Verb(TaskQuery, queries.tasks),
        "nodes": Verb(None, queries.nodes),
        "gpus": Verb(None, queries.gpus),
    },
    observers=(watch_nodes,),
)
