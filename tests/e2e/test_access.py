"""Users of the broker: what a client, an operator and a node may say, and what they may not."""

from __future__ import annotations

import asyncio
import json
import stat
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from orca_client.connection import Connection
from orca_client.errors import BrokerUnreachableError
from orca_client.submit import submit
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, ended, eventually, make_namespace, manifest

TEAM = "team-access"
TASK = str(uuid.uuid4())
DENIED = "permissions violation for publish"


class Stranger:
    """A raw connection as a broker's user, and what the broker held against it."""

    def __init__(self) -> None:
        self.held_against: list[str] = []
        self.nc = Client()

    async def connect(self, url: str, **options: object) -> None:
        await self.nc.connect(url, error_cb=self._hear, **options)  # type: ignore[arg-type]

    async def _hear(self, error: Exception) -> None:
        self.held_against.append(str(error))

    async def is_denied(self, subject: str, body: bytes = b"{}", reply: str = "") -> bool:
        """Whether the broker refuses a publication."""
        self.held_against.clear()
        await self.nc.publish(subject, body, reply=reply)
        await self.nc.flush()
        await asyncio.sleep(0.05)
        return any(DENIED in text for text in self.held_against)


@pytest.fixture
async def client(stack: RunningStack) -> AsyncIterator[Stranger]:
    stranger = Stranger()
    await stranger.connect(stack.url_of("client"))
    yield stranger
    await stranger.nc.close()


@pytest.fixture
async def node(stack: RunningStack) -> AsyncIterator[Stranger]:
    stranger = Stranger()
    await stranger.connect(stack.url_of("node-node-1"), inbox_prefix="_INBOX_node-node-1")
    yield stranger
    await stranger.nc.close()


def event(role: str, name: str, party: str = "-") -> str:
    return f"orca.{TEAM}.task.{TASK}.{role}.{party}.{name}"


async def ends(stack: RunningStack, *streams: Stream) -> list[int]:
    async with stack.log() as log:
        return [(await log.state(stream)).last_sequence for stream in streams]


async def test_nobody_connects_without_a_password(stack: RunningStack) -> None:
    """Given a broker with users, when somebody comes without or with a wrong password, refused."""
    bare = f"nats://127.0.0.1:{stack.nats_port}"
    for url in (bare, f"nats://client:guess@127.0.0.1:{stack.nats_port}"):
        with pytest.raises(BrokerUnreachableError) as refused:
            await Connection.open(url, "alice")
        assert "uthorization" in str(refused.value)
        assert "guess" not in str(refused.value)


def test_passwords_are_their_owners_alone(stack: RunningStack) -> None:
    """Given a data directory, then passwords and the broker's configuration are private files."""
    home: Path = stack.home
    files = [home / "nats.conf", *(home / "access").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((home / "access").stat().st_mode) == 0o700


async def test_an_operator_sets_a_quota_and_a_client_runs_a_task(stack: RunningStack) -> None:
    """Given an operator's quota, when a client submits, asks and listens, then it gets its answers.

    The client's connection is as its library makes it, with an inbox of the usual name.
    """
    async with await Connection.open(stack.url_of("operator"), "root") as root:
        await make_namespace(root, TEAM, {"cpu_milli": 8000, "memory_mib": 8192, "tasks": 10})
    async with await Connection.open(stack.url_of("client"), "alice") as alice:
        submitted = await submit(alice, manifest("hello", TEAM, ["true"]))
        assert (await ended(alice, submitted.task_id)).outcome == "succeeded"


async def test_the_orca_command_works_with_an_operators_rights(stack: RunningStack) -> None:
    """Given the operator's password in the environment, then the command does all of its work."""
    ran = await asyncio.to_thread(stack.orca, "quota", "set", "team-cli", "tasks=3")
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    listed = await asyncio.to_thread(stack.orca, "get", "nodes")
    assert (listed.returncode, "node-1" in listed.stdout) == (0, True), listed


@pytest.mark.parametrize(
    "subject",
    [
        event("admission", "QuotaReserved"),
        event("placement", "Placed", "node-1"),
        event("node", "TaskFinished", "node-1"),
        event("probe", "TokensUsed", "node-1"),
        event("admin", "QuotaSet", "root"),
        "$JS.API.STREAM.INFO.CLIENT",
        "$JS.API.STREAM.MSG.GET.ADMISSION",
        "$JS.API.CONSUMER.CREATE.ADMISSION.x",
        "$JS.API.STREAM.DELETE.ADMISSION",
        "$JS.ACK.ADMISSION.x.1.1.1.1.1",
        "$KV.orca-leases.admission",
        "orca.telemetry.node-1.heartbeat",
        "orca.hint.node-1",
        "_INBOX_service.x",
    ],
)
async def test_a_client_says_nothing_in_anothers_place(
    stack: RunningStack, client: Stranger, subject: str
) -> None:
    """Given a client, when it speaks as a service, a node, an operator or to JetStream, refused."""
    everything = tuple(Stream)
    before = await ends(stack, *everything[1:])
    assert await client.is_denied(subject)
    assert await ends(stack, *everything[1:]) == before


async def test_a_forged_reply_subject_reaches_no_stream(
    stack: RunningStack, client: Stranger, node: Stranger
) -> None:
    """Given messages that name a decider's subject as their reply, then no answer lands there.

    They themselves are taken: it is the acknowledgement and the answer that must not be forged.
    """
    deciders = (Stream.ADMISSION, Stream.PLACEMENT, Stream.METERING, Stream.BILLING)
    forged = event("billing", "Charged")
    said = event("client", "TaskCancelRequested", "mallory")
    before = await ends(stack, Stream.BILLING, Stream.CLIENT)
    assert not await client.is_denied(said, reply=forged)
    assert not await client.is_denied("orca.ask._cluster.x.billing.prices", b"", reply=forged)
    assert not await node.is_denied(event("node", "TaskStarted", "node-1"), reply=forged)

    async def taken() -> bool:
        return (await ends(stack, Stream.CLIENT)) > before[1:]

    await eventually("CLIENT takes the message", taken)
    await asyncio.sleep(0.3)
    async with stack.log() as log:
        for stream in deciders:
            assert await log.find(stream, forged, 0, 1) == []


async def test_a_node_speaks_for_itself_alone(stack: RunningStack, node: Stranger) -> None:
    """Given node-1, then it may report, count and ask as node-1, and in nobody else's place."""
    assert not await node.is_denied("orca.telemetry.node-1.heartbeat")
    for subject in (
        event("node", "TaskFinished", "node-2"),
        event("probe", "TokensUsed", "node-2"),
        event("client", "TaskSubmitted", "alice"),
        event("placement", "Placed", "node-1"),
        "orca.telemetry.node-2.heartbeat",
        f"orca.logs.{TEAM}.alice.{TASK}.node-2",
        "orca.ask._cluster.node-2.placement.desired",
        "orca.ask._cluster.node-1.billing.cost",
        "$JS.API.STREAM.INFO.NODE",
    ):
        assert await node.is_denied(subject), subject
    reply = await node.nc.request("orca.ask._cluster.node-1.placement.desired", b"", timeout=3)
    assert json.loads(reply.data)["ok"]


async def test_nobody_hears_anothers_answers(stack: RunningStack, client: Stranger) -> None:
    """Given the inboxes of services and operators, when a client listens there, refused."""
    for subject in ("_INBOX_service.>", "_INBOX_operator.>", "orca.hint.>", ">"):
        client.held_against.clear()
        await client.nc.subscribe(subject, cb=_unheard)
        await client.nc.flush()
        await asyncio.sleep(0.05)
        assert any("subscription" in text for text in client.held_against), subject


async def _unheard(_: object) -> None:
    raise AssertionError("heard what is another's")


def test_the_command_says_what_its_user_may_not(stack: RunningStack) -> None:
    """Given the client's password, when a quota is set with it, then that is refused at once."""
    password = (stack.home / "access" / "client").read_text()
    given = ("--nats-user", "client", "--nats-password", password, "quota", "set", "x", "tasks=1")
    ran = stack.orca(*given)
    assert ran.returncode == 3, ran
    assert "client may not say this to the broker" in ran.stderr
    assert "ORCA_NATS_USER" in ran.stderr


def test_the_doctor_finds_a_stack_with_users_well(stack: RunningStack) -> None:
    """Given an operator, then the doctor sees every stream through a service."""
    ran = stack.orca("doctor", "--json")
    found = {one["what"]: one for one in json.loads(ran.stdout)}
    assert ran.returncode == 0, ran.stdout
    assert found["broker"]["level"] == "ok"
    assert "messages" in found["stream ADMISSION"]["seen"]
    assert "open" in found["dead letters"]["seen"]
