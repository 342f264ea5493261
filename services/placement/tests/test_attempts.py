"""How attempts begin, end and are repeated."""

from __future__ import annotations

from typing import Any

import pytest
from orca_placement.attempts import backoff_ms
from orca_placement.limits import BACKOFF_MAX_MS, FORGET_MS
from orca_schemas.limits import STOP_GRACE_MS
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Outcome

FAILED = Outcome.FAILED


def test_a_success_releases_the_run_with_what_it_used(world: Any) -> None:
    """Outcome, attempt, node and meters pass through; the room is free."""
    then = world.node("n1").submit("a", tokens=100).start("a").finish("a", tokens=40)
    released = then.said("Released")
    assert (released.outcome, released.attempt, released.node) == ("succeeded", 1, "n1")
    assert released.used[0].used == 40
    assert then.on("n1").cpu_free_milli == 16_000
    assert then.on("n1").runs == ()


def test_a_start_is_noted_once(world: Any) -> None:
    """The repeat changes nothing."""
    then = world.node("n1").submit("a").start("a")
    assert then.names == ["start"]
    assert then.start("a").names == ["nothing"]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"fence": "PLACEMENT@1#1"}, id="fence"),
        pytest.param({"attempt": 2}, id="attempt"),
        pytest.param({"party": "n2"}, id="another-node"),
    ],
)
@pytest.mark.parametrize("verb", ["start", "finish", "refuse"])
def test_a_report_of_another_attempt_or_node_changes_nothing(
    world: Any, verb: str, wrong: dict[str, Any]
) -> None:
    """Party, attempt and fence must all be those of the live attempt."""
    given = world.node("n1").node("n2").submit("a")
    then = getattr(given, verb)("a", **wrong)
    assert then.names == ["nothing"]
    assert then.where("a") == given.where("a")


def test_a_failure_is_repeated_after_a_growing_wait(world: Any) -> None:
    """Two retries: 1 s, 2 s, then the failure is final."""
    given = world.node("n1").submit("a", backoff_limit=2)
    once = given.finish("a", FAILED)
    assert once.names == ["AttemptEnded"]
    assert once.said("AttemptEnded").retry_at_ms == once.now_ms + 1000
    again = once.fire("retry")
    assert again.said("Placed").attempt == 2
    twice = again.finish("a", Outcome.OUT_OF_MEMORY)
    assert twice.said("AttemptEnded").retry_at_ms == twice.now_ms + 2000
    last = twice.fire("retry").finish("a", FAILED)
    assert last.names == ["Released"]
    assert (last.said("Released").outcome, last.said("Released").attempt) == ("failed", 3)


def test_the_wait_is_bounded() -> None:
    """It doubles, and never exceeds five minutes."""
    assert [backoff_ms(n) for n in (1, 2, 3, 9)] == [1000, 2000, 4000, 256_000]
    assert backoff_ms(10) == backoff_ms(1000) == BACKOFF_MAX_MS


@pytest.mark.parametrize("outcome", [Outcome.IMAGE_ERROR, Outcome.QUOTA_EXHAUSTED])
def test_other_outcomes_are_final(world: Any, outcome: Outcome) -> None:
    """Only failures and lack of memory are repeated."""
    then = world.node("n1").submit("a", backoff_limit=5).finish("a", outcome)
    assert then.said("Released").outcome == outcome


def test_a_loss_that_the_node_itself_reports_is_requeued(world: Any) -> None:
    """The watchdog ended it and the node is back in time: as if the loss had been waited out."""
    given = world.node("n1").submit("a", tokens=100, on_node_loss=OnNodeLoss.REQUEUE)
    then = given.silent("n1").heard("n1").finish("a", Outcome.NODE_LOST, tokens=30)
    assert then.names == ["AttemptEnded"]
    again = then.fire("retry")
    placed = again.said("Placed")
    assert (placed.attempt, placed.lease_base_tokens) == (2, 30)
    twice = again.finish("a", Outcome.NODE_LOST)
    assert twice.said("AttemptEnded").retry_at_ms == twice.now_ms + 2000
    assert twice.run("a").failures == 0


def test_a_loss_that_the_node_reports_ends_what_may_not_run_twice(world: Any) -> None:
    """Without ``onNodeLoss: requeue``, or where a stop was ordered, it is final."""
    waits = world.node("n1").submit("a", backoff_limit=5).finish("a", Outcome.NODE_LOST)
    assert waits.said("Released").outcome == "node_lost"
    stopped = world.node("n1").submit("a", on_node_loss=OnNodeLoss.REQUEUE).stop("a")
    assert stopped.finish("a", Outcome.NODE_LOST).names == ["Released"]


def test_a_retry_keeps_its_place_in_the_queue(world: Any) -> None:
    """After its backoff it stands before those that came later."""
    given = world.node("n1", cpu_milli=1000).submit("a", backoff_limit=1)
    given = given.finish("a", FAILED).submit("b").submit("c")
    assert given.where("b") == "n1"
    assert given.fire("retry").finish("b").said("Placed").run_id == given.run("a").run_id


def test_a_retry_leases_only_what_is_left(world: Any) -> None:
    """The base is what earlier attempts used; where nobody knows, all that was granted then."""
    given = world.node("n1").submit("a", tokens=100, backoff_limit=2)
    known = given.finish("a", FAILED, tokens=30).fire("retry")
    assert known.said("Placed").lease_base_tokens == 30
    more = known.extend("a", 250).finish("a", FAILED, tokens=None).fire("retry")
    placed = more.said("Placed")
    assert (placed.granted_tokens, placed.lease_base_tokens) == (250, 250)


def test_usage_beyond_any_amount_holds_up_nobody(world: Any) -> None:
    """A task says itself what it used: no Placed may fail by it, its own or a later one."""
    given = world.node("n1", cpu_milli=1000).submit("a", backoff_limit=5)
    for _ in range(2):
        given = given.finish("a", FAILED, tokens=MAX_AMOUNT).fire("retry")
    assert given.said("Placed").lease_base_tokens == MAX_AMOUNT
    waits = given.finish("a", FAILED, tokens=MAX_AMOUNT).submit("b").fire("retry")
    assert waits.finish("b").said("Placed").run_id == given.run("a").run_id


def test_a_larger_grant_goes_to_the_live_attempt(world: Any) -> None:
    """Absolute, addressed to the node; a smaller or equal one is no news."""
    then = world.node("n1").submit("a", tokens=100).extend("a", 200)
    update = then.said("LeaseUpdated")
    assert (update.granted_tokens, update.attempt) == (200, 1)
    assert update.fence == then.run("a").attempt.fence
    assert then.party_of("LeaseUpdated") == "n1"
    assert then.extend("a", 200).names == ["nothing"]


def test_a_grant_for_a_waiting_run_is_remembered(world: Any) -> None:
    """The next Placed carries it."""
    given = world.submit("a", tokens=100).extend("a", 300)
    assert given.names == ["run"]
    assert given.node("n1").said("Placed").granted_tokens == 300


def test_a_stop_of_a_waiting_run_ends_it(world: Any) -> None:
    """Nothing runs: it is released as never placed, and leaves the queue."""
    then = world.submit("a").stop("a")
    released = then.said("Released")
    assert (released.outcome, released.attempt, released.node) == ("cancelled", 0, None)
    assert then.node("n1").names == ["NodeAdmitted"]


def test_a_stop_of_a_retrying_run_ends_it(world: Any) -> None:
    """Between attempts nothing runs either, and no retry follows."""
    given = world.node("n1").submit("a", backoff_limit=1).finish("a", FAILED)
    then = given.stop("a")
    assert then.said("Released").attempt == 0
    assert then.timers == ["forget"]


def test_a_stop_of_a_live_attempt_is_ordered_once(world: Any) -> None:
    """The slot stays taken until the node reports the end."""
    given = world.node("n1").submit("a").stop("a")
    order = given.said("StopOrdered")
    assert (order.outcome, order.grace_ms) == ("cancelled", STOP_GRACE_MS)
    assert given.party_of("StopOrdered") == "n1"
    assert given.on("n1").cpu_free_milli == 15_000
    assert given.stop("a").names == ["nothing"]
    assert given.finish("a", Outcome.CANCELLED).said("Released").outcome == "cancelled"


def test_a_stop_forbids_the_retry_and_the_containers_own_exit_wins(world: Any) -> None:
    """Failed after the stop: final, and it is told as it was."""
    given = world.node("n1").submit("a", backoff_limit=5).stop("a")
    assert given.finish("a", FAILED).said("Released").outcome == "failed"
    assert given.finish("a").said("Released").outcome == "succeeded"


def test_a_stop_of_an_ended_or_unknown_run_changes_nothing(world: Any) -> None:
    """There is nothing to end."""
    given = world.node("n1").submit("a").finish("a")
    assert given.stop("a").names == ["nothing"]
    assert given.stop("b").names == ["nothing"]
    assert given.extend("a", 5).names == ["nothing"]


def test_the_deadline_counts_from_the_first_start(world: Any) -> None:
    """Its timer orders the stop; a second attempt does not begin it anew."""
    given = world.node("n1").submit("a", active_deadline_ms=60_000, backoff_limit=1)
    assert given.timers == []
    started = given.later(500).start("a")
    assert started.fire("deadline").said("StopOrdered").outcome == "deadline_exceeded"
    again = started.later(10_000).finish("a", FAILED).fire("retry").start("a")
    then = again.fire("deadline")
    assert then.now_ms == started.now_ms + 60_000
    assert then.names == ["StopOrdered"]
    assert "deadline" not in then.timers


def test_the_deadline_ends_a_run_that_waits_between_attempts(world: Any) -> None:
    """Nothing runs then: it is released."""
    given = world.node("n1").submit("a", active_deadline_ms=500, backoff_limit=1).start("a")
    then = given.finish("a", FAILED).fire("deadline")
    assert then.said("Released").outcome == "deadline_exceeded"


@pytest.mark.parametrize("skew_ms", [-(10**9), 10**9])
def test_a_nodes_clock_cannot_move_the_deadline_far(world: Any, skew_ms: int) -> None:
    """The start lies between Placed and its report, whatever the node says."""
    given = world.node("n1").submit("a", active_deadline_ms=60_000).later(2000)
    then = given.start("a", started_at_ms=given.now_ms + skew_ms)
    (due,) = then.scenario.due()
    assert given.now_ms - 2000 <= due.at_ms - 60_000 <= given.now_ms


def test_a_refusal_sends_the_run_elsewhere(world: Any) -> None:
    """The refusing node is not asked again; the run is placed in the same decision."""
    given = world.node("n1").node("n2").submit("a")
    then = given.refuse("a")
    assert then.names == ["AttemptEnded", "Placed"]
    assert {given.where("a"), then.where("a")} == {"n1", "n2"}
    last = then.refuse("a")
    assert (last.said("Released").outcome, last.said("Released").attempt) == ("never_started", 2)
    assert last.codes("a") == {"unsupported"}


def test_a_refused_run_waits_for_a_node_that_did_not_refuse(world: Any) -> None:
    """n2 is full: the run waits, and takes it when it is free, not n1."""
    given = world.node("n1").node("n2", cpu_milli=8000)
    given = given.submit("full", cpu_milli=8000).submit("a", cpu_milli=8000)
    assert (given.where("full"), given.where("a")) == ("n2", "n1")
    then = given.refuse("a")
    assert then.names == ["AttemptEnded", "PlacementDeferred"]
    assert then.codes("a") == {"capacity_cpu", "node_health"}
    assert then.finish("full").said("Placed").node == "n2"


def test_a_refusal_frees_the_room_for_others(world: Any) -> None:
    """Who waited for it is placed."""
    given = world.node("n1", cpu_milli=1000).submit("a").submit("b")
    then = given.refuse("a")
    assert then.names == ["Released", "Placed"]
    assert then.where("b") == "n1"


def test_a_refusal_after_a_stop_is_the_requested_end(world: Any) -> None:
    """A requested end overrides going elsewhere."""
    then = world.node("n1").node("n2").submit("a").stop("a").refuse("a")
    assert then.said("Released").outcome == "cancelled"


def test_an_ended_run_is_forgotten_after_an_hour(world: Any) -> None:
    """Then late reports still change nothing."""
    given = world.node("n1").submit("a").finish("a")
    then = given.fire("forget")
    assert then.now_ms == given.now_ms + FORGET_MS
    assert then.names == ["forget"]
    assert len(then.state.runs) == 0
    assert then.timers == []
    assert then.finish("a").names == ["nothing"]


def test_a_timer_that_was_overtaken_changes_nothing(world: Any) -> None:
    """The stop came first; the retry that was already due is answered by a note."""
    given = world.node("n1").submit("a", backoff_limit=1).finish("a", FAILED)
    (due,) = given.scenario.due()
    assert given.stop("a").later(2000).when(due).names == ["nothing"]
    assert given.when(due).names == ["nothing"], "too early"
