"""Tasks as containers, through the whole path; set ORCA_REQUIRE_DOCKER=1 where one must answer."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiodocker
import pytest
from checks import event_of
from orca_client.connection import Connection
from orca_client.submit import cancel, submit
from orca_schemas.asks import LogQuery, Logs
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, ended, eventually, make_namespace, manifest, running_stack

pytestmark = pytest.mark.docker

BUILD_IMAGE = Path(__file__).parents[2] / "deploy/embedded/docker/build_image.py"
IMAGE = "orca-busybox:test"
TEAM = "team-alpha"
BUILD_S = 90
GRACE_S = 10.0
"""Between SIGTERM and SIGKILL (ARCHITECTURE, section 6)."""
NODE = f"docker-{uuid.uuid4().hex[:8]}"
"""Containers are known by their node: a name of one's own leaves others' containers alone."""

OBEYS = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
DEFIES = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
BODY = json.dumps({
    "id": "r1", "model": "llama-3-8b",
    "usage": {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42},
})  # fmt: skip
REPORTS = (
    'wget -q -O - --header "Authorization: Bearer $ORCA_USAGE_TOKEN" '
    f"--post-data '{BODY}' \"$ORCA_USAGE_URL\""
)
SCRIPTS = {
    "greets": "echo hello from $ORCA_TASK_ID; id -u; exit 0",
    "fails": "echo oh no >&2; exit 3",
    "obeys": OBEYS,
    "defies": DEFIES,
    "hoards": "awk 'BEGIN{s=\"x\"; while(1) s=s s}'",
    "reports": REPORTS,
    "lacks": "true",
}


def skip_or_fail(reason: str) -> None:
    """Where an engine is required, its lack is a failure."""
    if os.environ.get("ORCA_REQUIRE_DOCKER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def docker_host() -> str:
    """Address of an engine that answers and has the test image."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    command = [sys.executable, str(BUILD_IMAGE), "--host", host]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_S, check=False
    )  # fmt: skip
    if done.returncode != 0:
        skip_or_fail(f"no Docker Engine with {IMAGE} at {host}: {done.stderr.strip()[-300:]}")
    return host


@pytest.fixture(scope="module")
def stack(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack whose one node runs containers on that engine."""
    home = tmp_path_factory.mktemp("docker")
    env = {"ORCA_EXECUTOR": "docker", "DOCKER_HOST": docker_host}
    try:
        with running_stack(home, f"{NODE}=A100:1", **env) as running:
            yield running
    finally:
        asyncio.run(_remove_containers(docker_host))


async def _containers(docker: aiodocker.Docker) -> list[Any]:
    filters = json.dumps({"label": [f"orca.node={NODE}"]})
    found: list[Any] = await docker.containers.list(all="1", filters=filters)
    return found


async def _remove_containers(docker_host: str) -> None:
    async with aiodocker.Docker(url=docker_host) as docker:
        for container in await _containers(docker):
            with suppress(aiodocker.DockerError):
                await container.delete(force=True, v=True)


@pytest.fixture(scope="module")
def tasks(stack: RunningStack) -> dict[str, uuid.UUID]:
    """All tasks of this module, submitted at once."""
    return asyncio.run(_submit_all(stack))


async def _submit_all(stack: RunningStack) -> dict[str, uuid.UUID]:
    async with await Connection.open(stack.nats_url, "alice") as alice:
        await make_namespace(alice, TEAM, {"tasks": 20, "tokens": 10_000})
        return {
            name: (await submit(alice, document(name, script))).task_id
            for name, script in SCRIPTS.items()
        }


def document(name: str, script: str) -> dict[str, Any]:
    """The manifest of one task."""
    resources = {"cpu": "100m", "memory": "32Mi", "tokenQuota": 1000}
    image = "no-such-image:v0" if name == "lacks" else IMAGE
    return manifest(name, TEAM, ["/bin/sh", "-c", script], resources=resources, image=image)


async def output(connection: Connection, task_id: uuid.UUID) -> str:
    """What the task printed so far."""
    query = LogQuery(task_id=task_id)
    found = await connection.ask(Logs, "admission", "logs", query, namespace=TEAM)
    return "".join(chunk.text for chunk in found.chunks)


async def printed(connection: Connection, task_id: uuid.UUID, text: str) -> str:
    """Wait until the task's output holds ``text``; returns all of it."""

    async def probe() -> str | None:
        found = await output(connection, task_id)
        return found if text in found else None

    found: str = await eventually(f"{task_id} prints {text}", probe)
    return found


async def released(stack: RunningStack, task_id: uuid.UUID) -> dict[str, Any]:
    """The data of the task's Released."""
    events = await stack.events(Stream.PLACEMENT)
    (found,) = (
        event_of(one)[1]
        for one in events[Stream.PLACEMENT]
        if str(task_id) in one.subject and one.subject.endswith(".Released")
    )
    return found


@pytest.fixture
async def alice(stack: RunningStack) -> AsyncIterator[Connection]:
    """A connection as the user alice."""
    async with await Connection.open(stack.nats_url, "alice") as connection:
        yield connection


async def test_a_container_that_ends_well_succeeds_and_its_output_is_kept(
    alice: Connection, tasks: dict[str, uuid.UUID]
) -> None:
    """Given exit code 0, the outcome is succeeded and the log holds what it printed."""
    row = await ended(alice, tasks["greets"])
    assert (row.outcome, row.node) == ("succeeded", NODE)
    text = await printed(alice, tasks["greets"], "hello")
    assert text.startswith(f"hello from {tasks['greets']}\n")


async def test_a_container_that_ends_badly_fails_with_its_code(
    stack: RunningStack, alice: Connection, tasks: dict[str, uuid.UUID]
) -> None:
    """Given exit code 3, the outcome is failed, the code stands in the log, stderr is kept."""
    assert (await ended(alice, tasks["fails"])).outcome == "failed"
    assert (await released(stack, tasks["fails"]))["exit_code"] == 3
    assert await printed(alice, tasks["fails"], "oh no")


async def test_an_image_that_is_not_there_is_named(
    stack: RunningStack, alice: Connection, tasks: dict[str, uuid.UUID]
) -> None:
    """Given no such image and no pulling, the outcome is image_error and says what to do."""
    row = await ended(alice, tasks["lacks"])
    assert row.outcome == "image_error"
    events = await stack.events(Stream.NODE)
    (message,) = (
        data["message"]
        for name, data in map(event_of, events[Stream.NODE])
        if name == "TaskFinished" and data["run_id"] == str(row.run_id)
    )
    assert message.startswith("image no-such-image:v0 is not on this host and pulling is off")
    assert "docker pull" in message


async def test_a_container_that_takes_too_much_memory_is_ended_for_that(
    alice: Connection, tasks: dict[str, uuid.UUID]
) -> None:
    """Given 32 MiB and a program that wants ever more, the outcome is out_of_memory."""
    assert (await ended(alice, tasks["hoards"])).outcome == "out_of_memory"


async def test_a_container_reports_its_tokens(
    stack: RunningStack, alice: Connection, tasks: dict[str, uuid.UUID]
) -> None:
    """Given busybox's wget and the environment, 42 tokens reach admission's ledger."""
    row = await ended(alice, tasks["reports"])
    assert row.outcome == "succeeded", await output(alice, tasks["reports"])

    async def settled() -> bool:
        events = await stack.events(Stream.ADMISSION)
        found = [
            data["used_tokens"]
            for name, data in map(event_of, events[Stream.ADMISSION])
            if name == "QuotaSettled" and data["run_id"] == str(row.run_id)
        ]
        return found[-1:] == [42]

    await eventually("42 tokens are settled", settled)


@pytest.mark.parametrize(
    ("name", "least_s"), [("obeys", 0.0), ("defies", GRACE_S)], ids=["SIGTERM", "SIGKILL"]
)
async def test_a_cancelled_container_ends(
    stack: RunningStack, alice: Connection, tasks: dict[str, uuid.UUID], name: str, least_s: float
) -> None:
    """Given a cancel, SIGTERM ends who listens at once and SIGKILL the others after the grace."""
    await printed(alice, tasks[name], "ready")
    began = time.monotonic()
    await cancel(alice, TEAM, tasks[name], "enough")
    assert (await ended(alice, tasks[name])).outcome == "cancelled"
    took_s = time.monotonic() - began
    assert least_s <= took_s < least_s + GRACE_S
    if name == "obeys":
        assert "bye" in await printed(alice, tasks[name], "bye")


async def test_what_has_ended_is_removed(
    docker_host: str, alice: Connection, tasks: dict[str, uuid.UUID]
) -> None:
    """Given all tasks have ended, no container of the node is left."""
    for task_id in tasks.values():
        await ended(alice, task_id)
    async with aiodocker.Docker(url=docker_host) as docker:

        async def none_left() -> bool:
            return not await _containers(docker)

        await eventually("the containers are removed", none_left)
