"""Where a run goes."""

from __future__ import annotations

from typing import Any

import pytest
from orca_schemas.manifest import Priority

GIB = 1024


def test_a_reserved_run_is_placed_at_once(world: Any) -> None:
    """One event says node, attempt and lease, addressed to the node."""
    then = world.node("n1").submit("a", tokens=500)
    assert then.names == ["Placed"]
    placed = then.said("Placed")
    assert (placed.node, placed.attempt, placed.slots) == ("n1", 1, ())
    assert (placed.granted_tokens, placed.lease_base_tokens) == (500, 0)
    assert then.party_of("Placed") == "n1"
    assert then.on("n1").cpu_free_milli == 15_000
    assert then.on("n1").memory_free_mib == 64 * GIB - 1024


def test_an_exclusive_gpu_is_the_whole_card(world: Any, gpu_spec: Any) -> None:
    """The slot holds 1000 milli and all memory of that card."""
    then = world.node("n1", gpus=2).submit("a", gpu=gpu_spec())
    (slot,) = then.said("Placed").slots
    assert (slot.gpu_milli, slot.memory_mib, slot.exclusive) == (1000, 80 * GIB, True)
    assert slot.gpu_uuid == "GPU-n1-0"


def test_shares_fill_one_card_before_they_begin_another(world: Any, gpu_spec: Any) -> None:
    """Three thirds by memory share a card; the whole card beside it stays whole."""
    share = gpu_spec(1, 20 * GIB, 30)
    then = world.node("n1", gpus=2).submit("a", gpu=share).submit("b", gpu=share)
    then = then.submit("c", gpu=share)
    assert {then.run(task).attempt.slots[0].gpu_uuid for task in "abc"} == {"GPU-n1-0"}
    assert then.submit("d", gpu=gpu_spec()).said("Placed").slots[0].gpu_uuid == "GPU-n1-1"


@pytest.mark.parametrize(
    ("memory_gib", "percent"),
    [pytest.param(41, 10, id="memory"), pytest.param(1, 51, id="compute")],
)
def test_shares_never_exceed_a_card(
    world: Any, gpu_spec: Any, memory_gib: int, percent: int
) -> None:
    """Two shares of more than half a card need two cards."""
    share = gpu_spec(1, memory_gib * GIB, percent)
    then = world.node("n1", gpus=2).submit("a", gpu=share).submit("b", gpu=share)
    assert then.run("a").attempt.slots[0].gpu_uuid != then.run("b").attempt.slots[0].gpu_uuid
    assert then.submit("c", gpu=share).names == ["run", "PlacementDeferred"]


def test_several_gpus_are_distinct_cards_of_one_node(world: Any, gpu_spec: Any) -> None:
    """Two nodes with one free card each are no room for two cards."""
    then = world.node("n1", gpus=2).node("n2", gpus=2)
    then = then.submit("a", gpu=gpu_spec()).submit("b", gpu=gpu_spec(2))
    assert (then.where("a"), then.where("b")) == ("n1", "n2")
    assert len({slot.gpu_uuid for slot in then.run("b").attempt.slots}) == 2
    assert then.submit("c", gpu=gpu_spec(2)).codes("c") == {"capacity_gpu"}


def test_the_fuller_gpu_node_is_preferred(world: Any, gpu_spec: Any) -> None:
    """Bin packing: the second run joins the first, so that n2 stays whole."""
    then = world.node("n2", gpus=4).node("n1", gpus=4)
    then = then.submit("a", gpu=gpu_spec()).submit("b", gpu=gpu_spec())
    assert (then.where("a"), then.where("b")) == ("n1", "n1")
    assert then.submit("c", gpu=gpu_spec(4)).where("c") == "n2"


def test_cpu_tasks_leave_gpu_nodes_alone_while_they_can(world: Any) -> None:
    """A node without GPUs is taken first, the fuller one of those; GPU nodes only at the end."""
    then = world.node("a-gpu", gpus=1).node("n1").node("n2", cpu_milli=8000)
    assert then.submit("a").where("a") == "n2"
    full = then.submit("b", cpu_milli=16_000).submit("c", cpu_milli=8000)
    assert (full.where("b"), full.where("c")) == ("n1", "n2")
    assert full.submit("d").where("d") == "a-gpu"


def test_cpu_and_memory_are_held_by_gpu_tasks_too(world: Any, gpu_spec: Any) -> None:
    """A free card on a node without free CPU takes nothing."""
    then = world.node("n1", gpus=2).submit("a", cpu_milli=16_000)
    then = then.submit("b", gpu=gpu_spec())
    assert then.codes("b") == {"capacity_cpu"}
    assert then.submit("c", memory_mib=65_536).codes("c") == {"capacity_cpu", "capacity_memory"}


def test_what_waits_is_placed_when_room_comes(world: Any) -> None:
    """The end of one run places the next in the same decision."""
    then = world.node("n1", cpu_milli=1000).submit("a").submit("b").finish("a")
    assert then.names == ["Released", "Placed"]
    assert then.where("b") == "n1"


def test_urgent_runs_go_first_and_equals_in_their_order(world: Any) -> None:
    """Priority ranks; among equals who came first."""
    given = world.node("n1", cpu_milli=1000).submit("a")
    given = given.submit("low", priority=Priority.LOW).submit("n-1").submit("n-2")
    then = given.submit("urgent", priority=Priority.URGENT)
    order = []
    for _ in range(4):
        live = next(run.spec.name for run in then.state.runs.values() if run.attempt)
        then = then.finish(live)
        order.append(next(run.spec.name for run in then.state.runs.values() if run.attempt))
    assert order == ["urgent", "n-1", "n-2", "low"]


def test_a_small_run_goes_where_a_large_one_before_it_does_not_fit(world: Any) -> None:
    """The queue is no convoy: what fits, goes."""
    given = world.node("n1", cpu_milli=4000).submit("a", cpu_milli=3000)
    then = given.submit("large", cpu_milli=4000).submit("small")
    assert (then.where("large"), then.where("small")) == (None, "n1")


def test_a_repeated_reservation_changes_nothing(world: Any) -> None:
    """A run is known by its id."""
    assert world.node("n1").submit("a").submit("a").names == ["nothing"]


def test_a_pass_never_says_more_than_a_decision_may(world: Any) -> None:
    """150 runs that fit at once take two decisions: a rescan is owed, and a timer pays it."""
    given = world
    for index in range(150):
        given = given.submit(f"t{index}", cpu_milli=10, memory_mib=10)
    then = given.node("n1")
    assert len(then.events) <= 100
    assert then.names[-1] == "rescan"
    waiting = [run.spec.name for run in then.state.runs.values() if run.attempt is None]
    assert then.submit("late", cpu_milli=10, memory_mib=10).codes("late") == {"priority"}
    done = then.submit("late", cpu_milli=10, memory_mib=10).settle()
    assert len(waiting) > 0
    assert all(run.attempt for run in done.state.runs.values())
    assert done.state.rescan is None


def test_who_comes_while_a_rescan_is_owed_does_not_pass_the_queue(world: Any) -> None:
    """The latest run is placed last, though there was room when it came."""
    given = world
    for index in range(150):
        given = given.submit(f"t{index}", cpu_milli=10, memory_mib=10)
    done = given.node("n1").submit("late", cpu_milli=10, memory_mib=10).settle()
    order = [e.data.spec.name for e in done.scenario.log if e.subject.event == "Placed"]
    assert order == [*(f"t{index}" for index in range(150)), "late"]
