"""The scheduler: numbered phases over a frozen snapshot.

Between decisions every waiting run has been found to fit no node, so a pass need only look at
nodes that gained room (``freed``) and runs that are new in the queue (``fresh``). Where a
decision could not finish its pass, a rescan is owed; until it is paid no other pass is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from orca_schemas.events.placement import Placed, PlacementDeferred
from orca_schemas.values import Reason, Slot

from orca_placement.cluster import Node
from orca_placement.draft import Draft
from orca_placement.feasible import explain, fits
from orca_placement.limits import EXPLAINED_PER_PASS
from orca_placement.request import Request
from orca_placement.score import cpu_score, gpu_score, slots_on
from orca_placement.state import Phase, Run, State, codes, run_request
from orca_placement.waiting import Ticket, first_of, in_order


@dataclass(frozen=True, slots=True)
class Scope:
    """What a pass must look at: freed nodes for every run, every node for the fresh runs.

    ``thorough`` says the changed reasons of the whole queue: for when nodes come or change.
    """

    freed: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    everywhere: bool = False
    thorough: bool = False


EVERYTHING = Scope(everywhere=True, thorough=True)


def schedule(draft: Draft, scope: Scope) -> None:
    """Place what now fits, in the queue's order, and say the reasons that changed."""
    if not draft.state.waiting or draft.state.rescan is not None:
        return
    fresh = frozenset(run_request(draft.state.runs[key]) for key in scope.fresh)
    heads = _order(draft.state, scope, fresh)
    while heads:
        ticket, request = heads[0]
        if draft.full:
            draft.owe_rescan()
            return
        found = choose(_candidates(draft.state, scope, fresh, request), request)
        if found is None:
            heappop(heads)
            continue
        _emit(draft, draft.state.runs[ticket.run], *found)
        _advance(heads, request, draft.state)
    _explain_waiting(draft, scope)


Head = tuple[Ticket, Request]


def _order(state: State, scope: Scope, fresh: frozenset[Request]) -> list[Head]:
    """Phase 1: the heads of the groups that fit somewhere, as a heap, first in the queue first.

    What fits nowhere now, will not later: a pass only takes room.
    """
    heads = []
    for request, group in state.waiting.items():
        for node in _candidates(state, scope, fresh, request):
            if fits(node, request):
                heads.append((group[0], request))
                break
    heapify(heads)
    return heads


def _advance(heads: list[Head], request: Request, state: State) -> None:
    """The group's next run comes forward; the one placed has left the queue."""
    group = state.waiting.get(request)
    if group is None:
        heappop(heads)
    else:
        heapreplace(heads, (group[0], request))


def _candidates(
    state: State, scope: Scope, fresh: frozenset[Request], request: Request
) -> Iterable[Node]:
    """Phase 2: the nodes that a group must be tried on."""
    if scope.everywhere or (fresh and request in fresh):
        return state.nodes.values()
    return [state.nodes[name] for name in scope.freed]


def choose(nodes: Iterable[Node], request: Request) -> tuple[str, tuple[Slot, ...]] | None:
    """Phases 3 to 5: of the feasible nodes the best by score, and the slots on it.

    The score is asked first: it is cheap, and spares a worse node the look at its cards.
    """
    score = cpu_score if request.gpu_type is None else gpu_score
    best: Node | None = None
    best_score = None
    for node in nodes:
        if node.cpu_free_milli < request.cpu_milli:
            continue
        node_score = score(node)
        if (best_score is None or node_score < best_score) and fits(node, request):
            best, best_score = node, node_score
    return None if best is None else (best.name, slots_on(best, request))


def _emit(draft: Draft, run: Run, node: str, slots: tuple[Slot, ...]) -> None:
    """Phase 6: say where the run's next attempt belongs."""
    placed = Placed(
        run_id=run.run_id,
        spec=run.spec,
        node=node,
        slots=slots,
        attempt=run.attempts + 1,
        granted_tokens=run.granted_tokens,
        lease_base_tokens=run.lease_base_tokens,
    )
    draft.say_of_run(run, placed, party=node)


def place(draft: Draft, run: Run) -> bool:
    """Place one run that just came, if it fits anywhere."""
    found = choose(draft.state.nodes.values(), run_request(run))
    if found is None:
        return False
    _emit(draft, run, *found)
    return True


def defer(draft: Draft, run: Run, reasons: tuple[Reason, ...]) -> None:
    """Say why a run waits."""
    draft.say_of_run(run, PlacementDeferred(run_id=run.run_id, reasons=reasons))


def reasons_of(state: State, request: Request) -> tuple[Reason, ...]:
    """Why the request waits now."""
    return explain(state.nodes.values(), request)


def _explain_waiting(draft: Draft, scope: Scope) -> None:
    """Say the reasons of waiting runs whose set of codes changed, once per request."""
    state = draft.state
    waiting = state.waiting
    tickets = in_order(waiting) if scope.thorough else first_of(waiting, EXPLAINED_PER_PASS)
    first = (ticket.run for ticket in tickets)
    known: dict[Request, tuple[Reason, ...]] = {}
    for key in dict.fromkeys((*scope.fresh, *first)):
        run = state.runs[key]
        if run.phase is not Phase.WAITING:
            continue
        request = run_request(run)
        if request not in known:
            known[request] = reasons_of(state, request)
        if codes(known[request]) == codes(run.reasons):
            continue
        if draft.full:
            draft.owe_rescan()
            return
        defer(draft, run, known[request])
