"""What operators set, and what admission does not support."""

from __future__ import annotations

from typing import Any

import pytest
from orca_schemas.subjects import Kind, Stream
from orca_schemas.values import Period


def test_a_namespace_and_its_limits_are_noted(empty: Any) -> None:
    """Admission's own stream holds all that it decides by."""
    then = empty.namespace(admins=("ada", "bob"))
    assert (then.names, then.last.fact.admins) == (["Noted(namespace)"], ("ada", "bob"))
    then = then.quota("gpu_milli:A100", 4000)
    assert then.names == ["Noted(limit)"]
    assert (then.last.fact.account, then.last.fact.dimension, then.last.fact.limit) == (
        "team-alpha",
        "gpu_milli:A100",
        4000,
    )


@pytest.mark.parametrize(
    ("dimension", "period", "account", "says"),
    [
        pytest.param("tokens", Period.CONCURRENT, None, "period total", id="tokens-concurrent"),
        pytest.param("gpu_milli", Period.TOTAL, None, "period concurrent", id="gpu-total"),
        pytest.param("gpu_milli:a100", None, None, "A100", id="a-misspelled-gpu-type"),
        pytest.param("tasks", None, "organisation", "team-alpha", id="another-account"),
    ],
)
def test_what_is_unsupported_is_refused(
    world: Any, dimension: str, period: Any, account: Any, says: str
) -> None:
    """The answer says what is supported; nothing half-understood comes into force."""
    then = world.quota(dimension, 5, period=period, account=account)
    assert then.names == ["RequestRefused"]
    assert then.last.reason.code == "unsupported"
    assert says in then.last.reason.message
    assert then.state == world.state


@pytest.mark.parametrize(
    ("event", "id_", "stream", "kind", "names"),
    [
        pytest.param(
            "TaskCancelRequested", "task", Stream.CLIENT, Kind.TASK, ["RequestRefused"], id="cancel"
        ),
        pytest.param(
            "QuotaSet", "team-alpha", Stream.ADMIN, Kind.ACCOUNT, ["RequestRefused"], id="quota"
        ),
        pytest.param(
            "TaskSubmitted", "team-alpha", Stream.CLIENT, Kind.ACCOUNT, ["RequestRefused"],
            id="a-submission-about-no-task",
        ),
        pytest.param(
            "Placed", "task", Stream.PLACEMENT, Kind.TASK, ["InputDeadLettered"], id="placement"
        ),
        pytest.param(
            "LeaseTopUpRequested", "task", Stream.NODE, Kind.TASK, ["InputDeadLettered"], id="node"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_answered(
    world: Any, event: str, id_: str, stream: Stream, kind: Kind, names: list[str]
) -> None:
    """People are told what is wrong; other services' garbage is kept as a dead letter."""
    id_ = "019470e0-0000-7000-8000-000000000001" if id_ == "task" else id_
    then = world.garbage(event, id_, stream, kind)
    assert then.names == names
    assert "data.manifest.spec.image" in then.last.model_dump_json()
    assert then.state == world.state


def test_an_unreadable_submission_ends_its_task(world: Any) -> None:
    """The task is rejected under the run id that it would have had, with field and remedy."""
    then = world.garbage("TaskSubmitted", "019470e0-0000-7000-8000-000000000001")
    assert then.names == ["TaskRejected"]
    (why,) = then.last.reasons
    assert (why.code, why.field) == ("malformed", "data.manifest.spec.image")
    assert "add it" in why.message
    assert then.state.runs[then.last.run_id].phase == "ended"


def test_an_unreadable_repeat_does_not_end_a_live_task(world: Any) -> None:
    """Garbage under a live task's id is refused, the task goes on."""
    given = world.submit("a")
    then = given.garbage("TaskSubmitted", given.state.runs[given.run_id("a")].task_id)
    assert then.names == ["RequestRefused"]
    assert then.state == given.state
