"""Leases, settlements, releases, and forgetting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from orca_admission.state import REMEMBER_MS
from orca_schemas.values import Meter

FOREIGN = UUID("019470e0-0000-7000-8000-000000000001")


def reserved(world: Any, quota: int = 250_000, limit: int = 10**6) -> Any:
    return world.quota("tokens", limit).submit("a", tokenQuota=quota).placed("a")


def test_a_top_up_hands_out_the_next_chunk_until_the_hold_is_spent(world: Any) -> None:
    """The lease is absolute, never shrinks and never passes what is held."""
    first = reserved(world).top_up("a", used=80_000)
    assert (first.names, first.last.granted_tokens) == (["LeaseExtended"], 200_000)
    second = first.top_up("a", used=190_000)
    assert second.last.granted_tokens == 250_000
    third = second.top_up("a", used=249_000)
    assert third.names == ["Noted(nothing)"]


def test_a_top_up_starts_from_what_was_used_if_that_is_more(world: Any) -> None:
    """A probe that overran its lease is not blocked for it."""
    then = reserved(world, quota=500_000).top_up("a", used=150_000)
    assert then.last.granted_tokens == 250_000


def test_an_unlimited_run_needs_no_top_up(world: Any) -> None:
    """There is nothing to extend."""
    assert world.submit("a").placed("a").top_up("a", used=1).names == ["Noted(nothing)"]


def test_a_limit_that_is_used_up_cuts_top_ups(world: Any) -> None:
    """Lowering a limit below what is used hands out nothing more; the task runs on."""
    given = reserved(world).settled("a", 50_000)
    assert given.quota("tokens", 50_000).top_up("a", used=80_000).names == ["Noted(nothing)"]
    assert given.quota("tokens", 50_001).top_up("a", used=80_000).names == ["LeaseExtended"]


@pytest.mark.parametrize(
    ("change", "ask", "code"),
    [
        pytest.param(None, {"node": "node-2"}, "not_allowed", id="another-node"),
        pytest.param(None, {"attempt": 2}, "not_allowed", id="another-attempt"),
        pytest.param(None, {"fence": "PLACEMENT@1#7"}, "not_allowed", id="another-fence"),
        pytest.param(None, {"meter": Meter.GPU}, "unsupported", id="another-meter"),
        pytest.param(None, {"run": FOREIGN}, "not_found", id="unknown-run"),
        pytest.param(lambda w: w.attempt_ended("a"), {}, "not_allowed", id="attempt-is-over"),
        pytest.param(lambda w: w.released("a"), {}, "ended", id="run-is-over"),
        pytest.param(lambda w: w.settled("a", 0, final=True), {}, "ended", id="usage-is-final"),
        pytest.param(
            lambda w: w.placed("a", attempt=2), {"attempt": 1}, "not_allowed", id="replaced"
        ),
    ],
)
def test_a_top_up_that_is_not_the_askers(world: Any, change: Any, ask: Any, code: str) -> None:
    """Only the node of the live attempt, under its fence, is handed tokens."""
    before = reserved(world)
    before = change(before) if change else before
    then = before.top_up("a", used=80_000, **ask)
    assert then.names == ["RequestRefused"]
    assert then.last.reason.code == code
    assert then.state == before.state


def test_a_settlement_moves_tokens_from_held_to_used(world: Any) -> None:
    """The totals are cumulative; what is used is held no more."""
    then = reserved(world).settled("a", 1000).settled("a", 3000)
    assert (then.names, then.last.used_tokens) == (["QuotaSettled"], 3000)
    assert (then.committed("tokens"), then.held("tokens")) == (3000, 247_000)


@pytest.mark.parametrize("used", [pytest.param(3000, id="repeat"), pytest.param(7, id="lower")])
def test_a_settlement_that_says_nothing_new_changes_nothing(world: Any, used: int) -> None:
    """Delivered twice or out of date, it counts once."""
    before = reserved(world).settled("a", 3000)
    then = before.settled("a", used)
    assert then.names == ["Noted(nothing)"]
    assert then.state == before.state


def test_tokens_of_a_run_that_holds_none_are_committed(world: Any) -> None:
    """Measured is measured."""
    then = world.submit("a").settled("a", 70)
    assert (then.names, then.committed("tokens"), then.held("tokens")) == (["QuotaSettled"], 70, 0)


def test_a_spent_quota_stops_the_task_once(world: Any) -> None:
    """With the numbers; usage that trickles in later is committed and stops nothing again."""
    then = reserved(world, quota=5000).settled("a", 5001)
    assert then.names == ["QuotaSettled", "TaskStopRequested"]
    assert then.last.outcome == "quota_exhausted"
    assert "used 5001 of 5000 tokens" in then.last.message
    assert (then.committed("tokens"), then.held("tokens")) == (5001, 0)
    assert then.settled("a", 5002).names == ["QuotaSettled"]
    assert then.phases("a") == ["stopping"]


@pytest.mark.parametrize(
    ("given", "used", "final"),
    [
        pytest.param(lambda w: reserved(w, quota=5000), 4999, False, id="not-spent"),
        pytest.param(lambda w: reserved(w, quota=5000), 5000, True, id="final"),
        pytest.param(lambda w: reserved(w, quota=5000).released("a"), 5000, False, id="ended"),
        pytest.param(lambda w: reserved(w, quota=5000).cancel("a"), 5000, False, id="stopping"),
        pytest.param(lambda w: w.submit("a"), 5000, False, id="unlimited"),
    ],
)
def test_nobody_is_stopped_without_need(world: Any, given: Any, used: int, final: bool) -> None:
    """The quota is not spent, the task is ending anyway, or nothing limits it."""
    then = given(world).settled("a", used, final=final)
    assert "TaskStopRequested" not in then.names


def test_a_task_without_a_token_quota_in_a_limited_namespace_may_use_none(world: Any) -> None:
    """A GPU-only settlement stops nobody; the first token does."""
    given = world.quota("tokens", 10**6).submit("a")
    assert given.settled("a", 0).names == ["Noted(nothing)"]
    assert given.settled("a", 1).names == ["QuotaSettled", "TaskStopRequested"]


def test_each_part_is_given_back_once_whatever_comes_first(world: Any) -> None:
    """Devices on Released, tokens when usage is final; repeats change nothing."""
    given = reserved(world)
    one = given.released("a").settled("a", 1000, final=True)
    other = given.settled("a", 1000, final=True).released("a")
    assert given.settled("a", 1000, final=True).phases("a") == ["placed"]
    for then in (one, other):
        assert (then.held("tasks"), then.held("cpu_milli"), then.held("tokens")) == (0, 0, 0)
        assert then.committed("tokens") == 1000
        assert then.released("a").names == ["Noted(nothing)"]
        assert then.settled("a", 1000, final=True).names == ["Noted(nothing)"]
        assert then.settled("a", 1500).names == ["QuotaSettled"]
        assert then.settled("a", 1500).committed("tokens") == 1500


def test_a_release_names_what_was_still_held(world: Any) -> None:
    """The amounts of a part and run add up to what was reserved."""
    given = reserved(world).settled("a", 1000)
    devices = given.released("a").last
    tokens = given.settled("a", 1500, final=True).last
    assert {one.dimension: one.amount for one in devices.amounts} == {
        "cpu_milli": 1000,
        "memory_mib": 1024,
        "tasks": 1,
    }
    assert {one.dimension: one.amount for one in tokens.amounts} == {"tokens": 248_500}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda w: w.released("a", run=FOREIGN), id="released"),
        pytest.param(lambda w: w.settled("a", 5, final=True, run=FOREIGN), id="settled"),
    ],
)
def test_a_foreign_run_changes_nothing(world: Any, what: Any) -> None:
    """It was reserved before this log began, or never."""
    before = world.submit("a")
    then = what(before)
    assert then.names == ["Noted(nothing)"]
    assert then.state == before.state


def test_a_finished_run_is_forgotten_after_36_days_and_not_before(world: Any) -> None:
    """Until then its task id is taken and late usage is committed; afterwards nothing is left."""
    given = reserved(world).released("a").later(5).settled("a", 9, final=True)
    (due,) = given.scenario.due()
    assert (due.kind, due.at_ms) == ("forget", given.now_ms + REMEMBER_MS)
    early = given.later(REMEMBER_MS - 1)
    assert early.all_due().submit("a").names == ["RequestRefused"]
    then = given.later(REMEMBER_MS).all_due()
    assert then.names == ["Noted(forget)"]
    assert (dict(then.state.runs), dict(then.state.tasks)) == ({}, {})
    assert then.scenario.due() == ()
    assert then.submit("a").names == ["QuotaReserved"]
    assert replace(then, scenario=then.scenario.when(due)).names == ["Noted(nothing)"]


def test_a_run_whose_usage_is_not_final_is_not_forgotten(world: Any) -> None:
    """It still holds tokens, and says so."""
    then = reserved(world).released("a")
    assert then.scenario.due() == ()
    assert then.held("tokens") == 250_000


def test_a_rejected_task_is_forgotten_too(world: Any) -> None:
    """The state does not grow with what was refused."""
    given = world.quota("tasks", 0).submit("a")
    assert given.later(REMEMBER_MS).all_due().state.runs.get(given.run_id("a")) is None
