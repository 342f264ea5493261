"""How nodes come, change, fall silent and return."""

from __future__ import annotations

from typing import Any

import pytest
from orca_placement.limits import LOSS_WAIT_MS
from orca_runtime.recorded import Unreadable
from orca_schemas.errors import MalformedError
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.positions import Position
from orca_schemas.values import Outcome

REQUEUE = OnNodeLoss.REQUEUE


def test_a_node_is_admitted_once(world: Any) -> None:
    """The repeat of the same boot and inventory changes nothing."""
    then = world.node("n1", gpus=2)
    assert then.names == ["NodeAdmitted"]
    assert then.node("n1", gpus=2).names == ["nothing"]


def test_only_the_node_speaks_for_itself(world: Any) -> None:
    """The party must be the node of the subject."""
    then = world.node("n1", speaker="n2")
    assert then.names == ["nothing"]
    assert len(then.state.nodes) == 0


def test_another_inventory_keeps_what_runs(world: Any, gpu_spec: Any, faults: Any) -> None:
    """A third card more: held amounts stay, the new room is used at once."""
    given = world.node("n1", gpus=1).submit("a", gpu=gpu_spec()).submit("b", gpu=gpu_spec())
    then = given.node("n1", gpus=2)
    assert then.names == ["NodeUpdated", "Placed"]
    assert then.run("b").attempt.slots[0].gpu_uuid == "GPU-n1-1"
    assert then.where("a") == "n1"
    assert faults(then.state) == []


def test_a_card_that_vanished_is_free_for_nobody(world: Any, gpu_spec: Any, faults: Any) -> None:
    """It comes back with its slot still on it."""
    given = world.node("n1", gpus=2).submit("a", gpu=gpu_spec(2)).node("n1", gpus=1)
    assert given.submit("b", gpu=gpu_spec()).codes("b") == {"capacity_gpu"}
    back = given.node("n1", gpus=2)
    assert back.submit("b", gpu=gpu_spec()).codes("b") == {"capacity_gpu"}
    then = given.finish("a")
    assert then.submit("b", gpu=gpu_spec()).where("b") == "n1"
    assert faults(then.state) == []


def test_silence_loses_a_node_once(world: Any) -> None:
    """It receives no work, and what it holds stays held."""
    given = world.node("n1").submit("a").silent("n1", 31_000)
    assert given.said("NodeLost").silent_ms == 31_000
    assert given.silent("n1").names == ["nothing"]
    assert given.where("a") == "n1"
    assert given.submit("b").where("b") is None


def test_a_lost_node_returns_when_heard(world: Any) -> None:
    """Its attempts are as before, and who waited is placed on it."""
    given = world.node("n1").submit("a").silent("n1").submit("b")
    then = given.heard("n1")
    assert then.names == ["NodeReturned", "Placed"]
    assert (then.where("a"), then.where("b")) == ("n1", "n1")
    assert then.heard("n1").names == ["nothing"]
    assert given.node("n1").names == ["NodeReturned", "Placed"], "a rejoin is a sign of life"


def test_the_unknown_are_neither_lost_nor_returned(world: Any) -> None:
    """Silence of what never joined means nothing."""
    assert world.silent("n1").names == ["nothing"]
    assert world.heard("n1").names == ["nothing"]


def test_a_task_that_waits_out_a_loss_may_finish_late(world: Any) -> None:
    """No timer ends it; its report counts whenever it comes."""
    given = world.node("n1").node("n2").submit("a")
    lost = given.silent(given.where("a"))
    assert lost.timers == []
    assert lost.later(10**7).finish("a").said("Released").outcome == "succeeded"


def test_a_requeued_task_goes_elsewhere_after_the_wait(world: Any, faults: Any) -> None:
    """It counts for no failure; the lost node's room is given to nobody before it is back."""
    given = world.node("n1", cpu_milli=1000).node("n2", cpu_milli=2000)
    given = given.submit("a", on_node_loss=REQUEUE, tokens=70).silent("n1")
    assert given.timers == ["loss"]
    then = given.fire("loss")
    assert then.now_ms == given.now_ms + LOSS_WAIT_MS
    assert then.names == ["AttemptEnded", "Placed"]
    assert then.said("AttemptEnded").outcome == "node_lost"
    placed = then.said("Placed")
    assert (placed.node, placed.attempt, placed.lease_base_tokens) == ("n2", 2, 70)
    assert then.run("a").failures == 0
    assert then.timers == []
    full = then.submit("b").submit("c")
    assert (full.where("b"), full.where("c")) == ("n2", None)
    back = full.heard("n1")
    assert back.where("c") == "n1"
    assert faults(back.state) == []


def test_a_late_report_of_a_requeued_attempt_is_stale(world: Any) -> None:
    """Its fence is the old one."""
    given = world.node("n1").submit("a", on_node_loss=REQUEUE)
    fence = given.run("a").attempt.fence
    then = given.node("n2").silent("n1").fire("loss").heard("n1")
    assert then.where("a") == "n2"
    late = then.finish("a", party="n1", attempt=1, fence=fence)
    assert late.names == ["nothing"]
    assert late.where("a") == "n2"


def test_a_node_that_is_back_in_time_keeps_its_requeueable_task(world: Any) -> None:
    """The timer is gone with the loss."""
    given = world.node("n1").submit("a", on_node_loss=REQUEUE).silent("n1").later(20_000)
    then = given.heard("n1")
    assert then.timers == []
    assert then.where("a") == "n1"


def test_the_end_on_a_lost_node_touches_its_timer(world: Any) -> None:
    """The report got through: nothing is left to requeue, and the shell looks at the node again."""
    given = world.node("n1").submit("a", on_node_loss=REQUEUE).silent("n1")
    then = given.finish("a")
    assert then.timers == ["forget"]
    assert "node/n1" in then.scenario.decider.touched(then.scenario.log[-1])


@pytest.mark.parametrize(
    ("on_node_loss", "names"),
    [
        pytest.param(OnNodeLoss.WAIT, ["NodeUpdated", "Released"], id="wait"),
        pytest.param(REQUEUE, ["NodeUpdated", "AttemptEnded", "Placed"], id="requeue"),
    ],
)
def test_a_new_boot_ends_what_ran(
    world: Any, on_node_loss: OnNodeLoss, names: list[str], faults: Any
) -> None:
    """Nothing of before runs there: node_lost, or again where the manifest allows it."""
    then = world.node("n1").submit("a", on_node_loss=on_node_loss).node("n1", boot=2)
    assert then.names == names
    assert then.events[1].outcome == "node_lost"
    assert faults(then.state) == []


def test_a_new_boot_of_a_lost_node_says_all_of_it(world: Any) -> None:
    """Updated, returned, ended, and the waiting run gets the room."""
    given = world.node("n1", cpu_milli=1000).submit("a").submit("b").silent("n1")
    then = given.node("n1", boot=2, cpu_milli=1000)
    assert then.names == ["NodeUpdated", "NodeReturned", "Released", "Placed"]
    assert then.where("b") == "n1"


def test_a_requested_end_overrides_the_requeue(world: Any) -> None:
    """The node is gone and the user wanted the end: that is the end."""
    given = world.node("n1").node("n2").submit("a", on_node_loss=REQUEUE).stop("a")
    node = given.where("a")
    rebooted = given.node(node, boot=2)
    assert rebooted.said("Released").outcome == Outcome.CANCELLED
    assert given.silent(node).fire("loss").said("Released").outcome == Outcome.CANCELLED


def test_a_reboot_under_many_attempts_takes_several_decisions(world: Any, faults: Any) -> None:
    """250 attempts: none is told to the node again, each ends once, the waiting get the room."""
    given = world.node("n1", cpu_milli=2500)
    for index in range(250):
        loss = REQUEUE if index % 2 else OnNodeLoss.WAIT
        given = given.submit(f"t{index}", cpu_milli=10, memory_mib=10, on_node_loss=loss)
    then = given.node("n1", boot=2, cpu_milli=2500)
    assert len(then.events) <= 100
    assert "reboot" in then.timers
    assert {a.attempt for a in then.desired("n1").attempts} <= {2}
    done = then.settle()
    assert faults(done.state) == []
    assert sum(run.attempt is not None for run in done.state.runs.values()) == 125
    ends = [e for e in done.scenario.log if e.subject.event in ("Released", "AttemptEnded")]
    assert len(ends) == 250
    assert set(done.timers) == {"forget"}


def test_a_message_that_is_no_event_is_set_aside(world: Any) -> None:
    """It becomes an InputDeadLettered with its position and error."""
    message = Unreadable(
        Position("NODE", 1, 9), "orca.x", 5, MalformedError("body", "x", "send JSON"), "0" * 64
    )
    then = world.when(world.scenario.decider.react_unreadable(message))
    fault = then.said("InputDeadLettered").fault
    assert (fault.position, fault.subject) == ("NODE@1#9", "orca.x")
    assert "send JSON" in fault.error
