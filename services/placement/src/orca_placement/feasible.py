"""Whether a request fits a node, and why it fits none: each refusal a named reason with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orca_schemas.spec import MILLI
from orca_schemas.values import Reason, ReasonCode

from orca_placement.cluster import Card, Node, Pool, pool_of
from orca_placement.request import Request

GPU_COUNT = "spec.resources.gpu.count"
GPU_TYPE = "spec.resources.gpu.type"
GPU_MEMORY = "spec.resources.gpu.memoryLimit"
GPU_SHARE = "spec.resources.gpu.computePercent"
CPU = "spec.resources.cpu"
MEMORY = "spec.resources.memory"


def fits(node: Node, request: Request) -> bool:
    """Whether the node can take the request now. Its sums say most noes."""
    if (
        node.lost is not None
        or node.cpu_free_milli < request.cpu_milli
        or node.memory_free_mib < request.memory_mib
        or node.name in request.excluded
    ):
        return False
    if request.gpu_type is None:
        return True
    pool = pool_of(node, request.gpu_type)
    return pool is not None and _pool_fits(pool, request)


def _pool_fits(pool: Pool, request: Request) -> bool:
    if request.exclusive:
        if pool.empty < request.gpu_count:
            return False
    elif pool.most_milli < request.gpu_milli or pool.most_memory_mib < request.gpu_memory_mib:
        return False
    return len(usable(pool, request)) >= request.gpu_count


def usable(pool: Pool, request: Request) -> list[Card]:
    """The cards of the pool that can each take one of the request's GPUs now."""
    milli, memory = request.gpu_milli, request.gpu_memory_mib
    return [
        card for card in pool.cards if card.milli_free >= milli and card.memory_free_mib >= memory
    ]


def explain(nodes: Iterable[Node], request: Request) -> tuple[Reason, ...]:
    """Return every reason why the request waits, in a fixed order; never empty."""
    known = list(nodes)
    if not known:
        return (Reason(code=ReasonCode.NO_NODES, message="no node has joined", available=0),)
    unfit = unfitting(known, request)
    if unfit:
        return unfit
    able = [node for node in known if fits_empty(node, request)]
    reasons = (*_shortage_reasons(able, request), *_health_reasons(able, request))
    return reasons or (
        Reason(code=ReasonCode.PRIORITY, message="its turn comes with the next look at the queue"),
    )


def fits_empty(node: Node, request: Request) -> bool:
    """Whether the node could take the request if nothing else ran there."""
    inventory = node.inventory
    if inventory.cpu_milli < request.cpu_milli or inventory.memory_mib < request.memory_mib:
        return False
    return request.gpu_type is None or _large_cards(node, request) >= request.gpu_count


def _large_cards(node: Node, request: Request) -> int:
    pool = pool_of(node, request.gpu_type or "")
    if pool is None:
        return 0
    if pool.least_total_mib >= request.gpu_memory_mib:
        return len(pool.cards)
    return sum(card.memory_mib >= request.gpu_memory_mib for card in pool.cards)


def unfitting(nodes: list[Node], request: Request) -> tuple[Reason, ...]:
    """Return why no node, even an empty one, can take the request; () where one can."""
    if any(fits_empty(node, request) for node in nodes):
        return ()
    if request.gpu_type is not None:
        nodes = [node for node in nodes if pool_of(node, request.gpu_type) is not None]
        if not nodes:
            return (_type_absent(request),)
    beyond = tuple(_beyond(nodes, request))
    return beyond or (
        Reason(
            code=ReasonCode.NEVER_FITS,
            message="no one node has all of it: GPUs, CPU and memory lie on different nodes",
            field="spec.resources",
        ),
    )


def _type_absent(request: Request) -> Reason:
    return Reason(
        code=ReasonCode.GPU_TYPE_ABSENT,
        message=f"no node has a GPU of type {request.gpu_type}",
        field=GPU_TYPE,
        asked=request.gpu_count,
        available=0,
    )


def _beyond(nodes: list[Node], request: Request) -> Iterator[Reason]:
    """The fields that ask for more than the largest node has."""
    sizes = [
        (CPU, request.cpu_milli, max(n.inventory.cpu_milli for n in nodes), "milli-CPU"),
        (MEMORY, request.memory_mib, max(n.inventory.memory_mib for n in nodes), "MiB"),
    ]
    if request.gpu_type is not None:
        pools = [pool for n in nodes if (pool := pool_of(n, request.gpu_type)) is not None]
        largest = max(card.memory_mib for pool in pools for card in pool.cards)
        sizes.append((GPU_COUNT, request.gpu_count, max(len(p.cards) for p in pools), "GPUs"))
        sizes.append((GPU_MEMORY, request.gpu_memory_mib, largest, "MiB on one card"))
    for field, asked, most, unit in sizes:
        if asked > most:
            yield Reason(
                code=ReasonCode.NEVER_FITS,
                message=f"{field} {asked} > largest node {most} ({unit})",
                field=field,
                asked=asked,
                available=most,
                limit=most,
            )


Shortage = tuple[ReasonCode, int]
"""What a node lacks now, and how much of it there is."""


def shortages(node: Node, request: Request) -> list[Shortage]:
    """Return what the node lacks of the request now."""
    found = []
    if request.gpu_type is not None:
        pool = pool_of(node, request.gpu_type)
        assert pool is not None
        found = _gpu_shortages(pool, request)
    if node.cpu_free_milli < request.cpu_milli:
        found.append((ReasonCode.CAPACITY_CPU, node.cpu_free_milli))
    if node.memory_free_mib < request.memory_mib:
        found.append((ReasonCode.CAPACITY_MEMORY, node.memory_free_mib))
    return found


def _gpu_shortages(pool: Pool, request: Request) -> list[Shortage]:
    """Per card: 0.4 free on each of two cards is no room for 0.6."""
    if request.exclusive:
        if len(usable(pool, request)) >= request.gpu_count:
            return []
        return [(ReasonCode.CAPACITY_GPU, pool.empty * MILLI)]
    if request.gpu_count == 1 and pool.most_memory_mib < request.gpu_memory_mib:
        short = [(ReasonCode.CAPACITY_GPU_MEMORY, pool.most_memory_mib)]
        few = pool.most_milli < request.gpu_milli
        return [*short, (ReasonCode.CAPACITY_GPU, pool.most_milli)] if few else short
    return _share_shortages(pool, request)


def _share_shortages(pool: Pool, request: Request) -> list[Shortage]:
    """Compute is looked for on the cards with the memory, where there are enough of those."""
    found, place, cards = [], request.gpu_count - 1, pool.cards
    memory = sorted([card.memory_free_mib for card in cards], reverse=True)[place]
    if memory < request.gpu_memory_mib:
        found.append((ReasonCode.CAPACITY_GPU_MEMORY, memory))
    else:
        cards = tuple(card for card in cards if card.memory_free_mib >= request.gpu_memory_mib)
    milli = sorted([card.milli_free for card in cards], reverse=True)[place]
    if milli < request.gpu_milli:
        found.append((ReasonCode.CAPACITY_GPU, milli))
    return found


def _shortage_reasons(able: list[Node], request: Request) -> Iterator[Reason]:
    """One reason per code, with the numbers of the node that comes nearest."""
    nearest: dict[ReasonCode, int] = {}
    for node in able:
        if node.lost is None and node.name not in request.excluded:
            for code, free in shortages(node, request):
                nearest[code] = max(free, nearest.get(code, free))
    for code, free in sorted(nearest.items()):
        field, asked, unit = _asked(code, request)
        yield Reason(
            code=code,
            message=f"{field}: {asked} asked, at most {free} free ({unit})",
            field=field,
            asked=asked,
            available=free,
        )


def _asked(code: ReasonCode, request: Request) -> tuple[str, int, str]:
    """The field that a shortage is about, what it asks and in which unit."""
    match code:
        case ReasonCode.CAPACITY_CPU:
            return CPU, request.cpu_milli, "milli-CPU on one node"
        case ReasonCode.CAPACITY_MEMORY:
            return MEMORY, request.memory_mib, "MiB on one node"
        case ReasonCode.CAPACITY_GPU_MEMORY:
            return GPU_MEMORY, request.gpu_memory_mib, "MiB on one card"
        case _ if request.exclusive:
            return GPU_COUNT, request.gpu_count * MILLI, "milli-GPU in empty cards of one node"
        case _:
            return GPU_SHARE, request.gpu_milli, "milli-GPU on one card"


def _health_reasons(able: list[Node], request: Request) -> Iterator[Reason]:
    out = [n.name for n in able if n.lost is not None or n.name in request.excluded]
    if out:
        yield Reason(
            code=ReasonCode.NODE_HEALTH,
            message=f"{len(out)} of {len(able)} nodes that could take it are silent or refused it,"
            f" such as {min(out)}",
            asked=len(able),
            available=len(able) - len(out),
        )
