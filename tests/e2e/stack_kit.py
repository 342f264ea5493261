"""Start the embedded stack for a test, kill its parts, ask it questions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
from orca_client.connection import Connection
from orca_client.errors import NoAnswerError
from orca_client.submit import body_of, set_price, set_quota
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Stored
from orca_schemas.asks import TaskQuery, TaskRow, Tasks
from orca_schemas.events.admin import NamespaceSet, QuotaSet
from orca_schemas.subjects import Kind, Role, Stream, subject
from orca_schemas.values import Period

START_S = 90.0
STOP_S = 60.0
STORE = str(512 * 2**20)
"""Room for the log in a test: each stack reserves it on disk's account, none fills it."""
NODES = "node-1=A100:4;node-2=H100:2"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class RunningStack:
    """A running stack and how to reach it."""

    home: Path
    nats_port: int
    clickhouse_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def nats_url(self) -> str:
        """Where the broker listens, for whoever may do anything, as the services."""
        return self.url_of("service")

    def url_of(self, user: str) -> str:
        """Where the broker listens, with a user's name and password: operator, client, node-…"""
        password = (self.home / "access" / user).read_text()
        return f"nats://{user}:{password}@127.0.0.1:{self.nats_port}"

    @property
    def env(self) -> dict[str, str]:
        """What the orca command needs to reach this stack."""
        return {
            "ORCA_NATS_URL": f"nats://127.0.0.1:{self.nats_port}",
            "ORCA_NATS_USER": "operator",
            "ORCA_NATS_PASSWORD": (self.home / "access" / "operator").read_text(),
            "ORCA_CLICKHOUSE_URL": f"http://127.0.0.1:{self.clickhouse_port}",
            "ORCA_DATA_DIR": str(self.home),
            "ORCA_USER": "alice",
        }

    def state(self) -> dict[str, Any]:
        """What the supervisor says of itself."""
        found: dict[str, Any] = json.loads((self.home / "stack.json").read_text())
        return found

    def pid(self, name: str) -> int | None:
        """The process id of one part, None while it is down."""
        for process in self.state()["processes"]:
            if process["name"] == name:
                found: int | None = process["pid"]
                return found
        raise KeyError(name)

    def kill(self, name: str) -> None:
        """``kill -9`` one part; the supervisor starts it again."""
        pid = self.pid(name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a ClickHouse query."""
        client = clickhouse_connect.get_client(
            host="127.0.0.1", port=self.clickhouse_port, autogenerate_session_id=False
        )
        try:
            return [tuple(row) for row in client.query(query).result_rows]
        finally:
            client.close()

    def orca(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run the orca command against this stack."""
        orca = str(Path(sys.executable).parent / "orca")
        return subprocess.run(
            [orca, *arguments], env=os.environ | self.env, input=given, text=True,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def log(self) -> AsyncIterator[JetStreamLog]:
        """The log, to read."""
        log = await JetStreamLog.connect(self.nats_url, name="test")
        try:
            yield log
        finally:
            await log.close()

    async def events(self, *streams: Stream) -> dict[str, list[Stored]]:
        """Everything in these streams (default: all) as it stands now."""
        found: dict[str, list[Stored]] = {}
        async with self.log() as log:
            for stream in streams or tuple(Stream):
                found[stream] = await _whole(log, stream)
        return found


async def _whole(log: JetStreamLog, stream: Stream) -> list[Stored]:
    end = (await log.state(stream)).last_sequence
    found: list[Stored] = []
    if end:
        async for batch in log.read(stream, 0):
            found.extend(batch)
            if found[-1].sequence >= end:
                break
    return found


@contextlib.contextmanager
def running_stack(home: Path, nodes: str = NODES, **env: str) -> Iterator[RunningStack]:
    """Run ``orca up`` on free ports; ends it, and only it, afterwards."""
    stack = RunningStack(home, free_port(), free_port())
    start(stack, nodes, **env)
    try:
        wait_running(stack)
        yield stack
    finally:
        stop(stack)


def start(stack: RunningStack, nodes: str = NODES, **env: str) -> None:
    """Start ``orca up`` on this home and these ports, for the first time or again."""
    command = [
        sys.executable, "-m", "orca_embedded", "up", "--data-dir", str(stack.home),
        "--nodes", nodes, "--nats-port", str(stack.nats_port),
        "--clickhouse-port", str(stack.clickhouse_port), "--auth",
    ]  # fmt: skip
    with (stack.home / "up.log").open("ab") as output:
        stack.process = subprocess.Popen(
            command, env=os.environ | {"ORCA_MAX_STORE_BYTES": STORE} | env,
            stdout=output, stderr=output,
        )  # fmt: skip


def stop(stack: RunningStack) -> None:
    """End it in order, by force where that takes too long."""
    process = stack.process
    assert process is not None
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_running(stack: RunningStack) -> None:
    """Return once it runs; raises AssertionError with what it said."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert stack.process is not None
        if stack.process.poll() is not None:
            raise AssertionError((stack.home / "up.log").read_text())
        with contextlib.suppress(OSError, ValueError):
            state = stack.state()
            if state["pid"] == stack.process.pid and state["phase"] == "running":
                return
        time.sleep(0.1)
    raise AssertionError(f"not up in {START_S} s: {(stack.home / 'up.log').read_text()}")


async def eventually(what: str, probe: Callable[[], Any], limit_s: float = 30.0) -> Any:
    """Call (and await) ``probe`` until it gives something true; returns that."""
    deadline = time.monotonic() + limit_s
    found: Any = None
    while time.monotonic() < deadline:
        found = probe()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what}: not within {limit_s} s; last seen {found!r}")


async def make_namespace(
    connection: Connection, namespace: str, limits: Mapping[str, int | None]
) -> None:
    """A namespace with limits; ``tokens`` counts for ever, all else what is held now."""
    where = subject(namespace, Kind.ACCOUNT, namespace, Role.ADMIN, "root", "NamespaceSet")
    await connection.publish(where, body_of(NamespaceSet(admins=("root",))))
    for dimension, limit in limits.items():
        period = Period.TOTAL if dimension == "tokens" else Period.CONCURRENT
        await set_quota(
            connection, namespace, QuotaSet(dimension=dimension, limit=limit, period=period)
        )


async def set_prices(connection: Connection, prices: Mapping[str, int]) -> None:
    """Prices in micro-USD, in force from now on."""
    for sku, price_micro_usd in prices.items():
        await set_price(connection, sku, price_micro_usd, None)


async def row(connection: Connection, service: str, task_id: uuid.UUID) -> TaskRow | None:
    """A task as one service sees it; None where it does not know it or does not answer."""
    try:
        found = await connection.ask(Tasks, service, "tasks", TaskQuery(task_id=task_id))
    except NoAnswerError:
        return None
    return found.tasks[0] if found.tasks else None


async def ended(connection: Connection, task_id: uuid.UUID, limit_s: float = 60.0) -> TaskRow:
    """Wait until admission says that the task ended; returns the row that names the outcome."""

    async def probe() -> TaskRow | None:
        at_admission = await row(connection, "admission", task_id)
        if at_admission is None or at_admission.phase != "ended":
            return None
        if at_admission.outcome in ("refused", "cancelled", "denied", "expired"):
            return at_admission
        return await row(connection, "placement", task_id) or at_admission

    found: TaskRow = await eventually(f"task {task_id} ends", probe, limit_s)
    return found


def manifest(name: str, namespace: str, command: list[str], **spec: Any) -> dict[str, Any]:
    """A small batch task."""
    return {
        "apiVersion": "orca.ai/v1",
        "kind": "AITask",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "taskType": "batch",
            "resources": {"cpu": "100m", "memory": "64Mi"},
            "image": "pytorch-cuda:v2.8",
            "command": command,
        }
        | spec,
    }


REPORT_TOKENS = """
import json, os, sys, time, urllib.error, urllib.request

def report(id_, model, usage):
    body = json.dumps({"id": id_, "model": model, "usage": usage}).encode()
    headers = {"Authorization": "Bearer " + os.environ["ORCA_USAGE_TOKEN"]}
    for _ in range(600):
        try:
            request = urllib.request.Request(os.environ["ORCA_USAGE_URL"], body, headers)
            return json.load(urllib.request.urlopen(request, timeout=5))
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit("the usage endpoint does not answer")
"""
"""A program's beginning: report token counts as the OpenAI usage object, repeating safely."""
