"""Own events to state: total, and without a rule of its own."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from orca_runtime.recorded import Recorded
from orca_schemas.events.common import AttemptNoted, EndNoted, ForgetNoted, Noted
from orca_schemas.events.metering import UsageSettled

from orca_metering.state import Attempt, Run, State, with_end, with_record, with_totals


def evolve(state: State, event: Recorded) -> State:
    """Fold one own event."""
    match event.data:
        case UsageSettled() as settled:
            return _settled(state, event, settled)
        case Noted(fact=AttemptNoted() as fact):
            return _attempt_noted(state, event, fact)
        case Noted(fact=EndNoted() as fact):
            return _end_noted(state, event, fact)
        case Noted(fact=ForgetNoted(run_id=run_id)):
            return State(state.runs.delete(run_id)) if run_id in state.runs else state
        case _:
            return state


def _settled(state: State, event: Recorded, settled: UsageSettled) -> State:
    run = _run(state, event, settled.run_id)
    for record in settled.records:
        run = with_record(run, record)
    run = with_totals(run, settled.totals)
    if settled.final and run.final_at_ms is None:
        released_at_ms = event.time_ms if run.released_at_ms is None else run.released_at_ms
        run = replace(
            run, released_at_ms=released_at_ms, final_at_ms=event.time_ms, mark=event.position
        )
    return State(state.runs.set(settled.run_id, run))


def _attempt_noted(state: State, event: Recorded, fact: AttemptNoted) -> State:
    run = _run(state, event, fact.run_id)
    attempts = run.attempts.set(fact.attempt, Attempt(fact.node, fact.fence))
    return State(state.runs.set(fact.run_id, replace(run, attempts=attempts)))


def _end_noted(state: State, event: Recorded, fact: EndNoted) -> State:
    run = with_end(_run(state, event, fact.run_id), fact.attempt, fact.used)
    if fact.last:
        run = replace(run, released_at_ms=event.time_ms, mark=event.position)
    return State(state.runs.set(fact.run_id, run))


def _run(state: State, event: Recorded, run_id: UUID) -> Run:
    return state.runs.get(run_id) or Run(event.subject.namespace, event.subject.id)
