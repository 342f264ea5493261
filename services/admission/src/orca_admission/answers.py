"""The forms that a decision's events take."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.recorded import Decided
from orca_schemas.events.admission import Rejection, RequestRefused, TaskRejected
from orca_schemas.events.common import Fact, Noted, NothingNoted
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind, Subject
from orca_schemas.values import Reason

from orca_admission.commands import Origin
from orca_admission.state import Run

NAME = "admission"


def about_task(namespace: str, task_id: str, run_id: UUID, data: EventData) -> Decided:
    """An event about a task and its run."""
    return Decided(namespace, Kind.TASK, task_id, data, run_id)


def about_run(run: Run, data: EventData) -> Decided:
    """An event about a run that is known."""
    return about_task(run.namespace, run.task_id, run.run_id, data)


def about_account(namespace: str, data: EventData) -> Decided:
    """An event about a namespace's account."""
    return Decided(namespace, Kind.ACCOUNT, namespace, data)


def about_service(data: EventData) -> Decided:
    """An event about admission itself, where nothing else is known."""
    return Decided(CLUSTER, Kind.ACCOUNT, NAME, data)


def about_subject(subject: Subject, data: EventData, run_id: UUID | None = None) -> Decided:
    """An event about whatever the input was about."""
    return Decided(subject.namespace, subject.kind, subject.id, data, run_id)


def noted(about: str, fact: Fact) -> Noted:
    """What an input leaves behind where no other event says it."""
    return Noted(about=about, fact=fact)


def nothing(origin: Origin) -> list[Decided]:
    """The input changes nothing."""
    return [about_subject(origin.subject, noted(origin.subject.event, NothingNoted()))]


def refused(origin: Origin, reason: Reason, run_id: UUID | None = None) -> list[Decided]:
    """The request changes nothing, and this is why."""
    data = RequestRefused(
        position=str(origin.position),
        party=origin.subject.party,
        request=origin.subject.event,
        reason=reason,
    )
    return [about_subject(origin.subject, data, run_id)]


def rejected(
    subject: Subject, run_id: UUID, reasons: tuple[Reason, ...], name: str | None = None
) -> list[Decided]:
    """The submitted task will not run; ``name`` is the manifest's, where that could be read."""
    data = TaskRejected(
        run_id=run_id,
        outcome=Rejection.REFUSED,
        reasons=reasons,
        name=name,
        user=subject.party,
    )
    return [about_task(subject.namespace, subject.id, run_id, data)]
