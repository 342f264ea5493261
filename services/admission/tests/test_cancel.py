"""Who may cancel what."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("by", [pytest.param("alice", id="owner"), pytest.param("ada", id="admin")])
def test_a_waiting_task_ends_at_once(world: Any, by: str) -> None:
    """It never held anything; what waits behind it moves up."""
    given = world.submit_all("a", "b", "c", "d")
    then = given.cancel("c", by=by, why="wrong data")
    assert then.names == ["TaskRejected"]
    assert (then.last.outcome, then.last.reasons[0].code) == ("cancelled", "cancelled")
    assert then.last.reasons[0].message == f"cancelled by {by}: wrong data"
    assert then.released("a").phases("c", "d") == ["ended", "reserved"]


def test_a_reserved_task_is_asked_to_stop_and_holds_until_it_has(world: Any) -> None:
    """Its quota is given back only when placement says that it is over."""
    then = world.submit("a").cancel("a")
    assert then.names == ["TaskStopRequested"]
    assert (then.last.outcome, then.last.message) == ("cancelled", "cancelled by alice")
    assert (then.phases("a"), then.held("tasks")) == (["stopping"], 1)
    assert then.released("a").held("tasks") == 0


@pytest.mark.parametrize(
    ("given", "by", "namespace", "code"),
    [
        pytest.param(lambda w: w, "alice", "team-alpha", "not_found", id="unknown"),
        pytest.param(
            lambda w: w.submit("a"), "alice", "team-beta", "not_found", id="in-another-namespace"
        ),
        pytest.param(lambda w: w.submit("a"), "bob", "team-alpha", "not_allowed", id="a-stranger"),
        pytest.param(
            lambda w: w.submit("a").cancel("a"), "alice", "team-alpha", "repeated", id="again"
        ),
        pytest.param(
            lambda w: w.submit("a").released("a"), "alice", "team-alpha", "ended", id="ended"
        ),
        pytest.param(
            lambda w: w.quota("tasks", 0).submit("a"), "alice", "team-alpha", "ended",
            id="rejected",
        ),
    ],
)  # fmt: skip
def test_a_cancel_that_cannot_be(
    world: Any, given: Any, by: str, namespace: str, code: str
) -> None:
    """It is refused with the reason, and nothing changes."""
    before = given(world)
    then = before.cancel("a", by=by, namespace=namespace)
    assert then.names == ["RequestRefused"]
    assert then.last.reason.code == code
    assert (then.last.party, then.last.request) == (by, "TaskCancelRequested")
    assert then.last.position.startswith("CLIENT@")
    assert then.state == before.state


def test_a_former_admin_may_not_cancel(world: Any) -> None:
    """The admins are those of the last NamespaceSet."""
    then = world.submit("a").namespace(admins=("eve",)).cancel("a", by="ada")
    assert then.last.reason.code == "not_allowed"
