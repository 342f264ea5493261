"""Nodes and their GPUs as frozen values that know what is free.

Sums are kept per GPU type and per node, so that a node which cannot take a request is passed
over without a look at its cards. Free amounts are ``total - held`` and go below zero where a
node came back with less than what runs on it; then nothing more fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from orca_schemas.positions import Position
from orca_schemas.spec import MILLI
from orca_schemas.values import Gpu, Inventory, Slot


class Mark(NamedTuple):
    """When something was set, and by which own event: the origin of a timer."""

    at_ms: int
    position: Position


class Hold(NamedTuple):
    """What one attempt takes of its node."""

    cpu_milli: int
    memory_mib: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU and what no slot takes of it."""

    uuid: str
    memory_mib: int
    milli_free: int
    memory_free_mib: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A node's GPUs of one type. ``empty`` cards carry no slot; ``most_*`` is the best card's.

    ``least_total_mib`` is the memory of the smallest card, whatever sits on it.
    """

    type: str
    cards: tuple[Card, ...]
    milli_free: int
    memory_free_mib: int
    empty: int
    most_milli: int
    most_memory_mib: int
    least_total_mib: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node that joined. ``runs`` have an attempt here; ``old_runs`` one of an earlier boot.

    ``lost`` is set while it is silent: it receives no work, and what it holds stays held.
    """

    name: str
    boot_id: UUID
    inventory: Inventory
    changed: Mark
    lost: Mark | None
    cpu_free_milli: int
    memory_free_mib: int
    gpu_milli_free: int
    gpu_memory_free_mib: int
    pools: tuple[Pool, ...]
    runs: tuple[str, ...] = ()
    old_runs: tuple[str, ...] = ()


def node_of(name: str, boot_id: UUID, inventory: Inventory, changed: Mark) -> Node:
    """Return a node of which nothing is held."""
    types = dict.fromkeys(gpu.type for gpu in inventory.gpus)
    pools = tuple(_pool_of(type_, inventory.gpus) for type_ in types)
    bare = Node(
        name, boot_id, inventory, changed, None, inventory.cpu_milli, inventory.memory_mib, 0, 0, ()
    )
    return _with_pools(bare, pools)


def pool_of(node: Node, gpu_type: str) -> Pool | None:
    """Return the node's GPUs of this type."""
    for pool in node.pools:
        if pool.type == gpu_type:
            return pool
    return None


def take(node: Node, run: str, hold: Hold) -> Node:
    """Return the node with the run's attempt on it."""
    return _moved(replace(node, runs=(*node.runs, run)), hold, -1)


def give(node: Node, run: str, hold: Hold) -> Node:
    """Return the node without the run's attempt."""
    left = replace(
        node,
        runs=tuple(one for one in node.runs if one != run),
        old_runs=tuple(one for one in node.old_runs if one != run),
    )
    return _moved(left, hold, 1)


def rejoined(
    node: Node, boot_id: UUID, inventory: Inventory, changed: Mark, holds: Iterable[Hold]
) -> Node:
    """Return the node with another inventory or boot; ``holds`` are those of all its runs.

    Amounts held on a card that is no longer there bind nothing. Under a new boot every run is
    one of an earlier boot until its end is said.
    """
    fresh = node_of(node.name, boot_id, inventory, changed)
    for hold in holds:
        fresh = _moved(fresh, hold, -1)
    old_runs = node.old_runs if boot_id == node.boot_id else node.runs
    return replace(fresh, lost=node.lost, runs=node.runs, old_runs=old_runs)


def _pool_of(type_: str, gpus: tuple[Gpu, ...]) -> Pool:
    cards = (
        Card(gpu.uuid, gpu.memory_mib, MILLI, gpu.memory_mib) for gpu in gpus if gpu.type == type_
    )
    return _summed(type_, tuple(cards))


def _summed(type_: str, cards: tuple[Card, ...]) -> Pool:
    milli = [card.milli_free for card in cards]
    memory = [card.memory_free_mib for card in cards]
    return Pool(
        type=type_,
        cards=cards,
        milli_free=sum(milli),
        memory_free_mib=sum(memory),
        empty=milli.count(MILLI),
        most_milli=max(milli),
        most_memory_mib=max(memory),
        least_total_mib=min(card.memory_mib for card in cards),
    )


def _moved(node: Node, hold: Hold, sign: int) -> Node:
    """Add (or with -1 take) the held amounts to what is free."""
    moved = replace(
        node,
        cpu_free_milli=node.cpu_free_milli + sign * hold.cpu_milli,
        memory_free_mib=node.memory_free_mib + sign * hold.memory_mib,
    )
    if not hold.slots:
        return moved
    slots = {slot.gpu_uuid: slot for slot in hold.slots}
    return _with_pools(moved, tuple(_pool_moved(pool, slots, sign) for pool in node.pools))


def _pool_moved(pool: Pool, slots: dict[str, Slot], sign: int) -> Pool:
    if not any(card.uuid in slots for card in pool.cards):
        return pool
    cards = (
        _card_moved(card, slots[card.uuid], sign) if card.uuid in slots else card
        for card in pool.cards
    )
    return _summed(pool.type, tuple(cards))


def _card_moved(card: Card, slot: Slot, sign: int) -> Card:
    return Card(
        card.uuid,
        card.memory_mib,
        card.milli_free + sign * slot.gpu_milli,
        card.memory_free_mib + sign * slot.memory_mib,
    )


def _with_pools(node: Node, pools: tuple[Pool, ...]) -> Node:
    return replace(
        node,
        pools=pools,
        gpu_milli_free=sum(pool.milli_free for pool in pools),
        gpu_memory_free_mib=sum(pool.memory_free_mib for pool in pools),
    )
