"""The fold: what each own event makes of the state. Total, and without an opinion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orca_runtime.recorded import Recorded
from orca_schemas.events.common import (
    Fact,
    ForgetNoted,
    InputDeadLettered,
    Noted,
    RescanNoted,
    RunNoted,
    StartNoted,
)
from orca_schemas.events.placement import (
    AttemptEnded,
    LeaseUpdated,
    NodeAdmitted,
    NodeLost,
    NodeReturned,
    NodeUpdated,
    Placed,
    PlacementDeferred,
    Released,
    StopOrdered,
)
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Meter, MeterEnd, Outcome

from orca_placement.cluster import Mark, give, node_of, rejoined, take
from orca_placement.state import (
    UNFIT,
    Attempt,
    Phase,
    Run,
    State,
    Stop,
    codes,
    run_hold,
    run_request,
    run_ticket,
)
from orca_placement.waiting import entered, left

RETRIED = frozenset({Outcome.FAILED, Outcome.OUT_OF_MEMORY})
"""Outcomes that count against backoffLimit, and that it allows to repeat."""


def evolve(state: State, event: Recorded) -> State:
    """Fold one own event; raises TypeError for an event that placement never says."""
    fold = _FOLDS.get(type(event.data))
    if fold is None:
        raise TypeError(f"placement does not say {type(event.data).__name__}")
    return replace(fold(state, event, event.data), sequence=event.position.sequence)


def _mark(event: Recorded) -> Mark:
    return Mark(event.time_ms, event.position)


def _with_run(state: State, run: Run) -> State:
    return replace(state, runs=state.runs.set(run.key, run))


def _node_admitted(state: State, event: Recorded, data: NodeAdmitted) -> State:
    node = node_of(event.subject.id, data.boot_id, data.inventory, _mark(event))
    return replace(state, nodes=state.nodes.set(node.name, node))


def _node_updated(state: State, event: Recorded, data: NodeUpdated) -> State:
    node = state.nodes[event.subject.id]
    holds = [run_hold(state.runs[key]) for key in node.runs]
    newer = rejoined(node, data.boot_id, data.inventory, _mark(event), holds)
    return replace(state, nodes=state.nodes.set(node.name, newer))


def _node_lost(state: State, event: Recorded, _: NodeLost) -> State:
    node = replace(state.nodes[event.subject.id], lost=_mark(event))
    return replace(state, nodes=state.nodes.set(node.name, node))


def _node_returned(state: State, event: Recorded, _: NodeReturned) -> State:
    node = replace(state.nodes[event.subject.id], lost=None)
    return replace(state, nodes=state.nodes.set(node.name, node))


def _enqueued(state: State, run: Run) -> State:
    waiting = entered(state.waiting, run_request(run), run_ticket(run))
    return replace(state, waiting=waiting, runs=state.runs.set(run.key, run))


def _dequeued(state: State, run: Run) -> State:
    if run.phase is not Phase.WAITING:
        return state
    return replace(state, waiting=left(state.waiting, run_request(run), run_ticket(run)))


def _new_run(event: Recorded, data: RunNoted | Placed, phase: Phase) -> Run:
    return Run(
        run_id=data.run_id,
        namespace=event.subject.namespace,
        task_id=event.subject.id,
        spec=data.spec,
        order=event.position.sequence,
        phase=phase,
        since=_mark(event),
        granted_tokens=data.granted_tokens,
    )


def _run_noted(state: State, event: Recorded, fact: RunNoted) -> State:
    """A new run waits; of a known one a larger grant is remembered."""
    known = state.runs.get(str(fact.run_id))
    if known is None:
        return _enqueued(state, _new_run(event, fact, Phase.WAITING))
    return _with_run(state, replace(known, granted_tokens=fact.granted_tokens))


def _deferred(state: State, event: Recorded, data: PlacementDeferred) -> State:
    run = state.runs[str(data.run_id)]
    unfit = (run.unfit or _mark(event)) if codes(data.reasons) & UNFIT else None
    if run.phase is Phase.WAITING:
        return _with_run(state, replace(run, reasons=data.reasons, unfit=unfit))
    waits = replace(run, phase=Phase.WAITING, since=_mark(event), reasons=data.reasons, unfit=unfit)
    return _enqueued(state, waits)


def _placed(state: State, event: Recorded, data: Placed) -> State:
    known = state.runs.get(str(data.run_id))
    run = known or _new_run(event, data, Phase.LIVE)
    attempt = Attempt(
        data.attempt,
        data.node,
        data.slots,
        str(event.position),
        event.time_ms,
        traceparent=event.traceparent,
    )
    live = replace(
        run, phase=Phase.LIVE, since=_mark(event), attempts=data.attempt, reasons=(), unfit=None,
        attempt=attempt, last_node=data.node,
    )  # fmt: skip
    node = take(state.nodes[data.node], live.key, run_hold(live))
    freed = _dequeued(state, known) if known else state
    return replace(
        freed, nodes=state.nodes.set(node.name, node), runs=state.runs.set(live.key, live)
    )


def _started(state: State, event: Recorded, fact: StartNoted) -> State:
    """The node's clock is believed only between the attempt's Placed and this event."""
    run = state.runs[str(fact.run_id)]
    assert run.attempt is not None
    started_ms = min(max(fact.started_at_ms, run.attempt.placed_ms), event.time_ms)
    first_ms = started_ms if run.first_started_ms is None else run.first_started_ms
    attempt = replace(run.attempt, started_ms=started_ms)
    return _with_run(
        state, replace(run, attempt=attempt, first_started_ms=first_ms, since=_mark(event))
    )


def _stop_ordered(state: State, event: Recorded, data: StopOrdered) -> State:
    run = state.runs[str(data.run_id)]
    assert run.attempt is not None
    stop = Stop(data.outcome, data.message, data.grace_ms, event.time_ms)
    stopping = replace(run.attempt, stop=stop)
    return _with_run(state, replace(run, attempt=stopping, since=_mark(event)))


def _lease_updated(state: State, _: Recorded, data: LeaseUpdated) -> State:
    run = state.runs[str(data.run_id)]
    return _with_run(state, replace(run, granted_tokens=data.granted_tokens))


def _vacated(state: State, run: Run) -> State:
    """Give back what the live attempt holds."""
    assert run.attempt is not None
    node = give(state.nodes[run.attempt.node], run.key, run_hold(run))
    return replace(state, nodes=state.nodes.set(node.name, node))


def _lease_base(run: Run, outcome: Outcome, used: tuple[MeterEnd, ...]) -> int:
    """What the next attempt's lease begins at; where nobody knows, all that was granted."""
    tokens = [end.used for end in used if end.meter is Meter.TOKENS]
    if tokens or outcome is Outcome.NEVER_STARTED:
        return min(run.lease_base_tokens + sum(tokens), MAX_AMOUNT)
    return max(run.lease_base_tokens, run.granted_tokens or 0)


def _attempt_ended(state: State, event: Recorded, data: AttemptEnded) -> State:
    """An attempt that never started was refused: its node is not asked again for this run."""
    run = state.runs[str(data.run_id)]
    refused = data.outcome is Outcome.NEVER_STARTED
    waits = data.retry_at_ms <= event.time_ms
    again = replace(
        run,
        phase=Phase.WAITING if waits else Phase.RETRYING,
        since=_mark(event),
        lease_base_tokens=_lease_base(run, data.outcome, data.used),
        failures=run.failures + (data.outcome in RETRIED),
        excluded=(*run.excluded, data.node) if refused else run.excluded,
        retry_at_ms=data.retry_at_ms,
        attempt=None,
    )
    freed = _vacated(state, run)
    return _enqueued(freed, again) if waits else _with_run(freed, again)


def _released(state: State, event: Recorded, data: Released) -> State:
    run = state.runs[str(data.run_id)]
    ended = replace(
        run, phase=Phase.ENDED, since=_mark(event), reasons=data.reasons, unfit=None,
        attempt=None, outcome=data.outcome,
    )  # fmt: skip
    freed = _vacated(state, run) if run.attempt else _dequeued(state, run)
    return _with_run(freed, ended)


def _forgotten(state: State, _: Recorded, fact: ForgetNoted) -> State:
    return replace(state, runs=state.runs.delete(str(fact.run_id)))


def _rescan(state: State, event: Recorded, _: RescanNoted) -> State:
    """The first says that a look at the whole queue is owed, the next that it is being taken."""
    return replace(state, rescan=None if state.rescan else _mark(event))


def _noted(state: State, event: Recorded, data: Noted) -> State:
    fold = _FACTS.get(type(data.fact))
    return state if fold is None else fold(state, event, data.fact)


def _dead_lettered(state: State, _: Recorded, __: InputDeadLettered) -> State:
    return state


Fold = Callable[[State, Recorded, Any], State]

_FACTS: dict[type[Fact], Fold] = {
    RunNoted: _run_noted,
    StartNoted: _started,
    RescanNoted: _rescan,
    ForgetNoted: _forgotten,
}
_FOLDS: dict[type[object], Fold] = {
    NodeAdmitted: _node_admitted,
    NodeUpdated: _node_updated,
    NodeLost: _node_lost,
    NodeReturned: _node_returned,
    PlacementDeferred: _deferred,
    Placed: _placed,
    StopOrdered: _stop_ordered,
    LeaseUpdated: _lease_updated,
    AttemptEnded: _attempt_ended,
    Released: _released,
    Noted: _noted,
    InputDeadLettered: _dead_lettered,
}
