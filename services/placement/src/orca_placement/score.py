"""Which of the feasible nodes and cards is best: the fullest, so that whole ones stay whole."""

from __future__ import annotations

from orca_schemas.values import Slot

from orca_placement.cluster import Card, Node, pool_of
from orca_placement.feasible import usable
from orca_placement.request import Request

Score = tuple[int, int, int, str]
"""Lower is better; the name breaks ties, so that every replay chooses the same."""


def gpu_score(node: Node) -> Score:
    """Least free GPU share first, then GPU memory, then CPU."""
    return (node.gpu_milli_free, node.gpu_memory_free_mib, node.cpu_free_milli, node.name)


def cpu_score(node: Node) -> Score:
    """Nodes without GPUs first, then least free CPU, then memory."""
    return (len(node.pools), node.cpu_free_milli, node.memory_free_mib, node.name)


def slots_on(node: Node, request: Request) -> tuple[Slot, ...]:
    """Choose the fullest usable cards, distinct ones; () for a request without GPU."""
    if request.gpu_type is None:
        return ()
    pool = pool_of(node, request.gpu_type)
    assert pool is not None
    cards = sorted(usable(pool, request), key=_fullest)[: request.gpu_count]
    assert len(cards) == request.gpu_count
    return tuple(_slot(card, request) for card in cards)


def _fullest(card: Card) -> tuple[int, int, str]:
    return (card.milli_free, card.memory_free_mib, card.uuid)


def _slot(card: Card, request: Request) -> Slot:
    assert request.gpu_type is not None
    return Slot(
        gpu_uuid=card.uuid,
        gpu_type=request.gpu_type,
        gpu_milli=request.gpu_milli,
        memory_mib=card.memory_mib if request.exclusive else request.gpu_memory_mib,
        exclusive=request.exclusive,
    )
