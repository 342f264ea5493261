"""Commands to own events: the only place that refuses."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.recorded import Decided
from orca_schemas.events.common import (
    AttemptNoted,
    EndNoted,
    Fact,
    ForgetNoted,
    InputDeadLettered,
    Noted,
    NothingNoted,
)
from orca_schemas.events.metering import UsageQuarantined
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind

from orca_metering.commands import (
    AcceptRecord,
    Command,
    DeadLetter,
    EndGrace,
    Forget,
    NoteAttempt,
    NoteEnd,
)
from orca_metering.settle import (
    accepted,
    closing,
    id_doubt,
    identity_doubt,
    is_repeat,
    settlement,
    size_doubt,
    time_doubt,
)
from orca_metering.state import Run, State, with_end

NAME = "metering"


def decide(state: State, command: Command, now_ms: int) -> list[Decided]:
    """Answer a command with exactly one event."""
    match command:
        case AcceptRecord():
            return [_about_task(command, command.usage.run_id, _settle(state, command))]
        case NoteAttempt():
            return [_about_task(command, command.run_id, _note_attempt(command))]
        case NoteEnd():
            return [_about_task(command, command.run_id, _note_end(state, command))]
        case EndGrace(run_id=run_id):
            return [_end_grace(state, run_id)]
        case Forget(run_id=run_id):
            return [_forget(state, run_id)]
        case DeadLetter(fault=fault):
            return [_about_service(InputDeadLettered(fault=fault))]


def _settle(state: State, command: AcceptRecord) -> EventData:
    """Identity first: whoever does not speak for the attempt learns nothing of its numbers."""
    run_id = command.usage.run_id
    run = state.runs.get(run_id)
    doubt = identity_doubt(run, command)
    if run is None or doubt is not None:
        return _quarantined(command, doubt or "")
    record = accepted(command.usage, command.party)
    if is_repeat(run, record):
        return _noted(f"record {record.number} of {record.meter} is known", NothingNoted())
    doubt = (
        id_doubt(run, record)
        or time_doubt(run, record, command.received_at_ms)
        or size_doubt(run, record)
    )
    if doubt is not None:
        return _quarantined(command, doubt)
    return settlement(run_id, run, record)


def _quarantined(command: AcceptRecord, reason: str) -> UsageQuarantined:
    usage = command.usage
    return UsageQuarantined(run_id=usage.run_id, record_id=usage.record_id, reason=reason)


def _note_attempt(command: NoteAttempt) -> Noted:
    fact = AttemptNoted(
        run_id=command.run_id, attempt=command.attempt, node=command.node, fence=command.fence
    )
    return _noted("attempt placed", fact)


def _note_end(state: State, command: NoteEnd) -> EventData:
    run = state.runs.get(command.run_id) or Run(command.namespace, command.task_id)
    if command.last and not with_end(run, command.attempt, command.used).promised:
        return closing(command.run_id, run)
    fact = EndNoted(
        run_id=command.run_id,
        attempt=command.attempt,
        node=command.node,
        used=command.used,
        last=command.last,
    )
    return _noted("run released" if command.last else "attempt ended", fact)


def _end_grace(state: State, run_id: UUID) -> Decided:
    run = state.runs.get(run_id)
    if run is None or run.released_at_ms is None or run.final_at_ms is not None:
        return _about_service(_noted("no grace runs", NothingNoted()))
    return _about_run(run, run_id, closing(run_id, run))


def _forget(state: State, run_id: UUID) -> Decided:
    run = state.runs.get(run_id)
    if run is None:
        return _about_service(_noted("already forgotten", NothingNoted()))
    return _about_run(run, run_id, _noted("forgotten", ForgetNoted(run_id=run_id)))


def _noted(about: str, fact: Fact) -> Noted:
    return Noted(about=about, fact=fact)


def _about_task(
    command: AcceptRecord | NoteAttempt | NoteEnd, run_id: UUID, data: EventData
) -> Decided:
    return Decided(command.namespace, Kind.TASK, command.task_id, data, run_id)


def _about_run(run: Run, run_id: UUID, data: EventData) -> Decided:
    return Decided(run.namespace, Kind.TASK, run.task_id, data, run_id)


def _about_service(data: EventData) -> Decided:
    return Decided(CLUSTER, Kind.ACCOUNT, NAME, data)
