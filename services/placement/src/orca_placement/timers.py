"""Timers: computed from state, so that a restart loses none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orca_runtime.recorded import Due, Recorded
from orca_schemas.events.common import Noted, RescanNoted
from orca_schemas.subjects import Kind

from orca_placement.cluster import Node
from orca_placement.draft import QUEUE
from orca_placement.limits import FORGET_MS, LOSS_WAIT_MS, NEVER_FITS_GRACE_MS
from orca_placement.nodes import requeued
from orca_placement.state import Phase, Run, State

RETRY = "retry"
DEADLINE = "deadline"
NEVER_FITS = "never_fits"
FORGET = "forget"
LOSS = "loss"
REBOOT = "reboot"
RESCAN = "rescan"

_NODE_PREFIX = "node/"
"""A node may be called like a run or the queue; the prefix keeps the entities apart."""


def node_entity(name: str) -> str:
    """The entity of a node."""
    return f"{_NODE_PREFIX}{name}"


def node_named(entity: str) -> str:
    """The node of an entity; the entity itself where it is none of a node."""
    return entity.removeprefix(_NODE_PREFIX)


def entities(state: State) -> Iterator[str]:
    """Yield all that may have timers."""
    yield QUEUE
    yield from (node_entity(name) for name in state.nodes)
    yield from state.runs


def touched(event: Recorded) -> Iterable[str]:
    """Name the entities whose timers an own event may have changed."""
    if event.subject.kind is Kind.NODE:
        return (node_entity(event.subject.id),)
    data = event.data
    if isinstance(data, Noted):
        if isinstance(data.fact, RescanNoted):
            return (QUEUE,)
        return _of(data.fact)
    return _of(data)


def _of(data: object) -> tuple[str, ...]:
    run, node = getattr(data, "run_id", None), getattr(data, "node", None)
    of_run = () if run is None else (str(run),)
    return of_run if node is None else (*of_run, node_entity(node))


def timers(state: State, entity: str) -> tuple[Due, ...]:
    """The timers of one entity; none of an entity that is gone."""
    if entity == QUEUE:
        mark = state.rescan
        return () if mark is None else (Due(mark.at_ms, QUEUE, RESCAN, mark.position),)
    run = state.runs.get(entity)
    if run is not None:
        return tuple(_run_timers(run))
    node = state.nodes.get(node_named(entity))
    return () if node is None else tuple(_node_timers(state, node))


def is_due(state: State, due: Due, now_ms: int) -> bool:
    """Whether the state still waits for such a timer, and its time has come."""
    return any(
        timer.kind == due.kind and timer.at_ms <= now_ms for timer in timers(state, due.entity)
    )


def _run_timers(run: Run) -> Iterator[Due]:
    key, since = run.key, run.since
    if run.phase is Phase.ENDED:
        yield Due(since.at_ms + FORGET_MS, key, FORGET, since.position)
        return
    if run.phase is Phase.RETRYING:
        yield Due(run.retry_at_ms, key, RETRY, since.position)
    if run.unfit is not None:
        yield Due(run.unfit.at_ms + NEVER_FITS_GRACE_MS, key, NEVER_FITS, run.unfit.position)
    deadline_ms = run.spec.active_deadline_ms
    stopped = run.attempt is not None and run.attempt.stop is not None
    if deadline_ms is not None and run.first_started_ms is not None and not stopped:
        yield Due(run.first_started_ms + deadline_ms, key, DEADLINE, since.position)


def _node_timers(state: State, node: Node) -> Iterator[Due]:
    entity = node_entity(node.name)
    if node.old_runs:
        yield Due(node.changed.at_ms, entity, REBOOT, node.changed.position)
    if node.lost is not None and requeued(state, node):
        yield Due(node.lost.at_ms + LOSS_WAIT_MS, entity, LOSS, node.lost.position)
