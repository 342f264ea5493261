"""What becomes of a submission."""

from __future__ import annotations

from typing import Any

import pytest
from orca_schemas.values import Period

A100 = {"type": "A100", "count": 2}
SHARED = {"type": "A100", "count": 2, "memoryLimit": "20Gi", "computePercent": 50}


def test_what_fits_is_reserved_with_every_amount_that_it_holds(world: Any) -> None:
    """Every dimension is held and shown, limited or not; a whole card holds no memory."""
    then = world.submit("a", gpu=A100, cpu="4", memory="16Gi", tokenQuota=5000)
    assert then.names == ["QuotaReserved"]
    assert {hold.dimension: hold.amount for hold in then.last.held} == {
        "tasks": 1,
        "cpu_milli": 4000,
        "memory_mib": 16384,
        "gpu_milli": 2000,
        "gpu_milli:A100": 2000,
        "tokens": 5000,
    }
    assert {hold.period for hold in then.last.held if hold.dimension == "tokens"} == {Period.TOTAL}
    assert then.last.accounts == ("team-alpha",)
    assert then.last.spec.user == "alice"
    assert then.held("tokens") == 5000


def test_a_shared_gpu_holds_its_share_and_its_memory(world: Any) -> None:
    """Two halves of 20 GiB each are 1000 milli-GPU and 40 GiB."""
    then = world.submit("a", gpu=SHARED | {"sharing": "shared"})
    held = {hold.dimension: hold.amount for hold in then.last.held}
    assert (held["gpu_milli"], held["gpu_memory_mib"]) == (1000, 40 * 1024)


@pytest.mark.parametrize(
    ("quota", "limit", "granted"),
    [
        pytest.param(None, None, None, id="nobody-limits-tokens"),
        pytest.param(5000, None, 5000, id="a-small-quota-is-leased-whole"),
        pytest.param(250_000, None, 100_000, id="a-large-quota-is-leased-by-chunks"),
        pytest.param(250_000, 10**6, 100_000, id="limited-namespace"),
        pytest.param(None, 10**6, 0, id="no-quota-in-a-limited-namespace"),
    ],
)
def test_the_first_lease(world: Any, quota: int | None, limit: int | None, granted: Any) -> None:
    """What the probe may spend at first; None is: as much as it likes."""
    wanted = {} if quota is None else {"tokenQuota": quota}
    then = world.quota("tokens", limit).submit("a", **wanted)
    assert then.last.granted_tokens == granted


def test_what_does_not_fit_now_is_queued_with_every_blocker(world: Any) -> None:
    """Each blocker says what was asked, what is free and what the limit is."""
    given = world.quota("cpu_milli", 3000).submit_all("a", "b")
    then = given.submit("c", cpu="2")
    assert then.names == ["TaskQueued"]
    assert [(one.dimension, one.asked, one.available, one.limit) for one in then.last.blockers] == [
        ("cpu_milli", 2000, 1000, 3000),
        ("tasks", 1, 0, 2),
    ]
    assert "1000 of 3000 are free in team-alpha" in then.last.blockers[0].message
    assert then.phases("a", "b", "c") == ["reserved", "reserved", "queued"]


@pytest.mark.parametrize(
    ("dimension", "limit", "wanted", "field", "code", "asked"),
    [
        pytest.param(
            "gpu_milli", 1000, {"gpu": A100}, "spec.resources.gpu.count", "quota_gpu", 2000,
            id="gpu",
        ),
        pytest.param(
            "gpu_milli:A100", 1000, {"gpu": A100}, "spec.resources.gpu.type", "quota_gpu", 2000,
            id="gpu-of-a-type",
        ),
        pytest.param(
            "gpu_memory_mib", 1024, {"gpu": SHARED | {"sharing": "shared"}},
            "spec.resources.gpu.memoryLimit", "quota_gpu", 40960, id="gpu-memory",
        ),
        pytest.param(
            "cpu_milli", 500, {"cpu": "2"}, "spec.resources.cpu", "quota_cpu", 2000, id="cpu"
        ),
        pytest.param(
            "memory_mib", 512, {"memory": "1Gi"}, "spec.resources.memory", "quota_memory", 1024,
            id="memory",
        ),
        pytest.param(
            "tokens", 1000, {"tokenQuota": 1001}, "spec.resources.tokenQuota", "quota_tokens",
            1001, id="tokens",
        ),
        pytest.param("tasks", 0, {}, None, "quota_tasks", 1, id="a-zero-limit-blocks"),
    ],
)  # fmt: skip
def test_what_can_never_fit_is_rejected_with_numbers(
    world: Any, dimension: str, limit: int, wanted: Any, field: str, code: str, asked: int
) -> None:
    """Waiting would be pointless, however many GPUs are idle."""
    then = world.quota(dimension, limit).submit("a", **wanted)
    assert then.names == ["TaskRejected"]
    (why,) = then.last.reasons
    assert (why.field, why.code, why.asked, why.limit) == (field, code, asked, limit)
    assert (why.dimension, why.account, why.available) == (dimension, "team-alpha", limit)
    assert then.phases("a") == ["ended"]


def test_used_tokens_are_gone_for_good(world: Any) -> None:
    """A request above what is left of a total is rejected, one within it is not."""
    given = world.quota("tokens", 1000).submit("a", tokenQuota=600).settled("a", 600, final=True)
    assert given.submit("b", tokenQuota=401).names == ["TaskRejected"]
    assert given.submit("b", tokenQuota=400).names == ["QuotaReserved"]


def test_tokens_that_are_only_held_may_come_back(world: Any) -> None:
    """What others hold and may not use is worth waiting for."""
    given = world.quota("tokens", 1000).submit("a", tokenQuota=600)
    assert given.submit("b", tokenQuota=1000).names == ["TaskQueued"]


def test_a_limit_that_was_lifted_limits_nothing(world: Any) -> None:
    """Null is unlimited."""
    then = world.quota("tasks", None).submit_all("a", "b", "c")
    assert then.phases("a", "b", "c") == ["reserved"] * 3


@pytest.mark.parametrize(
    ("set_up", "code", "field"),
    [
        pytest.param(lambda w: w, "unknown_namespace", "metadata.namespace", id="unknown"),
        pytest.param(lambda w: w.namespace(), "no_quota", "metadata.namespace", id="no-quota"),
    ],
)  # fmt: skip
def test_without_namespace_or_quota_nothing_runs(
    empty: Any, set_up: Any, code: str, field: str
) -> None:
    """Not knowing is refusing, and the remedy is named."""
    then = set_up(empty).submit("a")
    assert then.names == ["TaskRejected"]
    (why,) = then.last.reasons
    assert (why.code, why.field) == (code, field)
    assert "orca quota set" in why.message


def test_the_manifest_must_name_the_namespace_of_its_subject(world: Any) -> None:
    """Nobody spends another team's quota by writing its name."""
    then = world.submit("a", manifest_says="team-beta")
    (why,) = then.last.reasons
    assert (why.code, why.field) == ("malformed", "metadata.namespace")
    assert "team-beta" in why.message


def test_a_repeated_task_id_changes_nothing(world: Any) -> None:
    """The answer names the run that has the id; the run goes on as it was."""
    given = world.submit("a")
    then = given.submit("a", cpu="2")
    assert then.names == ["RequestRefused"]
    assert then.last.reason.code == "repeated"
    assert str(given.run_id("a")) in then.last.reason.message
    assert then.state == given.state


def test_another_namespaces_task_id_is_refused_without_saying_whose(world: Any) -> None:
    """A task id is unique; who has it is not told across namespaces."""
    given = world.namespace("team-beta").quota("tasks", 1, namespace="team-beta").submit("a")
    then = given.submit("a", namespace="team-beta")
    assert then.last.reason.code == "repeated"
    assert str(given.run_id("a")) not in then.last.model_dump_json()


def test_quota_of_one_namespace_is_not_anothers(world: Any) -> None:
    """A full namespace stops nobody else."""
    given = world.namespace("team-beta").quota("tasks", 1, namespace="team-beta")
    then = given.submit_all("a", "b", "c").submit("d", namespace="team-beta")
    assert then.phases("c", "d") == ["queued", "reserved"]
