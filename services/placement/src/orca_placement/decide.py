"""The decisions: the only place that refuses. Every command leaves at least one event."""

from __future__ import annotations

from orca_runtime.recorded import Decided, Due, Recorded, Unreadable
from orca_schemas.events.admission import LeaseExtended, QuotaReserved, TaskStopRequested
from orca_schemas.events.common import ForgetNoted, InputDeadLettered, Noted
from orca_schemas.events.node import NodeJoined, OrderRefused, TaskFinished, TaskStarted
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind
from orca_schemas.values import MAX_REASON_CHARS, Fault

from orca_placement import nodes, runs, timers
from orca_placement.attempts import answer_report
from orca_placement.commands import (
    AnswerInput,
    AnswerTimer,
    Command,
    DeadLetter,
    NodeHeard,
    NodeSilent,
)
from orca_placement.draft import ITSELF, Draft, nothing
from orca_placement.schedule import EVERYTHING, schedule
from orca_placement.state import Run, State

About = tuple[str, Kind, str]
"""Namespace, kind and id of what a note is about."""


def decide(state: State, command: Command, now_ms: int) -> list[Decided]:
    """Answer a command with 1 to MAX_DECISION_EVENTS events."""
    draft = Draft(state, now_ms)
    match command:
        case AnswerInput(event):
            note = _answer_input(draft, event)
            subject = event.subject
            about: About = (subject.namespace, subject.kind, subject.id)
        case AnswerTimer(due):
            note = _answer_timer(draft, due)
            about = _about_timer(state, due)
        case NodeSilent(node, silent_ms):
            note, about = nodes.silent(draft, node, silent_ms), (CLUSTER, Kind.NODE, node)
        case NodeHeard(node):
            note, about = nodes.heard(draft, node), (CLUSTER, Kind.NODE, node)
        case DeadLetter(message):
            note, about = _dead_letter(message), (CLUSTER, Kind.ACCOUNT, ITSELF)
    if note is not None:
        draft.say(Decided(*about, note))
    return draft.said


def _answer_input(draft: Draft, event: Recorded) -> EventData | None:
    match event.data:
        case QuotaReserved() as reserved:
            return runs.reserve(draft, event, reserved)
        case LeaseExtended() as extended:
            return runs.extend(draft, extended)
        case TaskStopRequested() as requested:
            return runs.stop(draft, requested)
        case NodeJoined() as joined:
            return nodes.join(draft, event, joined)
        case TaskStarted() | TaskFinished() | OrderRefused() as report:
            return answer_report(draft, event, report)
        case other:
            raise TypeError(f"react lets no {type(other).__name__} through")


def _answer_timer(draft: Draft, due: Due) -> EventData | None:
    """Answer a timer that the state still has; one that was overtaken changes nothing."""
    if not timers.is_due(draft.state, due, draft.now_ms):
        return nothing(f"overtaken: nothing waits for {due.kind}")
    if due.kind == timers.RESCAN:
        draft.toggle_rescan("the look at the queue goes on")
        schedule(draft, EVERYTHING)
        return None
    run = draft.state.runs.get(due.entity)
    if run is not None:
        return _answer_run_timer(draft, run, due.kind)
    node = timers.node_named(due.entity)
    if due.kind == timers.LOSS:
        nodes.loss_waited(draft, node)
    else:
        nodes.rebooted(draft, node)
    return None


def _answer_run_timer(draft: Draft, run: Run, kind: str) -> EventData | None:
    match kind:
        case timers.RETRY:
            runs.retry(draft, run)
        case timers.NEVER_FITS:
            runs.never_fits(draft, run)
        case timers.DEADLINE:
            return runs.deadline(draft, run)
        case _:
            fact = ForgetNoted(run_id=run.run_id)
            draft.say_of_run(run, Noted(about="the ended run leaves the state", fact=fact))
    return None


def _about_timer(state: State, due: Due) -> About:
    run = state.runs.get(due.entity)
    if run is not None:
        return (run.namespace, Kind.TASK, run.task_id)
    node = timers.node_named(due.entity)
    if node in state.nodes and node != due.entity:
        return (CLUSTER, Kind.NODE, node)
    return (CLUSTER, Kind.ACCOUNT, ITSELF)


def _dead_letter(message: Unreadable) -> EventData:
    fault = Fault(
        position=str(message.position),
        subject=message.subject[:MAX_REASON_CHARS],
        error=str(message.error)[:MAX_REASON_CHARS],
        body_sha256=message.body_sha256,
    )
    return InputDeadLettered(fault=fault)
