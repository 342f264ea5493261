"""How nodes come, change, fall silent and return."""

from __future__ import annotations

from orca_runtime.recorded import Recorded
from orca_schemas.events.node import NodeJoined
from orca_schemas.events.placement import NodeAdmitted, NodeLost, NodeReturned, NodeUpdated
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.model import EventData

from orca_placement.attempts import end_all_lost
from orca_placement.cluster import Node
from orca_placement.draft import Draft, nothing
from orca_placement.schedule import Scope, schedule
from orca_placement.state import State


def join(draft: Draft, event: Recorded, joined: NodeJoined) -> EventData | None:
    """Answer a node that offers itself; returns a note where nothing changes."""
    name = event.subject.id
    if event.subject.party != name:
        return nothing(f"refused: {event.subject.party} may not speak for node {name}")
    uuids = [gpu.uuid for gpu in joined.inventory.gpus]
    if len(set(uuids)) != len(uuids):
        return nothing("refused: the inventory names a GPU twice")
    node = draft.state.nodes.get(name)
    if node is None:
        admitted = NodeAdmitted(boot_id=joined.boot_id, inventory=joined.inventory)
        draft.say_of_node(name, admitted)
    elif not _changed(draft, node, joined):
        return nothing("repeated: the node is known like this")
    ended_by_boot = draft.state.nodes[name].old_runs
    end_all_lost(draft, ended_by_boot, Scope(freed=(name,), thorough=True))
    return None


def _changed(draft: Draft, node: Node, joined: NodeJoined) -> bool:
    """Say what is new of a known node."""
    newer = (joined.boot_id, joined.inventory) != (node.boot_id, node.inventory)
    if newer:
        updated = NodeUpdated(boot_id=joined.boot_id, inventory=joined.inventory)
        draft.say_of_node(node.name, updated)
    if node.lost is not None:
        draft.say_of_node(node.name, NodeReturned())
    return newer or node.lost is not None


def silent(draft: Draft, name: str, silent_ms: int) -> EventData | None:
    """Answer silence: the node is lost, once. What it holds stays held."""
    node = draft.state.nodes.get(name)
    if node is None or node.lost is not None:
        return nothing("the node is unknown, or known to be lost")
    draft.say_of_node(name, NodeLost(silent_ms=silent_ms))
    schedule(draft, Scope())
    return None


def heard(draft: Draft, name: str) -> EventData | None:
    """Answer a sign of life: a lost node returns."""
    node = draft.state.nodes.get(name)
    if node is None or node.lost is None:
        return nothing("the node is unknown, or known to be there")
    draft.say_of_node(name, NodeReturned())
    schedule(draft, Scope(freed=(name,), thorough=True))
    return None


def rebooted(draft: Draft, name: str) -> None:
    """Go on ending what an earlier boot ran: there was more than one decision may say."""
    end_all_lost(draft, draft.state.nodes[name].old_runs, Scope(freed=(name,)))


def loss_waited(draft: Draft, name: str) -> None:
    """Requeue what may be: the watchdog on the lost node has surely stopped it by now."""
    end_all_lost(draft, requeued(draft.state, draft.state.nodes[name]), Scope())


def requeued(state: State, node: Node) -> tuple[str, ...]:
    """The runs on the node that its loss puts back into the queue."""
    return tuple(
        key for key in node.runs if state.runs[key].spec.on_node_loss is OnNodeLoss.REQUEUE
    )
