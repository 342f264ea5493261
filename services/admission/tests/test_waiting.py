"""Who is let in once something comes free."""

from __future__ import annotations

from typing import Any

import pytest
from orca_runtime.decider import MAX_DECISION_EVENTS


def test_a_release_lets_the_next_in(world: Any) -> None:
    """In the same decision, with the same spec."""
    given = world.submit_all("a", "b", "c", "d")
    then = given.released("a")
    assert then.names == ["QuotaReleased", "QuotaReserved"]
    assert then.last.run_id == given.run_id("c")
    assert then.phases("a", "b", "c", "d") == ["ended", "reserved", "reserved", "queued"]


def test_the_higher_priority_goes_first_then_the_earlier(world: Any) -> None:
    """Priority orders the queue, submission breaks the tie."""
    given = world.submit_all("a", "b").submit_all("low", priority="low")
    given = given.submit_all("first", "second").submit("urgent", priority="urgent")
    order = []
    for task in ("a", "b", "urgent", "first"):
        given = given.released(task)
        order.append(given.last.run_id)
    assert order == [given.run_id(task) for task in ("urgent", "first", "second", "low")]


def test_one_that_does_not_fit_holds_nobody_up(world: Any) -> None:
    """The queue is best effort: the smaller one behind it runs."""
    given = world.quota("cpu_milli", 2000).submit("a").submit("large", cpu="2")
    then = given.submit("small", cpu="1")
    assert then.phases("large", "small") == ["queued", "reserved"]


def test_one_that_fits_no_more_holds_nobody_up_within_a_release(world: Any) -> None:
    """What one release frees goes to the first and the third when the second is too large."""
    given = world.quota("tasks", 9).quota("cpu_milli", 3000).submit("a", cpu="3")
    given = given.submit("b", cpu="2").submit("c", cpu="1500m").submit("d", cpu="1")
    then = given.released("a")
    assert then.names == ["QuotaReleased", "QuotaReserved", "QuotaReserved"]
    assert then.phases("b", "c", "d") == ["reserved", "queued", "reserved"]


def test_an_equal_request_does_not_overtake(world: Any) -> None:
    """The one that came first is let in first."""
    given = world.submit_all("a", "b", "c", "d").released("b")
    assert given.phases("c", "d") == ["reserved", "queued"]


def test_a_raised_limit_takes_effect_at_once(world: Any) -> None:
    """The setting and those whom it lets in are one decision."""
    given = world.submit_all("a", "b", "c", "d", "e")
    then = given.quota("tasks", 4)
    assert then.names == ["Noted(limit)", "QuotaReserved", "QuotaReserved"]
    assert then.phases("c", "d", "e") == ["reserved", "reserved", "queued"]


def test_a_lowered_limit_admits_nothing_more_and_evicts_nobody(world: Any) -> None:
    """What runs runs on; one that waits above the limit stays, with that reason."""
    given = world.submit_all("a", "b", "c").quota("tasks", 1)
    assert given.names == ["Noted(limit)"]
    then = given.released("a")
    assert then.names == ["QuotaReleased"]
    assert then.phases("b", "c") == ["reserved", "queued"]
    assert then.released("b").phases("c") == ["reserved"]


def test_tokens_given_back_let_a_waiting_task_in(world: Any) -> None:
    """What a run held and did not use is free again once its usage is final."""
    given = world.quota("tokens", 1000).submit("a", tokenQuota=900).submit("b", tokenQuota=500)
    given = given.released("a")
    assert given.phases("b") == ["queued"]
    then = given.settled("a", 300, final=True)
    assert then.names == ["QuotaSettled", "QuotaReleased", "QuotaReserved"]
    assert (then.committed("tokens"), then.held("tokens")) == (300, 500)


def test_a_decision_is_bounded_and_a_timer_goes_on(world: Any) -> None:
    """150 tasks that fit at once come in two decisions, in order, and then nothing is left."""
    tasks = [f"t{number}" for number in range(150)]
    given = world.submit_all(*(["a", "b", *tasks]))
    then = given.quota("tasks", 1000)
    assert len(then.said) == MAX_DECISION_EVENTS
    assert (then.names[0], then.names[-1]) == ("Noted(limit)", "Noted(rescan)")
    assert then.phases(*tasks).count("reserved") == MAX_DECISION_EVENTS - 2
    (due,) = then.scenario.due()
    assert (due.entity, due.kind, due.at_ms) == ("queue/team-alpha", "rescan", then.now_ms)
    assert due.origin == then.log[-1].position
    done = then.all_due()
    assert set(done.phases(*tasks)) == {"reserved"}
    assert done.scenario.due() == ()
    assert [one.data.run_id for one in done.log if type(one.data).__name__ == "QuotaReserved"] == [
        done.run_id(task) for task in ["a", "b", *tasks]
    ]


def test_while_the_look_is_unfinished_nobody_overtakes(world: Any) -> None:
    """A task submitted in between is let in after those that wait, though it fits."""
    given = world.submit_all("a", "b", *(f"t{number}" for number in range(150)))
    between = given.quota("tasks", 1000).submit("late", cpu="2")
    assert between.names == ["TaskQueued"]
    assert between.last.blockers[0].code == "priority"
    then = between.all_due()
    assert then.phases("late") == ["reserved"]
    assert then.last.run_id == then.run_id("late")


def test_a_look_that_finds_nobody_ends_too(world: Any) -> None:
    """Usage beyond the hold took what was free: the timer is answered and does not come back."""
    given = world.quota("tokens", 10**6).submit("a", tokenQuota=1).submit("b")
    given = given.submit_all(*(f"t{number}" for number in range(150)), tokenQuota=10)
    given = given.quota("tasks", 1000).settled("a", 10**6)
    then = given.all_due()
    assert then.names == ["Noted(nothing)"]
    assert then.scenario.due() == ()
    assert "queued" in then.phases("t149")


@pytest.mark.parametrize("count", [pytest.param(1000, id="a-thousand-equal-tasks")])
def test_a_long_queue_drains_in_order(world: Any, count: int) -> None:
    """Every submitted task runs in its turn and is given back."""
    tasks = [f"t{number}" for number in range(count)]
    given = world.submit_all(*tasks)
    for task in tasks:
        assert given.phases(task) == ["reserved"]
        given = given.released(task).settled(task, 0, final=True)
    assert set(given.phases(*tasks)) == {"ended"}
    assert given.held("tasks") == 0
