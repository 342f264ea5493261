"""Every question that may be asked, with what it takes and what comes back."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel

from orca_schemas import asks


class Question(NamedTuple):
    """What a verb is asked with (None: nothing) and what the answer's ``data`` holds."""

    query: type[BaseModel] | None
    answer: type[BaseModel]


_OWN = {
    "admission.tasks": Question(asks.TaskQuery, asks.Tasks),
    "admission.quota": Question(None, asks.Quotas),
    "admission.holds": Question(None, asks.RunHolds),
    "admission.history": Question(asks.TaskQuery, asks.History),
    "admission.logs": Question(asks.LogQuery, asks.Logs),
    "placement.tasks": Question(asks.TaskQuery, asks.Tasks),
    "placement.nodes": Question(None, asks.Nodes),
    "placement.gpus": Question(None, asks.Gpus),
    "placement.desired": Question(asks.DesiredQuery, asks.Desired),
    "metering.usage": Question(asks.RunQuery, asks.Usages),
    "billing.cost": Question(asks.RunQuery, asks.Costs),
    "billing.prices": Question(asks.PriceQuery, asks.Prices),
}
_SERVICES = ("admission", "placement", "metering", "billing")

_OF_ALL = {
    "status": Question(None, asks.Status),
    "deadletters": Question(asks.DeadLetterQuery, asks.DeadLetters),
}

QUESTIONS = _OWN | {
    f"{service}.{verb}": question for service in _SERVICES for verb, question in _OF_ALL.items()
}
"""By ``<service>.<verb>``."""
