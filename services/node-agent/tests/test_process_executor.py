"""The process executor with real processes: ends, stops, adoption, and what a crash leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from orca_node_agent.executor import AttemptObserved, AttemptPhase, AttemptSpec, ImageError
from orca_node_agent.process import ProcessExecutor
from orca_node_agent.process_files import CLAIM_GRACE_S, AttemptDir, ProcessId
from orca_schemas.identifiers import derived_id

WAIT_S = 10.0
PATH = "/usr/bin:/bin"
RUN = derived_id(0, "run")
KEY = f"{RUN}-1"
LOOP = "while :; do sleep 0.05; done"


def a_body(*command: str, **changes: object) -> AttemptSpec:
    plain = AttemptSpec(
        key=KEY, run_id=RUN, task_id=derived_id(0, "task"), namespace="team-alpha", attempt=1,
        fence="PLACEMENT@1#1", image="ignored", command=command, env=(("GREETING", "hello"),),
        cpu_milli=1000, memory_mib=64, gpu_uuids=("GPU-1", "GPU-2"),
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def sh(script: str) -> AttemptSpec:
    return a_body("sh", "-c", script)


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncIterator[ProcessExecutor]:
    """An executor whose processes are gone after the test."""
    made = ProcessExecutor(tmp_path / "attempts", PATH)
    yield made
    await made.close()
    end_all(tmp_path / "attempts")


def end_all(root: Path) -> None:
    for path in root.iterdir():
        running = AttemptDir(path).running()
        for process in (running.child, running.shim) if running else ():
            if process.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)


async def seen(
    executor: ProcessExecutor, what: Callable[[AttemptObserved], bool], key: str = KEY
) -> AttemptObserved:
    """Observe until it is so."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = (await executor.observe()).get(key)
        if found is not None and what(found):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"not seen in {WAIT_S} s: {await executor.observe()}")


def exited(observed: AttemptObserved) -> bool:
    return observed.phase is AttemptPhase.EXITED


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def prints(executor: ProcessExecutor, text: str) -> None:
    """Wait until it has printed this."""
    await until(lambda: text in AttemptDir(executor._root / KEY).output.read_text())


async def output(executor: ProcessExecutor) -> str:
    return (await executor.read_log(KEY, 0, 65_536)).data.decode()


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
async def test_exit_codes(executor: ProcessExecutor, script: str, code: int) -> None:
    """Given a command, when it ends, then its code is the shell's: 128 + n for signal n."""
    before_ms = time.time_ns() // 1_000_000
    await executor.start(sh(script))
    end = await seen(executor, exited)
    assert (end.exit_code, end.lost, end.out_of_memory) == (code, False, False)
    assert before_ms - 20 <= end.started_at_ms <= (end.finished_at_ms or 0) <= before_ms + 10_000


async def test_the_environment_is_only_what_is_given(executor: ProcessExecutor) -> None:
    """Given an agent with an environment of its own, then a task sees nothing of it."""
    await executor.start(a_body("env"))
    await seen(executor, exited)
    found = dict(line.split("=", 1) for line in (await output(executor)).splitlines())
    found.pop("PWD", None)  # the shell's own
    assert found == {
        "PATH": PATH,
        "HOME": str(AttemptDir(executor._root / KEY).work),
        "LANG": "C.UTF-8",
        "GREETING": "hello",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
    }


async def test_a_task_without_gpus_sees_none(executor: ProcessExecutor) -> None:
    """Given no slots, then every GPU is hidden."""
    await executor.start(replace(sh('echo "[$CUDA_VISIBLE_DEVICES]"'), gpu_uuids=()))
    await seen(executor, exited)
    assert await output(executor) == "[]\n"


async def test_an_unknown_command_is_an_image_error(executor: ProcessExecutor) -> None:
    """Given a program that is not there, then start says so and nothing is left behind."""
    with pytest.raises(ImageError, match="no-such-program"):
        await executor.start(a_body("no-such-program"))
    assert await executor.observe() == {}


async def test_a_second_start_finds_the_first(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Given a start, when it is repeated, also at once, then the command ran once."""
    spec = sh(f"echo ran >> {tmp_path}/ran; sleep 0.1")
    await asyncio.gather(executor.start(spec), executor.start(spec))
    await executor.start(spec)
    await seen(executor, exited)
    await executor.start(spec)
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_term_then_the_code_is_the_tasks_own(executor: ProcessExecutor) -> None:
    """Given a task that handles SIGTERM, when stopped, then it ends by itself in time."""
    await executor.start(sh(f"trap 'echo bye; exit 9' TERM; echo ready; {LOOP}"))
    await prints(executor, "ready")
    await executor.stop(KEY, 30.0)
    await executor.stop(KEY, 0.0)  # the first deadline stands
    end = await seen(executor, exited)
    assert end.exit_code == 9
    assert (await output(executor)).endswith("bye\n")


async def test_kill_after_the_grace(executor: ProcessExecutor) -> None:
    """Given a task that ignores SIGTERM, when the grace is over, then it is killed."""
    await executor.start(sh(f"trap '' TERM; echo ready; {LOOP}"))
    await prints(executor, "ready")
    asked = time.monotonic()
    await executor.stop(KEY, 0.3)
    end = await seen(executor, exited)
    assert end.exit_code == 137
    assert time.monotonic() - asked >= 0.3


async def test_the_whole_group_is_stopped(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Given children, when their parent ends, then they are gone with it."""
    await executor.start(sh(f"sleep 300 & echo $! > {tmp_path}/child; exit 0"))
    await seen(executor, exited)
    child = int((tmp_path / "child").read_text())
    await until(lambda: not process_runs(child))


def process_runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def test_a_new_executor_adopts(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Given a running task, when the executor is dropped, then a new one finds, reads, ends it."""
    await executor.start(sh(f"echo one; trap 'echo two; exit 5' TERM; echo up; {LOOP}"))
    await prints(executor, "up")
    first = (await executor.observe())[KEY]
    await executor.close()
    second = ProcessExecutor(tmp_path / "attempts", PATH)
    assert (await second.observe())[KEY] == first
    await second.stop(KEY, 30.0)
    end = await seen(second, exited)
    assert (end.exit_code, end.started_at_ms) == (5, first.started_at_ms)
    read = (await second.read_log(KEY, 4, 100)).data
    assert read.startswith(b"up\n")
    assert read.endswith(b"two\n")
    await second.close()


async def test_a_deadline_outlives_the_agent(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Given a stop that was asked, when a new agent repeats it, then the old deadline holds."""
    await executor.start(sh(f"trap 'echo term' TERM; echo ready; {LOOP}"))
    await prints(executor, "ready")
    asked = time.monotonic()
    await executor.stop(KEY, 0.5)
    await executor.close()
    second = ProcessExecutor(tmp_path / "attempts", PATH)
    await second.stop(KEY, 600.0)
    end = await seen(second, exited)
    assert end.exit_code == 137
    assert 0.5 <= time.monotonic() - asked < 5.0
    assert (await output(executor)).count("term") == 1
    await second.close()


AGENT = """
import asyncio, sys
from pathlib import Path
from uuid import UUID
from orca_node_agent.executor import AttemptSpec
from orca_node_agent.process import ProcessExecutor

async def main():
    executor = ProcessExecutor(Path(sys.argv[1]), "/usr/bin:/bin")
    run = UUID(sys.argv[2])
    command = ("sh", "-c", sys.argv[3])
    spec = AttemptSpec(f"{run}-1", run, run, "a", 1, "f", "", command, (), 1, 1, ())
    await executor.start(spec)
    print("started", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_kill_9_of_the_agent_loses_nothing(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Given a task of an agent, when that agent is killed, then the exit code is still found."""
    arguments = [str(tmp_path / "attempts"), str(RUN), "echo up; sleep 0.5; echo done; exit 11"]
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert agent.stdout is not None
    await agent.stdout.readuntil(b"started\n")
    agent.kill()
    await agent.wait()
    assert (await executor.observe())[KEY].phase is AttemptPhase.RUNNING
    end = await seen(executor, exited)
    assert end.exit_code == 11
    assert await output(executor) == "up\ndone\n"


async def test_a_pid_used_again_is_not_the_task(executor: ProcessExecutor) -> None:
    """Given a dead task whose pid another process has, then that one is neither seen nor hit."""
    await executor.start(sh("sleep 300"))
    directory = AttemptDir(executor._root / KEY)
    running = directory.running()
    assert running is not None
    bystander = await asyncio.create_subprocess_exec("sleep", "300", start_new_session=True)
    try:
        forge(directory, bystander.pid)
        end = (await executor.observe())[KEY]
        assert (end.phase, end.lost, end.exit_code) == (AttemptPhase.EXITED, True, None)
        await executor.stop(KEY, 0.0)
        await asyncio.sleep(0.2)
        assert process_runs(bystander.pid)
    finally:
        os.killpg(running.child.pid, signal.SIGKILL)
        bystander.kill()
        await bystander.wait()


def forge(directory: AttemptDir, pid: int) -> None:
    """Let the recorded processes have been ``pid``, but started at another time."""
    boot, *_ = (directory.path / "pid").read_text().splitlines()
    stat = f"{pid} (x) S " + " ".join(["1"] * 30)
    (directory.path / "pid").write_text(f"{boot}\n{stat}\n{stat}\n")


async def test_another_boot_means_lost(executor: ProcessExecutor) -> None:
    """Given an attempt of an earlier boot without an exit, then its end was not witnessed."""
    await executor.start(sh("sleep 300"))
    directory = AttemptDir(executor._root / KEY)
    running = directory.running()
    assert running is not None
    text = (directory.path / "pid").read_text()
    (directory.path / "pid").write_text("another-boot\n" + text.split("\n", 1)[1])
    end = (await executor.observe())[KEY]
    assert (end.phase, end.lost, end.finished_at_ms) == (AttemptPhase.EXITED, True, None)
    os.killpg(running.child.pid, signal.SIGKILL)


async def test_a_task_whose_shim_is_killed_runs_on_and_is_lost(executor: ProcessExecutor) -> None:
    """Given a dead shim, then the command still counts as running, and its end as unwitnessed."""
    await executor.start(sh("sleep 300"))
    running = AttemptDir(executor._root / KEY).running()
    assert running is not None
    os.kill(running.shim.pid, signal.SIGKILL)
    await until(lambda: not running.shim.alive())
    assert (await executor.observe())[KEY].phase is AttemptPhase.RUNNING
    await executor.stop(KEY, 0.0)
    assert (await seen(executor, exited)).lost


async def test_a_stop_before_the_command_begins_keeps_it_from_beginning(
    executor: ProcessExecutor, tmp_path: Path
) -> None:
    """Given a prepared attempt that a crash kept from its shim, when stopped, it never runs."""
    spec = sh(f"touch {tmp_path}/ran")
    AttemptDir(executor._root / KEY).prepare(spec)
    await executor.stop(KEY, 0.0)
    await executor.start(spec)
    await asyncio.sleep(0.2)
    assert await executor.observe() == {}
    assert not (tmp_path / "ran").exists()


async def test_a_start_cut_off_before_the_shim_is_made_up_for(executor: ProcessExecutor) -> None:
    """Given a prepared attempt that never got a shim, when started again, then it runs."""
    AttemptDir(executor._root / KEY).prepare(sh("exit 4"))
    assert await executor.observe() == {}
    await executor.start(sh("exit 4"))
    assert (await seen(executor, exited)).exit_code == 4


async def test_a_shim_that_died_before_it_said_anything_is_lost(executor: ProcessExecutor) -> None:
    """Given a claim and nothing after it, then it is waited for, and then given up, never rerun."""
    directory = AttemptDir(executor._root / KEY)
    directory.prepare(sh("exit 0"))
    claim = directory.path / "claim"
    claim.write_text("shim\n")
    assert (await executor.observe())[KEY].phase is AttemptPhase.RUNNING
    long_ago_s = time.time() - CLAIM_GRACE_S - 1
    os.utime(claim, (long_ago_s, long_ago_s))
    assert (await executor.observe())[KEY].lost
    await executor.start(sh("exit 0"))
    assert (await executor.observe())[KEY].lost


async def test_remove(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Given a task, then it can be removed once it has ended, again and again."""
    await executor.start(sh(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"))
    with pytest.raises(RuntimeError, match="still runs"):
        await executor.remove(KEY)
    (tmp_path / "go").touch()
    await seen(executor, exited)
    await executor.remove(KEY)
    await executor.remove(KEY)
    assert await executor.observe() == {}
    assert (await executor.read_log(KEY, 0, 10)).data == b""


async def test_unknown_keys_are_ignored(executor: ProcessExecutor) -> None:
    """Given no such attempt, then stop and remove do nothing."""
    await executor.stop("nobody-1", 1.0)
    await executor.remove("nobody-1")
    assert await executor.observe() == {}


def test_a_process_is_known_by_its_start() -> None:
    """Given this process, then it lives; with another start time it does not."""
    me = ProcessId.from_stat(Path("/proc/self/stat").read_text())
    assert me.pid == os.getpid()
    assert me.alive()
    assert not replace(me, start_time="1").alive()


async def test_commands_that_end_at_once_are_all_witnessed(executor: ProcessExecutor) -> None:
    """Given many commands that end before anybody looks, then each has its code and its times."""
    specs = [replace(sh(f"exit {n % 3}"), key=f"{RUN}-{n}", attempt=n) for n in range(1, 31)]
    await asyncio.gather(*(executor.start(spec) for spec in specs))
    for spec in specs:
        end = await seen(executor, exited, spec.key)
        assert (end.exit_code, end.lost) == (spec.attempt % 3, False)
