"""What admission answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from orca_admission import queries
from orca_schemas.asks import TaskQuery
from orca_schemas.identifiers import name_id


@dataclass(frozen=True)
class Ask:
    namespace: str = "team-alpha"


TEAM, BETA, CLUSTER = Ask(), Ask("team-beta"), Ask("_cluster")


def ids(*tasks: str) -> list[UUID]:
    return [name_id("task", task) for task in tasks]


def listed(world: Any, ask: Ask = TEAM, **query: Any) -> list[UUID]:
    return [row.task_id for row in queries.tasks(world.state, TaskQuery(**query), ask).tasks]


def test_a_row_says_where_a_task_stands(world: Any) -> None:
    """What was asked, who has it, what was used."""
    given = world.submit("a", gpu={"type": "A100"}, tokenQuota=500).later(7)
    given = given.placed("a", node="node-3").settled("a", 30)
    (row,) = queries.tasks(given.state, TaskQuery(), TEAM).tasks
    assert (row.phase, row.node, row.attempt, row.user, row.name) == (
        "placed", "node-3", 1, "alice", "train",
    )  # fmt: skip
    assert (row.gpu_type, row.gpu_milli, row.token_quota, row.used_tokens) == (
        "A100", 1000, 500, 30,
    )  # fmt: skip
    assert row.since_ms - row.submitted_at_ms == 7


def test_a_waiting_task_says_its_place_and_what_it_waits_for_now(world: Any) -> None:
    """Not what it waited for at first: the numbers follow the ledger."""
    given = world.submit_all("a", "b", "c", "d").submit("urgent", cpu="2", priority="urgent")
    places = {row.task_id: row.queue_position for row in _rows(given)}
    assert [places[one] for one in ids("a", "urgent", "c", "d")] == [None, 1, 2, 3]
    now = given.quota("tasks", 0)
    (row,) = [row for row in _rows(now) if row.task_id in ids("d")]
    assert (row.reasons[0].limit, row.reasons[0].available) == (0, 0)


def _rows(world: Any) -> Any:
    return queries.tasks(world.state, TaskQuery(), TEAM).tasks


def test_a_rejected_task_keeps_its_reasons(world: Any) -> None:
    """They are the answer to why it never ran."""
    given = world.quota("tasks", 0).submit("a")
    (row,) = _rows(given)
    assert (row.phase, row.outcome, row.reasons[0].code) == ("ended", "refused", "quota_tasks")


def test_the_newest_come_first_and_the_rest_is_announced(world: Any) -> None:
    """A bounded answer says that there is more."""
    given = world
    for task in ("a", "b", "c"):
        given = given.submit(task).later(10)
    answer = queries.tasks(given.state, TaskQuery(limit=2), TEAM)
    assert ([row.task_id for row in answer.tasks], answer.more) == (ids("c", "b"), True)
    assert listed(given, task_id=ids("b")[0]) == ids("b")
    assert listed(given, task_id=ids("nobody")[0]) == []


@pytest.mark.parametrize(
    ("ask", "query", "expected"),
    [
        pytest.param(TEAM, {}, ["c", "a"], id="own"),
        pytest.param(BETA, {}, ["b"], id="another-teams-own"),
        pytest.param(CLUSTER, {}, ["c", "b", "a"], id="the-cluster-sees-all"),
        pytest.param(CLUSTER, {"namespace": "team-beta"}, ["b"], id="of-one-namespace"),
        pytest.param(TEAM, {"namespace": "team-beta"}, [], id="not-anothers"),
        pytest.param(TEAM, {"task_id": ids("b")[0]}, [], id="not-anothers-by-id"),
    ],
)
def test_who_sees_which_tasks(world: Any, ask: Ask, query: Any, expected: list[str]) -> None:
    """From a namespace one sees that namespace, from ``_cluster`` all."""
    given = world.namespace("team-beta").quota("tasks", 9, namespace="team-beta")
    given = given.submit("a").later(1).submit("b", namespace="team-beta").later(1).submit("c")
    assert listed(given, ask, **query) == ids(*expected)


def test_quota_shows_limits_and_what_is_held_and_used(world: Any) -> None:
    """A dimension that nobody limits is shown once something is held of it."""
    given = world.quota("tokens", 900).submit("a", tokenQuota=500).settled("a", 100)
    rows = {
        row.dimension: (row.period, row.limit, row.held, row.committed)
        for row in queries.quota(given.state, None, TEAM).rows
    }
    assert rows == {
        "tasks": ("concurrent", 2, 1, 0),
        "tokens": ("total", 900, 400, 100),
        "cpu_milli": ("concurrent", None, 1000, 0),
        "memory_mib": ("concurrent", None, 1024, 0),
    }
    assert queries.quota(given.state, None, BETA).rows == ()


def test_holds_are_what_live_runs_hold_now(world: Any) -> None:
    """A part that was given back, and a token that was used, is not held."""
    given = world.submit("a", tokenQuota=500).submit("b").settled("a", 100).released("a")
    holds = queries.holds(given.state, None, TEAM).holds
    assert {one.dimension: one.amount for one in holds[str(given.run_id("a"))]} == {"tokens": 400}
    assert len(holds[str(given.run_id("b"))]) == 3
    assert queries.holds(given.settled("a", 100, final=True).state, None, TEAM).holds.keys() == {
        str(given.run_id("b"))
    }
