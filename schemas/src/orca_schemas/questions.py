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
    "placement.desired": Question(None, asks.Desired),
    "billing.prices": Question(None, asks.Prices),
}
_SERVICES = ("admission", "placement", "metering", "billing")

QUESTIONS = _OWN | {f"{service}.status": Question(None, asks.Status) for service in _SERVICES}
"""By ``<service>.<verb>``."""
