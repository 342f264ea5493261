"""The admission service: its decider and what it answers."""

from __future__ import annotations

from orca_runtime.asks import LogVerb, Verb
from orca_runtime.history import history, logs
from orca_runtime.service import Service
from orca_schemas.asks import LogQuery, TaskQuery

from orca_admission import queries
from orca_admission.answers import NAME
from orca_admission.decider import DECIDER
from orca_admission.explain import QUOTA
from orca_admission.explain_task import TASK

SERVICE = Service(
    name=NAME,
    decider=DECIDER,
    verbs={
        "tasks": Verb(TaskQuery, queries.tasks),
        "quota": Verb(None, queries.quota),
        "holds": Verb(None, queries.holds),
        "history": LogVerb(TaskQuery, history),
        "logs": LogVerb(LogQuery, logs),
    },
    explains={"quota": QUOTA, "task": TASK},
)
