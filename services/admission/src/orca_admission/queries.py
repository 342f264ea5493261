"""Answers from committed state. Who asks from a namespace sees that namespace only."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Protocol
from uuid import UUID

from orca_schemas.asks import QuotaRow, Quotas, RunHolds, TaskQuery, TaskRow, Tasks
from orca_schemas.events.admission import Part
from orca_schemas.identifiers import CLUSTER
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Hold, Reason
from pydantic import BaseModel

from orca_admission.ledger import as_holds, period_of
from orca_admission.queue import in_order
from orca_admission.reasons import blockers
from orca_admission.state import Phase, Run, State


class Asker(Protocol):
    """Who asks: all that these answers need of an ask."""

    @property
    def namespace(self) -> str:
        """The namespace asked from; ``_cluster`` sees everything."""
        ...


def tasks(state: State, query: BaseModel | None, ask: Asker) -> Tasks:
    """The newest tasks, at most as many as asked for."""
    wanted = query if isinstance(query, TaskQuery) else TaskQuery()
    found = list(islice(_matching(state, wanted, ask), wanted.limit + 1))
    positions = _positions(state, found)
    rows = tuple(_task_row(state, run, positions) for run in found[: wanted.limit])
    return Tasks(tasks=rows, more=len(found) > wanted.limit)


def _visible(state: State, ask: Asker) -> list[str]:
    known = set(state.accounts) | set(state.shelves)
    return sorted(known if ask.namespace == CLUSTER else known & {ask.namespace})


def _matching(state: State, query: TaskQuery, ask: Asker) -> Iterator[Run]:
    namespaces = _visible(state, ask)
    if query.namespace is not None:
        namespaces = [one for one in namespaces if one == query.namespace]
    if query.task_id is not None:
        run = state.run_of(str(query.task_id))
        return iter([run] if run is not None and run.namespace in namespaces else [])
    newest = (_newest(state, namespace) for namespace in namespaces)
    return merge(*newest, key=lambda run: run.submitted_at_ms, reverse=True)


def _newest(state: State, namespace: str) -> Iterator[Run]:
    shelf = state.shelves.get(namespace)
    return iter(()) if shelf is None else (state.runs[run_id] for run_id in shelf.newest())


def _positions(state: State, runs: list[Run]) -> dict[UUID, int]:
    """The places in the queues of those that wait, from 1."""
    namespaces = {run.namespace for run in runs if run.phase is Phase.QUEUED}
    return {
        place.run_id: position
        for namespace in namespaces
        for position, place in enumerate(in_order(state.queue(namespace)), start=1)
    }


def _task_row(state: State, run: Run, positions: dict[UUID, int]) -> TaskRow:
    return TaskRow(
        task_id=UUID(run.task_id),
        run_id=run.run_id,
        namespace=run.namespace,
        name=run.name,
        user=run.user,
        phase=run.phase.value,
        since_ms=run.since_ms,
        submitted_at_ms=run.submitted_at_ms,
        outcome=run.outcome,
        node=run.node,
        attempt=run.attempt,
        used_tokens=run.used_tokens,
        token_quota=run.held_tokens or None,
        gpu_type=run.gpu_type,
        gpu_milli=run.gpu_milli,
        queue_position=positions.get(run.run_id),
        reasons=_reasons(state, run),
    )


def _reasons(state: State, run: Run) -> tuple[Reason, ...]:
    """Why it was rejected, or what it waits for now, not when it began to wait."""
    if run.phase is not Phase.QUEUED:
        return run.reasons
    return blockers(run.namespace, state.account(run.namespace).balances, run.asked)


def quota(state: State, _: BaseModel | None, ask: Asker) -> Quotas:
    """Each dimension of each account that is limited, held or used."""
    rows = (
        QuotaRow(
            account=account,
            dimension=dimension,
            period=period_of(dimension).value,
            limit=balance.limit,
            held=min(balance.held, MAX_AMOUNT),
            committed=min(balance.committed, MAX_AMOUNT),
        )
        for account in _visible(state, ask)
        for dimension, balance in sorted(state.account(account).balances.items())
    )
    return Quotas(rows=tuple(rows))


def holds(state: State, _: BaseModel | None, ask: Asker) -> RunHolds:
    """What each run still holds, by run id."""
    seen = set(_visible(state, ask))
    runs = (run for run in state.runs.values() if run.namespace in seen and run.open_parts)
    return RunHolds(holds={str(run.run_id): _still_held(run) for run in runs})


def _still_held(run: Run) -> tuple[Hold, ...]:
    left = (amount for part in Part for amount in run.still_held(part))
    return as_holds(run.namespace, tuple(left))
