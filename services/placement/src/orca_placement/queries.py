"""What placement answers, from committed state.

An asker in namespace ``_cluster`` sees all; any other the tasks of its own namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from itertools import islice

from orca_runtime.asks import Ask
from orca_schemas.asks import (
    MAX_ROWS,
    Desired,
    DesiredAttempt,
    DesiredQuery,
    GpuRow,
    Gpus,
    NodeRow,
    Nodes,
    StopAsked,
    TaskQuery,
    TaskRow,
    Tasks,
)
from orca_schemas.identifiers import CLUSTER, id_time_ms
from orca_schemas.values import Reason, ReasonCode

from orca_placement.cluster import Node, pool_of
from orca_placement.feasible import explain
from orca_placement.request import Request
from orca_placement.state import Phase, Run, State, run_request
from orca_placement.waiting import in_order

READY = "ready"
LOST = "lost"
PAGE_BYTES = 700_000
"""Attempts fill an answer up to here: one more (at most 128 KiB of spec) still fits a message."""
MAX_EXPLAINED = 50
"""Different requests whose reasons one answer looks at anew: an answer holds up the decisions."""


def desired(state: State, query: DesiredQuery | None, ask: Ask) -> Desired:
    """What belongs on the asking node, as much as one answer holds; the node is who asks.

    A run keeps its place in the order of ids, so that no page misses what stood before and after.
    A node of another boot than placement knows is not known: what was placed before its NodeJoined
    is read will end with it, and must not begin.
    """
    node = state.nodes.get(ask.user) if ask.namespace == CLUSTER else None
    boot_id = query and query.boot_id
    if node is None or boot_id not in (None, node.boot_id):
        return Desired(sequence=ask.sequence, known=False, attempts=())
    gone, after = frozenset(node.old_runs), str((query and query.after) or "")
    keys = sorted(key for key in node.runs if key not in gone and key > after)
    attempts, page_bytes = [], 0
    for key in keys:
        if page_bytes >= PAGE_BYTES:
            break
        attempts.append(_desired(state.runs[key]))
        page_bytes += len(attempts[-1].model_dump_json().encode())
    more = len(attempts) < len(keys)
    return Desired(sequence=ask.sequence, known=True, attempts=tuple(attempts), more=more)


def _desired(run: Run) -> DesiredAttempt:
    attempt = run.attempt
    assert attempt is not None
    stop = attempt.stop
    return DesiredAttempt(
        run_id=run.run_id,
        task_id=run.task_uuid,
        spec=run.spec,
        attempt=attempt.number,
        fence=attempt.fence,
        slots=attempt.slots,
        granted_tokens=run.granted_tokens,
        lease_base_tokens=run.lease_base_tokens,
        stop=stop and StopAsked(outcome=stop.outcome, message=stop.message, grace_ms=stop.grace_ms),
        traceparent=attempt.traceparent,
    )


def tasks(state: State, query: TaskQuery, ask: Ask) -> Tasks:
    """The runs that match, newest first, each with why it waits now."""
    found = nlargest(query.limit + 1, _matching(state, query, ask), key=lambda run: run.order)
    queue = _Queue(state)
    rows = tuple(_row(queue, run, ask.now_ms) for run in found[: query.limit])
    return Tasks(tasks=rows, more=len(found) > query.limit)


class _Queue:
    """The queue as one answer shows it: places, and reasons as of now for so many requests."""

    def __init__(self, state: State) -> None:
        self._nodes = state.nodes
        self._places = {
            ticket.run: place for place, ticket in enumerate(in_order(state.waiting), start=1)
        }
        self._explained: dict[Request, tuple[Reason, ...]] = {}

    def place(self, run: Run) -> int | None:
        """The run's place, from 1; None where it does not wait."""
        return self._places.get(run.key)

    def silent(self, name: str) -> tuple[Reason, ...]:
        """That the node is lost, if it is: what it runs ends when it speaks again or reboots."""
        lost = self._nodes[name].lost
        if lost is None:
            return ()
        message = f"{name} is silent, since {lost.at_ms} (Unix ms) lost; its attempts wait for it"
        return (Reason(code=ReasonCode.NODE_HEALTH, message=message),)

    def reasons(self, run: Run) -> tuple[Reason, ...]:
        """Why the run waits now; beyond the bound, as last said."""
        request = run_request(run)
        if request not in self._explained:
            if len(self._explained) >= MAX_EXPLAINED:
                return run.reasons
            self._explained[request] = explain(self._nodes.values(), request)
        return self._explained[request]


def _matching(state: State, query: TaskQuery, ask: Ask) -> Iterator[Run]:
    task_id = None if query.task_id is None else str(query.task_id)
    for run in state.runs.values():
        if (
            _sees(ask, run)
            and query.namespace in (None, run.namespace)
            and task_id in (None, run.task_id)
        ):
            yield run


def _sees(ask: Ask, run: Run) -> bool:
    return ask.namespace in (CLUSTER, run.namespace)


def _row(queue: _Queue, run: Run, now_ms: int) -> TaskRow:
    gpu = run.spec.gpu
    return TaskRow(
        task_id=run.task_uuid,
        run_id=run.run_id,
        namespace=run.namespace,
        name=run.spec.name,
        user=run.spec.user,
        phase=phase_of(run),
        since_ms=run.since.at_ms,
        submitted_at_ms=id_time_ms(run.run_id),
        outcome=run.outcome,
        node=run.last_node,
        attempt=run.attempts,
        token_quota=run.spec.token_quota,
        gpu_type=gpu and gpu.type,
        gpu_milli=gpu.gpu_milli if gpu else 0,
        queue_position=queue.place(run),
        reasons=_reasons(queue, run, now_ms),
    )


def phase_of(run: Run) -> str:
    """The word for where the run stands."""
    attempt = run.attempt
    if run.phase is Phase.WAITING:
        return "deferred" if run.reasons else "pending"
    if attempt is None:
        return run.phase.value
    if attempt.stop is not None:
        return "stopping"
    return "placed" if attempt.started_ms is None else "running"


def _reasons(queue: _Queue, run: Run, now_ms: int) -> tuple[Reason, ...]:
    """Reasons as of now for what waits, and for what a silent node or an unconfirmed stop holds up;
    else those last said."""
    if run.phase is Phase.WAITING:
        return queue.reasons(run)
    if run.attempt is None:
        return run.reasons
    stop, silent = run.attempt.stop, queue.silent(run.attempt.node)
    if stop is None or now_ms <= stop.ordered_ms + stop.grace_ms:
        return silent or run.reasons
    late_ms = now_ms - stop.ordered_ms
    message = f"the stop ordered {late_ms} ms ago is not confirmed by {run.last_node}"
    return (
        Reason(
            code=ReasonCode.STOP_UNCONFIRMED,
            message=message,
            asked=stop.grace_ms,
            available=late_ms,
        ),
        *silent,
    )


def nodes(state: State, _: None, __: Ask) -> Nodes:
    """Every node, by name."""
    return Nodes(nodes=tuple(_node_row(state.nodes[name]) for name in sorted(state.nodes)))


def _node_row(node: Node) -> NodeRow:
    return NodeRow(
        node=node.name,
        status=READY if node.lost is None else LOST,
        boot_id=node.boot_id,
        inventory=node.inventory,
        cpu_milli_free=node.cpu_free_milli,
        memory_mib_free=node.memory_free_mib,
        attempts=len(node.runs),
    )


def gpus(state: State, _: None, ask: Ask) -> Gpus:
    """Every GPU, by node; of its tasks those that the asker may see."""
    rows = (row for name in sorted(state.nodes) for row in _gpu_rows(state, state.nodes[name], ask))
    return Gpus(gpus=tuple(islice(rows, MAX_ROWS)))


def _gpu_rows(state: State, node: Node, ask: Ask) -> Iterator[GpuRow]:
    sitting: dict[str, list[str]] = {}
    for key in node.runs:
        run = state.runs[key]
        if run.attempt is not None and _sees(ask, run):
            for slot in run.attempt.slots:
                sitting.setdefault(slot.gpu_uuid, []).append(f"{run.namespace}/{run.spec.name}")
    for gpu in node.inventory.gpus:
        pool = pool_of(node, gpu.type)
        assert pool is not None
        card = next(card for card in pool.cards if card.uuid == gpu.uuid)
        yield GpuRow(
            node=node.name,
            gpu=gpu,
            milli_free=card.milli_free,
            memory_mib_free=card.memory_free_mib,
            tasks=tuple(sitting.get(gpu.uuid, ())),
        )
