"""What comes back to a question, whatever is asked and however large the answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from orca_runtime import streams
from orca_runtime.asks import MAX_REPLY_BYTES, Ask, AskServer, LogVerb, Verb
from orca_runtime.deadletters import deadletters
from orca_runtime.history import history, logs
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.settings import ServiceSettings
from orca_runtime.testing_nats import NatsServer
from orca_schemas.asks import LogQuery, TaskQuery, TaskRow, Tasks
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from .conftest import STORE_BYTES, Connect

ROW = TaskRow(
    task_id=uuid.UUID(int=1), run_id=uuid.UUID(int=2), namespace="team-alpha", name="x" * 2000,
    user="alice", phase="queued", since_ms=0, submitted_at_ms=0,
)  # fmt: skip


def many(_state: Any, query: TaskQuery, _ask: Ask) -> Tasks:
    """As many rows as asked for, and always more."""
    return Tasks(tasks=(ROW,) * query.limit, more=True)


class Huge(BaseModel):
    """An answer that has no rows."""

    text: str = "x" * MAX_REPLY_BYTES


class Odd(BaseModel):
    """An answer that no JSON can carry."""

    text: str = "\ud800"


Ask_ = Any


@pytest.fixture
async def log(shared_nats: NatsServer, connect: Connect) -> JetStreamLog:
    """The streams, on a real broker."""
    found = await connect(shared_nats.url)
    await streams.apply(found.nc, STORE_BYTES)
    return found


@pytest.fixture
async def ask(shared_nats: NatsServer, log: JetStreamLog) -> AsyncIterator[Ask_]:
    """Ask a service with these verbs over the broker: ``ask(verb, body, namespace)``."""
    letters = SimpleNamespace(letters={"CLIENT@1#1": 1}, state=None, sequence=1)
    shell: Any = SimpleNamespace(
        active=True, folded=letters, epoch=1, log=log,
        decider=SimpleNamespace(stream="ADMISSION", reads=(), role=SimpleNamespace(value="x")),
    )  # fmt: skip
    verbs = {
        "many": Verb(TaskQuery, many),
        "ours": Verb(TaskQuery, many, asked_from="_cluster"),
        "huge": Verb(None, lambda *_: Huge()),
        "odd": Verb(None, lambda *_: Odd()),
        "history": LogVerb(TaskQuery, history),
        "logs": LogVerb(LogQuery, logs),
        "deadletters": deadletters(shell),
    }
    settings = ServiceSettings(nats_url=shared_nats.url)
    server = AskServer("toy", shell, verbs, settings, CollectorRegistry())
    await server.start()

    async def asking(verb: str, body: object = None, namespace: str = "_cluster") -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        nc: Client = log.nc
        reply = await nc.request(f"orca.ask.{namespace}.alice.toy.{verb}", data, timeout=5)
        return json.loads(reply.data)

    yield asking
    await server.broker.stop()


async def test_an_answer_too_large_for_the_broker_has_fewer_rows(ask: Ask_) -> None:
    """It says that there is more; the rows that fit are given."""
    found = (await ask("many", {"limit": 1000}))["data"]
    assert 250 <= len(found["tasks"]) < 500
    assert found["more"]
    assert len((await ask("many", {"limit": 10}))["data"]["tasks"]) == 10


@pytest.mark.parametrize("verb", ["huge", "odd"])
async def test_an_answer_that_cannot_be_sent_is_refused(ask: Ask_, verb: str) -> None:
    """Silence would look like a service that is away."""
    found = await ask(verb)
    assert found["ok"] is False
    assert found["error"]["remedy"]


async def put(log: JetStreamLog, namespace: str, task_id: str, event: str, body: bytes) -> None:
    """A client's message, in order or not."""
    subject = f"orca.{namespace}.task.{task_id}.client.mallory.{event}"
    await log.nc.jetstream().publish(subject, body)


async def test_nobody_can_hide_the_history_of_a_task(ask: Ask_, log: JetStreamLog) -> None:
    """Whatever stands under its id is shown as far as it can be."""
    task_id = str(uuid.uuid4())
    await put(log, "team-alpha", task_id, "TaskSubmitted", b'{"data":{"a":1}}')
    for body in (b'{"cause":5,"data":[]}', b'{"data":{"a":"\\ud800"}}', b"[" * 100_000, b"\xff"):
        await put(log, "team-alpha", task_id, "x", body)
    events = (await ask("history", {"task_id": task_id}))["data"]["events"]
    assert [event["event"] for event in events] == ["TaskSubmitted", *"xxxx"]
    assert events[0]["data"] == {"a": 1}


async def test_a_namespace_sees_its_own_history_and_output_only(
    ask: Ask_, log: JetStreamLog
) -> None:
    """A task id is no secret: who knows it learns nothing of another namespace's task."""
    task_id = str(uuid.uuid4())
    await put(log, "team-alpha", task_id, "TaskSubmitted", b'{"data":{"env":"secret"}}')
    said = f"orca.logs.team-alpha.alice.{task_id}.node-1"
    await log.nc.jetstream().publish(said, b'{"attempt":1,"offset":0,"text":"secret"}')
    for namespace, count in (("team-alpha", 1), ("_cluster", 1), ("team-beta", 0)):
        events = await ask("history", {"task_id": task_id}, namespace)
        assert len(events["data"]["events"]) == count
        chunks = await ask("logs", {"task_id": task_id}, namespace)
        assert len(chunks["data"]["chunks"]) == count


async def test_what_nobody_else_may_ask_does_not_arrive(ask: Ask_) -> None:
    """A tenant's flood of it would keep others waiting, though each were refused."""
    assert (await ask("ours", {"limit": 1}))["ok"]
    with pytest.raises(NoRespondersError):
        await ask("ours", {"limit": 1}, "team-beta")


async def test_dead_letters_are_shown_to_operators_only(ask: Ask_) -> None:
    """They hold anybody's input."""
    found = (await ask("deadletters", {"limit": 1}, "team-beta"))["data"]
    assert found == {"letters": [], "total": 0}
