"""The Docker executor against a real engine; set ORCA_REQUIRE_DOCKER=1 where one must answer."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import aiodocker
import pytest
from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.docker import DockerExecutor, NameTakenError
from orca_node_agent.docker_spec import DockerOptions, NetworkMode, container_config
from orca_node_agent.executor import (
    AttemptObserved,
    AttemptPhase,
    AttemptSpec,
    ExecutorUnavailableError,
    ImageError,
)
from orca_node_agent.lease import Bodies, Lease, LeaseFiles, Watched

pytestmark = pytest.mark.docker

SCRIPTS = Path(__file__).parents[3] / "deploy/embedded/docker"
IMAGE = "orca-busybox:test"
WAIT_S = 20.0
T = TypeVar("T")
TERM_TRAP = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
TERM_IGNORED = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def skip_or_fail(reason: str) -> None:
    if os.environ.get("ORCA_REQUIRE_DOCKER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def docker_host() -> str:
    """Address of an engine that answers and has the test image."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    done = script("build_image.py", "--host", host)
    if done.returncode != 0:
        skip_or_fail(f"no Docker Engine with {IMAGE} at {host}: {done.stderr.strip()[-300:]}")
    return host


@pytest.fixture
def engine_dir() -> Iterator[Path]:
    """Directory for an engine of the test's own; a short path, as sockets must have."""
    if os.geteuid() != 0 or shutil.which("dockerd", path="/usr/bin:/usr/sbin") is None:
        skip_or_fail("an engine of the test's own needs root and dockerd")
    directory = Path(tempfile.mkdtemp(prefix="orca-"))
    yield directory
    script("engine.py", "stop", "--dir", str(directory))
    for mount in ("exec/netns/default", "data"):
        subprocess.run(["umount", directory / mount], capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def options() -> DockerOptions:
    return DockerOptions(node_id=f"test-{uuid4()}", network=NetworkMode.NONE)


@pytest.fixture
async def executor(docker_host: str, options: DockerOptions) -> AsyncIterator[DockerExecutor]:
    made = DockerExecutor(options, docker_host)
    yield made
    await made.close()
    await remove_all(docker_host, options.node_id)


async def remove_all(docker_host: str, node_id: str) -> None:
    async with aiodocker.Docker(url=docker_host) as docker:
        filters = f'{{"label": ["orca.node={node_id}"]}}'
        for container in await docker.containers.list(all="1", filters=filters):
            with suppress(aiodocker.DockerError):
                await container.delete(force=True)


def attempt_of(*command: str, memory_mib: int = 64) -> AttemptSpec:
    run_id = uuid4()
    return AttemptSpec(
        key=f"{run_id}-1",
        run_id=run_id,
        task_id=uuid4(),
        namespace="team-alpha",
        attempt=1,
        fence="PLACEMENT:e1:7",
        image=IMAGE,
        command=command,
        env=(("ORCA_ATTEMPT", "1"), ("GREETING", "good day")),
        cpu_milli=500,
        memory_mib=memory_mib,
        gpu_uuids=(),
    )


def shell(script: str, memory_mib: int = 64) -> AttemptSpec:
    return attempt_of("/bin/sh", "-c", script, memory_mib=memory_mib)


async def until(get: Callable[[], Awaitable[T | None]]) -> T:
    deadline = time.monotonic() + WAIT_S
    while (value := await get()) is None:
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)
    return value


async def exited(executor: DockerExecutor, key: str) -> AttemptObserved:
    async def get() -> AttemptObserved | None:
        found = (await executor.observe()).get(key)
        return found if found and found.phase is AttemptPhase.EXITED else None

    return await until(get)


async def printed(executor: DockerExecutor, key: str, text: bytes) -> None:
    async def get() -> bool | None:
        return text in (await executor.read_log(key, 0, 10_000)).data or None

    await until(get)


async def log_of(executor: DockerExecutor, key: str, step: int = 1_000_000) -> bytes:
    whole = b""
    while data := (await executor.read_log(key, len(whole), step)).data:
        whole += data
    return whole


@pytest.mark.parametrize("code", [0, 3], ids=["success", "failure"])
async def test_an_attempt_runs_and_its_exit_code_is_reported(
    executor: DockerExecutor, code: int
) -> None:
    spec = shell(f"exit {code}")
    before_ms = time.time() * 1000 - 1000
    await executor.start(spec)
    end = await exited(executor, spec.key)
    assert (end.run_id, end.attempt, end.fence) == (spec.run_id, 1, spec.fence)
    assert (end.exit_code, end.out_of_memory, end.lost) == (code, False, False)
    assert end.finished_at_ms is not None
    assert before_ms < end.started_at_ms <= end.finished_at_ms < time.time() * 1000 + 1000


async def test_a_running_attempt_is_reported_as_running(executor: DockerExecutor) -> None:
    spec = attempt_of("/bin/sleep", "60")
    await executor.start(spec)
    found = (await executor.observe())[spec.key]
    assert (found.phase, found.exit_code, found.finished_at_ms) == (
        AttemptPhase.RUNNING,
        None,
        None,
    )


async def test_an_attempt_sees_its_environment_limits_and_no_privilege(
    executor: DockerExecutor,
) -> None:
    spec = shell(
        "env; cat /proc/self/status; cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max"
    )
    await executor.start(spec)
    await exited(executor, spec.key)
    lines = (await log_of(executor, spec.key)).decode().splitlines()
    assert "GREETING=good day" in lines
    assert "CapEff:\t0000000000000000" in lines
    assert "NoNewPrivs:\t1" in lines
    assert "4096" in lines
    assert not [line for line in lines if "NVIDIA" in line]


async def test_output_is_read_by_offset_in_pieces_of_any_size(executor: DockerExecutor) -> None:
    spec = shell("echo out; sleep 0.2; echo err >&2; sleep 0.2; printf x; seq 1 5000")
    await executor.start(spec)
    await exited(executor, spec.key)
    expected = "".join(f"{n}\n" for n in range(1, 5001))
    whole = await log_of(executor, spec.key)
    assert whole.decode() == "out\nerr\nx" + expected
    assert await log_of(executor, spec.key, step=997) == whole
    assert (await executor.read_log(spec.key, 4, 100)).data == whole[4:104]
    end = await executor.read_log(spec.key, len(whole), 100)
    assert (end.offset, end.data) == (len(whole), b"")
    assert (await executor.read_log(spec.key, len(whole) + 50, 100)).data == b""


async def test_output_of_a_running_attempt_grows_and_stays_in_place(
    executor: DockerExecutor, docker_host: str, options: DockerOptions
) -> None:
    script = "i=0; while [ $i -lt 400 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done"
    spec = shell(f"{script}; sleep 0.3; {script}; printf '\\377\\000end'")
    await executor.start(spec)
    whole = b""
    while (await executor.observe())[spec.key].phase is AttemptPhase.RUNNING:
        whole += (await executor.read_log(spec.key, len(whole), 333)).data
    while data := (await executor.read_log(spec.key, len(whole), 333)).data:
        whole += data
    assert whole.endswith(b"\xff\x00end")
    assert whole.count(b"line ") == whole.count(b"err ") == 800
    fresh = DockerExecutor(options, docker_host)
    assert await log_of(fresh, spec.key) == whole
    await fresh.close()


@pytest.mark.parametrize(
    "script",
    ["exec sleep 60", "while :; do echo tick; sleep 0.02; done"],
    ids=["silent", "writes-steadily"],
)
async def test_reading_on_does_not_wait_for_a_running_attempt(
    executor: DockerExecutor, script: str
) -> None:
    spec = shell(script)
    await executor.start(spec)
    first = await executor.read_log(spec.key, 0, 1_000_000)
    begin = time.monotonic()
    await executor.read_log(spec.key, len(first.data), 1_000_000)
    assert time.monotonic() - begin < 0.4


async def test_what_is_written_just_before_the_end_is_not_lost(executor: DockerExecutor) -> None:
    async def follow(spec: AttemptSpec) -> bytes:
        whole = b""
        while True:
            running = (await executor.observe())[spec.key].phase is AttemptPhase.RUNNING
            data = (await executor.read_log(spec.key, len(whole), 10_000)).data
            whole += data
            if not data and not running:
                return whole

    specs = [shell(f"echo begin; sleep 0.{n}; seq 1 {n * 900}; printf last") for n in range(1, 7)]
    await asyncio.gather(*(executor.start(spec) for spec in specs))
    for n, whole in enumerate(await asyncio.gather(*map(follow, specs)), start=1):
        lines = whole.decode().split("\n")
        assert lines == ["begin", *map(str, range(1, n * 900 + 1)), "last"]


async def test_a_long_line_is_not_cut(executor: DockerExecutor) -> None:
    spec = shell("head -c 100000 /dev/zero; echo; echo after")
    await executor.start(spec)
    await exited(executor, spec.key)
    whole = await log_of(executor, spec.key, step=70_000)
    # Docker 20.10 loses the newline after a line of more than 16 KiB.
    assert whole in {bytes(100_000) + b"\nafter\n", bytes(100_000) + b"after\n"}


async def test_an_attempt_that_handles_the_stop_ends_in_its_own_way(
    executor: DockerExecutor,
) -> None:
    spec = shell(TERM_TRAP)
    await executor.start(spec)
    await printed(executor, spec.key, b"ready")
    await executor.stop(spec.key, grace_s=30)
    end = await exited(executor, spec.key)
    assert end.exit_code == 7
    assert await log_of(executor, spec.key) == b"ready\nbye\n"
    await executor.stop(spec.key, grace_s=0)
    await executor.remove(spec.key)


async def test_an_attempt_that_ignores_the_stop_is_killed_at_the_first_deadline(
    executor: DockerExecutor,
) -> None:
    spec = shell(TERM_IGNORED)
    await executor.start(spec)
    await printed(executor, spec.key, b"ready")
    begin = time.monotonic()
    await executor.stop(spec.key, grace_s=1.0)
    await executor.stop(spec.key, grace_s=60)
    assert time.monotonic() - begin < 0.9, "stop must return at once"
    assert (await executor.observe())[spec.key].phase is AttemptPhase.RUNNING
    end = await exited(executor, spec.key)
    assert end.exit_code == 137
    assert not end.out_of_memory
    assert 0.9 < time.monotonic() - begin < 10


async def test_a_stop_is_taken_over_by_a_fresh_executor(
    executor: DockerExecutor, docker_host: str, options: DockerOptions
) -> None:
    spec = shell(TERM_IGNORED)
    await executor.start(spec)
    await printed(executor, spec.key, b"ready")
    await executor.stop(spec.key, grace_s=60)
    await executor.close()
    fresh = DockerExecutor(options, docker_host)
    await fresh.stop(spec.key, grace_s=0.2)
    assert (await exited(fresh, spec.key)).exit_code == 137
    await fresh.close()


async def test_running_out_of_memory_is_reported(executor: DockerExecutor) -> None:
    spec = attempt_of("/bin/awk", 'BEGIN{s="x"; while(1) s=s s}', memory_mib=32)
    await executor.start(spec)
    end = await exited(executor, spec.key)
    assert (end.exit_code, end.out_of_memory) == (137, True)


async def test_a_second_start_finds_the_first_and_never_runs_twice(
    executor: DockerExecutor, docker_host: str, options: DockerOptions
) -> None:
    spec = shell("echo once")
    await asyncio.gather(*(executor.start(spec) for _ in range(4)))
    first = await exited(executor, spec.key)
    fresh = DockerExecutor(options, docker_host)
    await fresh.start(spec)
    assert await fresh.observe() == {spec.key: first}
    assert await log_of(fresh, spec.key) == b"once\n"
    await fresh.close()


async def test_a_created_container_is_not_running_and_the_next_start_starts_it(
    executor: DockerExecutor, docker_host: str, options: DockerOptions
) -> None:
    spec = shell("echo ran")
    await create_only(docker_host, spec, options)
    assert await executor.observe() == {}
    assert (await executor.read_log(spec.key, 0, 10)).data == b""
    await executor.start(spec)
    await exited(executor, spec.key)
    assert await log_of(executor, spec.key) == b"ran\n"


async def test_stopping_what_never_started_removes_it(
    executor: DockerExecutor, docker_host: str, options: DockerOptions
) -> None:
    spec = shell("echo ran")
    await create_only(docker_host, spec, options)
    await executor.stop(spec.key, grace_s=5)
    async with aiodocker.Docker(url=docker_host) as docker:
        with pytest.raises(aiodocker.DockerError, match="No such container"):
            await docker.containers.get(f"orca-{spec.key}")


async def create_only(docker_host: str, spec: AttemptSpec, options: DockerOptions) -> None:
    async with aiodocker.Docker(url=docker_host) as docker:
        config = container_config(spec, options, boot_id="")
        await docker.containers.create(config, name=f"orca-{spec.key}")


async def test_a_container_of_another_fence_is_refused_and_left_alone(
    executor: DockerExecutor,
) -> None:
    spec = attempt_of("/bin/sleep", "60")
    await executor.start(spec)
    with pytest.raises(NameTakenError, match=r"orca\.fence is 'PLACEMENT:e1:7'"):
        await executor.start(replace(spec, fence="PLACEMENT:e1:8"))
    assert (await executor.observe())[spec.key].fence == spec.fence


async def test_only_the_attempts_of_the_own_node_are_observed(
    executor: DockerExecutor, docker_host: str
) -> None:
    other = DockerOptions(node_id=f"test-{uuid4()}", network=NetworkMode.NONE)
    neighbour = DockerExecutor(other, docker_host)
    try:
        await neighbour.start(attempt_of("/bin/true"))
        assert await executor.observe() == {}
    finally:
        await neighbour.close()
        await remove_all(docker_host, other.node_id)


async def test_an_end_nobody_witnessed_in_an_earlier_boot_is_lost(
    executor: DockerExecutor, docker_host: str, options: DockerOptions
) -> None:
    spec = shell("exit 255")
    await executor.start(spec)
    assert (await exited(executor, spec.key)).exit_code == 255
    rebooted = DockerExecutor(options, docker_host, boot_id="next")
    end = await exited(rebooted, spec.key)
    assert (end.lost, end.exit_code) == (True, None)
    await rebooted.close()


async def test_a_missing_image_is_named_with_its_remedy(executor: DockerExecutor) -> None:
    spec = replace(attempt_of("/bin/true"), image="orca-no-such-image:9")
    with pytest.raises(ImageError, match=r"orca-no-such-image:9 is not on this host.*docker pull"):
        await executor.start(spec)
    assert await executor.observe() == {}


async def test_a_missing_command_is_named_and_leaves_nothing_behind(
    executor: DockerExecutor, docker_host: str
) -> None:
    spec = attempt_of("/bin/no-such-command")
    for _ in range(2):
        with pytest.raises(ImageError, match=r"no-such-command.*no such file or directory"):
            await executor.start(spec)
    async with aiodocker.Docker(url=docker_host) as docker:
        with pytest.raises(aiodocker.DockerError, match="No such container"):
            await docker.containers.get(f"orca-{spec.key}")


async def test_a_removed_attempt_is_gone_and_a_running_one_is_not_removed(
    executor: DockerExecutor,
) -> None:
    ended, running = attempt_of("/bin/true"), attempt_of("/bin/sleep", "60")
    await executor.start(ended)
    await executor.start(running)
    await exited(executor, ended.key)
    await executor.remove(ended.key)
    await executor.remove(ended.key)
    with pytest.raises(RuntimeError, match="running container"):
        await executor.remove(running.key)
    assert list(await executor.observe()) == [running.key]


async def test_unknown_keys_are_ignored(executor: DockerExecutor) -> None:
    key = f"{UUID(int=5)}-1"
    await executor.stop(key, grace_s=1)
    await executor.remove(key)
    assert (await executor.read_log(key, 0, 10)).data == b""


async def test_an_engine_that_is_gone_is_unavailable_not_empty(
    tmp_path: Path, options: DockerOptions
) -> None:
    executor = DockerExecutor(options, f"unix://{tmp_path}/dead.sock")
    key = f"{UUID(int=5)}-1"
    calls: list[Callable[[], Awaitable[object]]] = [
        executor.observe,
        lambda: executor.start(attempt_of("/bin/true")),
        lambda: executor.stop(key, 1),
        lambda: executor.read_log(key, 0, 10),
        lambda: executor.remove(key),
    ]
    for call in calls:
        with pytest.raises(ExecutorUnavailableError, match=r"dead\.sock"):
            await call()
    await executor.close()


async def test_an_attempt_outlives_a_restart_of_the_engine(
    engine_dir: Path, options: DockerOptions
) -> None:
    host = start_engine(engine_dir)
    assert script("build_image.py", "--host", host).returncode == 0
    executor = DockerExecutor(options, host)
    spec = shell("trap 'exit 7' TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done")
    await executor.start(spec)
    await printed(executor, spec.key, b"3\n")
    before = (await executor.observe())[spec.key]
    assert script("engine.py", "stop", "--dir", str(engine_dir)).returncode == 0
    with pytest.raises(ExecutorUnavailableError):
        await executor.observe()
    with pytest.raises(ExecutorUnavailableError):
        await executor.read_log(spec.key, 0, 10)
    start_engine(engine_dir)
    assert (await executor.observe())[spec.key] == before
    await printed(executor, spec.key, b"\n60\n")
    await executor.stop(spec.key, grace_s=20)
    assert (await exited(executor, spec.key)).exit_code == 7
    numbers = (await log_of(executor, spec.key)).split()
    assert numbers == [str(n).encode() for n in range(len(numbers))]
    await executor.remove(spec.key)
    await executor.close()


def start_engine(directory: Path) -> str:
    done = script("engine.py", "start", "--private", "--dir", str(directory))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().removeprefix("DOCKER_HOST=")


async def test_the_watchdog_stops_containers_that_the_lease_names(
    executor: DockerExecutor, docker_host: str, options: DockerOptions, tmp_path: Path
) -> None:
    """By name, and only where node and fence agree too; SIGKILL when the grace is over."""
    named, stubborn, waits = shell(TERM_TRAP), shell(TERM_IGNORED), shell(TERM_TRAP)
    fenced = replace(shell(TERM_TRAP), fence="PLACEMENT:e1:8")
    neighbour = DockerExecutor(replace(options, node_id=f"{options.node_id}-b"), docker_host)
    next_door = shell(TERM_TRAP)
    await neighbour.start(next_door)
    for spec in (named, stubborn, waits, fenced):
        await executor.start(spec)
        await printed(executor, spec.key, b"ready")
    files = LeaseFiles(tmp_path)
    files.make()
    covered = (named, stubborn, fenced, next_door)
    bodies = Bodies("docker", options.node_id, docker_host)
    attempts = tuple(Watched(spec.key, named.fence) for spec in covered)
    lease = Lease(host_boot_id(), boot_clock_s(), 1.0, 2.0, bodies, attempts)
    files.write(lease)
    command = (sys.executable, "-m", "orca_node_agent.watchdog", tmp_path)
    watchdog = await asyncio.create_subprocess_exec(*command)
    try:
        assert (await exited(executor, named.key)).exit_code == 7
        assert 1.0 <= boot_clock_s() - lease.renewed_s < 3.0
        assert (await exited(executor, stubborn.key)).exit_code == 137
        assert 3.0 <= boot_clock_s() - lease.renewed_s < 5.0
        await asyncio.sleep(1.0)
        seen = await executor.observe() | await neighbour.observe()
        for spec in (waits, fenced, next_door):
            assert seen[spec.key].phase is AttemptPhase.RUNNING
        assert files.stopped().keys() == {spec.key for spec in covered}
    finally:
        watchdog.kill()
        await watchdog.wait()
        await neighbour.close()
        await remove_all(docker_host, f"{options.node_id}-b")
