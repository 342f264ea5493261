"""Why a run waits."""

from __future__ import annotations

from typing import Any

from orca_placement.limits import NEVER_FITS_GRACE_MS

GIB = 1024


def test_without_nodes_that_is_the_reason(world: Any) -> None:
    """The run is kept, with its reason, and no timer ends it."""
    then = world.submit("a")
    assert then.names == ["run", "PlacementDeferred"]
    assert then.codes("a") == {"no_nodes"}
    assert then.timers == []


def test_reasons_carry_numbers(world: Any) -> None:
    """What was asked, and the most that is free on a node."""
    then = world.node("n1", cpu_milli=4000).submit("a", cpu_milli=3000).submit("b", cpu_milli=2000)
    (reason,) = then.said("PlacementDeferred").reasons
    assert (reason.code, reason.asked, reason.available) == ("capacity_cpu", 2000, 1000)
    assert reason.field == "spec.resources.cpu"


def test_fractions_on_two_cards_are_no_room_for_their_sum(world: Any, gpu_spec: Any) -> None:
    """0.4 and 0.4 free: 0.6 waits, and is told the most that one card has."""
    taken = gpu_spec(1, 10 * GIB, 60)
    given = world.node("n1", gpus=2).submit("a", gpu=taken).submit("b", gpu=taken)
    (reason,) = given.submit("c", gpu=taken).said("PlacementDeferred").reasons
    assert (reason.code, reason.asked, reason.available) == ("capacity_gpu", 600, 400)


def test_memory_of_a_card_is_a_reason_of_its_own(world: Any, gpu_spec: Any) -> None:
    """Compute is there, memory is not."""
    given = world.node("n1", gpus=1).submit("a", gpu=gpu_spec(1, 60 * GIB, 10))
    (reason,) = given.submit("b", gpu=gpu_spec(1, 30 * GIB, 10)).said("PlacementDeferred").reasons
    assert (reason.code, reason.asked) == ("capacity_gpu_memory", 30 * GIB)
    assert reason.available == 20 * GIB


def test_compute_here_and_memory_there_is_no_room(world: Any, gpu_spec: Any) -> None:
    """One card lacks memory, the other compute: the reason counts only cards with the memory."""
    given = world.node("n1", gpus=2)
    given = given.submit("a", gpu=gpu_spec(1, 70 * GIB, 10)).submit(
        "b", gpu=gpu_spec(1, 11 * GIB, 90)
    )
    (reason,) = given.submit("c", gpu=gpu_spec(1, 40 * GIB, 50)).said("PlacementDeferred").reasons
    assert (reason.code, reason.asked, reason.available) == ("capacity_gpu", 500, 100)


def test_a_deferral_is_said_again_only_when_its_codes_change(world: Any) -> None:
    """Other numbers are no news; another code is."""
    given = world.node("n1", cpu_milli=4000, memory_mib=8 * GIB)
    given = given.submit("a", cpu_milli=2000).submit("b", cpu_milli=2000, memory_mib=6 * GIB)
    waits = given.submit("c", cpu_milli=4000, memory_mib=4 * GIB)
    assert waits.codes("c") == {"capacity_cpu", "capacity_memory"}
    assert waits.finish("a").names == ["Released"]
    then = waits.finish("b")
    assert then.names == ["Released", "PlacementDeferred"]
    assert then.codes("c") == {"capacity_cpu"}


def test_what_no_node_could_take_ends_after_the_grace(world: Any, gpu_spec: Any) -> None:
    """Eight cards, and the largest node has four: the field and both numbers are named."""
    given = world.node("n1", gpus=4).submit("a", gpu=gpu_spec(8))
    (reason,) = given.said("PlacementDeferred").reasons
    assert (reason.code, reason.field) == ("never_fits", "spec.resources.gpu.count")
    assert (reason.asked, reason.limit) == (8, 4)
    assert "spec.resources.gpu.count 8 > largest node 4" in reason.message
    then = given.fire("never_fits")
    assert then.now_ms == given.now_ms + NEVER_FITS_GRACE_MS
    released = then.said("Released")
    assert (released.outcome, released.attempt, released.node) == ("never_started", 0, None)
    assert released.reasons == (reason,)


def test_a_type_that_no_node_has_ends_likewise(world: Any, gpu_spec: Any) -> None:
    """The reason names the type."""
    then = world.node("n1", gpus=4, card="H100").submit("a", gpu=gpu_spec())
    assert then.codes("a") == {"gpu_type_absent"}
    assert then.fire("never_fits").said("Released").outcome == "never_started"


def test_a_node_that_joins_within_the_grace_saves_the_run(world: Any, gpu_spec: Any) -> None:
    """The larger node takes it, and the timer is gone."""
    given = world.node("n1", gpus=4).submit("a", gpu=gpu_spec(8)).later(9000)
    then = given.node("n2", gpus=8)
    assert then.names == ["NodeAdmitted", "Placed"]
    assert then.timers == []


def test_a_run_that_came_before_any_node_is_found_to_fit_none(world: Any, gpu_spec: Any) -> None:
    """The grace begins when the first node makes it known, wherever the run stands in the queue."""
    given = world
    for index in range(20):
        given = given.submit(f"t{index}", cpu_milli=9000)
    then = given.submit("a", gpu=gpu_spec()).node("n1")
    assert then.codes("a") == {"gpu_type_absent"}
    assert then.fire("never_fits").said("Released").run_id == then.run("a").run_id


def test_resources_that_lie_on_different_nodes_never_fit(world: Any, gpu_spec: Any) -> None:
    """No field is too large by itself; no one node has all."""
    given = world.node("n1", gpus=4, cpu_milli=2000).node("n2", gpus=1)
    (reason,) = given.submit("a", gpu=gpu_spec(4), cpu_milli=8000).said("PlacementDeferred").reasons
    assert (reason.code, reason.field) == ("never_fits", "spec.resources")


def test_a_lost_node_is_a_reason_not_a_never(world: Any) -> None:
    """The node that could take it is silent: the run waits for its return."""
    given = world.node("n1").silent("n1").submit("a")
    assert given.codes("a") == {"node_health"}
    assert given.timers == []
    assert given.heard("n1").names == ["NodeReturned", "Placed"]
