"""What placement answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from orca_placement import queries
from orca_schemas.limits import STOP_GRACE_MS
from orca_schemas.values import Outcome

GIB = 1024


def test_a_node_that_never_joined_is_told_so(world: Any) -> None:
    """Not known: it must not take the empty list for an order to clean up."""
    then = world.desired("n1")
    assert (then.known, then.sequence, then.attempts) == (False, 7, ())


def test_a_node_is_told_all_of_an_attempt(world: Any, gpu_spec: Any) -> None:
    """Spec, slots, fence, lease and a stop."""
    given = world.node("n1", gpus=1).submit("a", gpu=gpu_spec(), tokens=10).extend("a", 20)
    (attempt,) = given.desired("n1").attempts
    assert attempt.fence == given.run("a").attempt.fence
    assert attempt.slots == given.run("a").attempt.slots
    assert (attempt.granted_tokens, attempt.lease_base_tokens, attempt.stop) == (20, 0, None)
    (stopped,) = given.stop("a").desired("n1").attempts
    assert (stopped.stop.outcome, stopped.stop.grace_ms) == ("cancelled", STOP_GRACE_MS)
    assert given.finish("a").desired("n1").attempts == ()


def test_a_node_is_told_in_parts_where_one_message_is_too_small(world: Any) -> None:
    """Tenants choose how long a spec is: 20 of 100 KB are more than the broker carries at once."""
    given = world.node("n1", cpu_milli=20_000)
    for number in range(20):
        given = given.submit(f"t{number}", command=("x" * 8000,) * 12)
    found, after = [], None
    while True:
        page = given.desired("n1", after=after)
        assert 0 < len(page.model_dump_json()) < 1_000_000
        found += [attempt.run_id for attempt in page.attempts]
        after = found[-1]
        if not page.more:
            break
    assert sorted(found) == sorted(run.run_id for run in given.state.runs.values())
    assert len(found) == 20


def test_only_a_node_asks_as_a_node(world: Any) -> None:
    """A user of a namespace who is called like a node learns nothing."""
    given = world.node("n1").submit("a")
    assert given.desired("n1", namespace="team-beta").known is False
    assert len(given.desired("n1").attempts) == 1


def test_a_boot_that_placement_does_not_know_yet_is_told_nothing(world: Any) -> None:
    """What was placed before NodeJoined is read ends with it: begun, it would live twice."""
    given = world.node("n1").submit("a")
    known = given.state.nodes["n1"].boot_id
    assert len(given.desired("n1", boot_id=known).attempts) == 1
    other = given.desired("n1", boot_id=UUID(int=known.int ^ 1))
    assert (other.known, other.attempts) == (False, ())


def test_phases_follow_a_run(world: Any) -> None:
    """deferred, placed, running, stopping, retrying, ended."""
    seen = []
    steps = [
        lambda w: w.submit("a", backoff_limit=1),
        lambda w: w.node("n1"),
        lambda w: w.start("a"),
        lambda w: w.finish("a", Outcome.FAILED),
        lambda w: w.fire("retry"),
        lambda w: w.stop("a"),
        lambda w: w.finish("a", Outcome.CANCELLED),
    ]
    then = world
    for step in steps:
        then = step(then)
        seen.append(then.rows()[0].phase)
    assert seen == ["deferred", "placed", "running", "retrying", "placed", "stopping", "ended"]
    (row,) = then.rows()
    assert (row.outcome, row.node, row.attempt) == ("cancelled", "n1", 2)
    assert row.submitted_at_ms == world.now_ms
    assert isinstance(row.task_id, UUID)


def test_a_waiting_run_shows_its_place_and_the_numbers_of_now(world: Any) -> None:
    """The deferral said 0 free; who asks later hears what is free later."""
    given = world.node("n1", cpu_milli=4000).submit("a", cpu_milli=1000)
    given = given.submit("b", cpu_milli=3000).submit("c", cpu_milli=4000).submit("d")
    rows = {row.name: row for row in given.finish("a").rows()}
    assert (rows["c"].queue_position, rows["c"].reasons[0].available) == (1, 0)
    rows = {row.name: row for row in given.finish("b").rows()}
    assert rows["c"].queue_position == 1
    assert rows["c"].reasons[0].available == 2000
    assert rows["a"].queue_position is None


def test_rows_are_the_newest_of_what_the_asker_may_see(world: Any) -> None:
    """Bounded, and it says that there is more."""
    given = world.node("n1").submit("a").submit("b").submit("c")
    assert [row.name for row in given.rows(limit=2)] == ["c", "b"]
    assert given.rows(asker="team-beta") == []
    assert [row.name for row in given.rows(task_id=UUID(given.run("b").task_id))] == ["b"]
    assert given.rows(namespace="team-beta") == []


def test_a_stop_that_nobody_confirms_is_named(world: Any) -> None:
    """After its grace it is a reason."""
    given = world.node("n1").submit("a").stop("a")
    assert given.rows()[0].reasons == ()
    (reason,) = given.later(STOP_GRACE_MS + 1).rows()[0].reasons
    assert reason.code == "stop_unconfirmed"


def test_what_sits_on_a_silent_node_says_so(world: Any) -> None:
    """It may run there still: it waits for the node, stopped or not, until that speaks."""
    given = world.node("n1").submit("a").start("a").silent("n1")
    assert [reason.code for reason in given.rows()[0].reasons] == ["node_health"]
    stopped = given.stop("a").later(STOP_GRACE_MS + 1)
    assert [one.code for one in stopped.rows()[0].reasons] == ["stop_unconfirmed", "node_health"]
    assert given.heard("n1").rows()[0].reasons == ()


def test_nodes_and_gpus_show_what_is_free(world: Any, gpu_spec: Any) -> None:
    """Free amounts are what no slot takes; tasks by name."""
    given = world.node("n1", gpus=2).submit("a", gpu=gpu_spec(1, 20 * GIB, 30)).silent("n1")
    (node,) = queries.nodes(given.state, None, None).nodes  # type: ignore[arg-type]
    assert (node.status, node.cpu_milli_free, node.attempts) == ("lost", 15_000, 1)
    asker = type("Asker", (), {"namespace": "_cluster"})()
    first, second = queries.gpus(given.state, None, asker).gpus
    assert (first.milli_free, first.memory_mib_free) == (700, 60 * GIB)
    assert (first.tasks, second.tasks) == (("team-alpha/a",), ())
