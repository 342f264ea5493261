"""A real broker with the real streams, and a small class that answers in the services' place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import nats
import pytest
from nats.aio.msg import Msg
from orca_client.cli.__main__ import run
from orca_runtime import streams
from orca_runtime.testing_nats import NatsServer, running_nats
from orca_schemas.asks import AskError, Reply, TaskRow, Tasks
from orca_schemas.subjects import parse_subject
from pydantic import BaseModel

NOW_MS = 1_800_000_000_000
STORE_BYTES = 64 * 2**20


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with running_nats(sync="2m") as server:
        asyncio.run(_declare(server.url))
        yield server


async def _declare(url: str) -> None:
    nc = await nats.connect(url)
    await streams.apply(nc, STORE_BYTES)
    await nc.close()


Answer = Callable[[dict[str, Any]], BaseModel | AskError]


class Services:
    """Answers questions with what a test says, and requests with the events a test says."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, Answer] = {}
        self.decisions: dict[str, tuple[str, str, dict[str, Any]]] = {}
        self.said: list[tuple[str, dict[str, Any]]] = []
        """Every event of clients and operators: its name and its body."""
        self._last: dict[str, int] = {}

    async def start(self) -> None:
        self._nc = await nats.connect(self.url)
        for stream in ("CLIENT", "ADMIN"):
            info = await self._nc.jetstream().stream_info(stream)
            self._last[stream] = info.state.last_seq
        await self._nc.subscribe("orca.ask.*.*.*.*", cb=self._answer)
        for role in ("client", "admin"):
            await self._nc.subscribe(f"orca.*.*.*.{role}.*.*", cb=self._hear)
        await self._nc.flush()

    async def stop(self) -> None:
        await self._nc.close()

    async def _answer(self, message: Msg) -> None:
        _, _, _, _, service, verb = message.subject.split(".")
        answer = self.answers.get(f"{service}.{verb}")
        if answer is None:
            return
        found = answer(json.loads(message.data or b"{}"))
        if isinstance(found, AskError):
            reply = Reply(ok=False, error=found)
        else:
            reply = Reply(ok=True, data=found.model_dump(mode="json"))
        await message.respond(reply.model_dump_json(exclude_none=True).encode())

    async def _hear(self, message: Msg) -> None:
        """Say the event that a test wants for this request, with its position as the cause."""
        subject = parse_subject(message.subject)
        self.said.append((message.subject, json.loads(message.data)))
        self._last[subject.stream] += 1
        if subject.event not in self.decisions:
            return
        role, event, data = self.decisions[subject.event]
        cause = f"{subject.stream}@1#{self._last[subject.stream]}"
        where = subject._replace(role=role, party="-", event=event)
        body = {"type": f"orca.{event}.v1", "cause": cause, "data": data}
        await self._nc.publish(str(where), json.dumps(body).encode())

    def tasks(self, *rows: TaskRow, placement: tuple[TaskRow, ...] = ()) -> None:
        """Let admission and placement know these tasks."""
        self.answers["admission.tasks"] = lambda query: _matching(rows, query)
        self.answers["placement.tasks"] = lambda query: _matching(placement, query)


def _matching(rows: tuple[TaskRow, ...], query: dict[str, Any]) -> Tasks:
    wanted, namespace = query.get("task_id"), query.get("namespace")
    found = [
        row
        for row in rows
        if wanted in (None, str(row.task_id)) and namespace in (None, row.namespace)
    ]
    return Tasks(tasks=tuple(found))


@pytest.fixture
async def services(nats_server: NatsServer) -> AsyncIterator[Services]:
    found = Services(nats_server.url)
    await found.start()
    yield found
    await found.stop()


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture
def orca(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Run the command in a thread of this process, its output captured."""
    monkeypatch.setenv("ORCA_NATS_URL", nats_server.url)
    monkeypatch.setenv("ORCA_CLICKHOUSE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ORCA_USER", "alice")

    async def command(*arguments: str) -> Ran:
        code = await asyncio.to_thread(run, arguments)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return command


@pytest.fixture
def row() -> Callable[..., TaskRow]:
    """Makes a task as a service says it is."""
    return _row


def _row(phase: str, task_id: UUID | None = None, **changes: Any) -> TaskRow:
    """A task as a service says it is."""
    plain: dict[str, Any] = {
        "task_id": task_id or uuid4(), "run_id": UUID(int=7), "namespace": "team-a",
        "name": "train", "user": "alice", "phase": phase, "since_ms": NOW_MS,
        "submitted_at_ms": NOW_MS,
    }  # fmt: skip
    return TaskRow(**(plain | changes))
