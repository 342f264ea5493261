"""Appending to a real broker that stalls, crashes, or whose answers are lost."""

from __future__ import annotations

import asyncio
import time

import pytest
from orca_runtime.errors import ConflictError, LogError, LogUnavailableError
from orca_runtime.jetstream import JetStreamLog, Patience, RefusedError
from orca_runtime.testing_log import create_stream, outgoing, sequences, some, take
from orca_runtime.testing_nats import BadLine, NatsServer

HASTY = Patience(attempt_s=0.2, append_s=10)


@pytest.mark.parametrize("count", [1, 5])
async def test_given_a_stalled_broker_when_it_goes_on_then_stored_once(
    nats_server: NatsServer, connect, count: int
) -> None:
    """Every try that timed out is stored or refused late; the outcome is success, once."""
    log: JetStreamLog = await connect(nats_server.url, patience=HASTY)
    await create_stream(log, "T")
    await log.append("T", 0, some("T", 1))
    nats_server.pause()
    appending = asyncio.create_task(log.append("T", 1, some("T", count)))
    await asyncio.sleep(1)
    nats_server.resume()
    assert await appending == 1 + count
    await asyncio.sleep(0.3)
    assert (await log.state("T")).messages == 1 + count


@pytest.mark.parametrize("count", [1, 5])
async def test_given_lost_acknowledgements_when_appended_then_success(
    shared_nats: NatsServer, connect, count: int
) -> None:
    """Stored, but no answer came back: what stands at the expected place tells."""
    async with BadLine(shared_nats.port) as line:
        log: JetStreamLog = await connect(line.url, patience=HASTY)
        name = f"LOST{count}"
        await create_stream(log, name)
        line.swallow_answers = True
        group = some(name, count)
        appending = asyncio.create_task(log.append(name, 0, group))
        await asyncio.sleep(0.5)
        line.swallow_answers = False
        line.cut()
        assert await appending == count
        assert [m.body for m in await take(log, name, 0, count)] == [m.body for m in group]


@pytest.mark.parametrize("count", [1, 5])
async def test_given_lost_requests_when_a_rival_wrote_then_conflict(
    shared_nats: NatsServer, connect, count: int
) -> None:
    """Nothing arrived and a rival took the place, be its first event the same: a conflict."""
    rival: JetStreamLog = await connect(shared_nats.url)
    name = f"RIVAL{count}"
    rivals = outgoing(name, b"rival") if count == 1 else [*some(name, 1), *outgoing(name, b"r")]
    await create_stream(rival, name)
    async with BadLine(shared_nats.port) as line:
        log: JetStreamLog = await connect(line.url, patience=HASTY)
        line.swallow_requests = True
        appending = asyncio.create_task(log.append(name, 0, some(name, count)))
        await asyncio.sleep(0.3)
        await rival.append(name, 0, rivals)
        line.swallow_requests = False
        line.cut()
        with pytest.raises(ConflictError):
            await appending
    assert (await rival.state(name)).last_sequence == len(rivals)


@pytest.mark.parametrize("count", [1, 5])
async def test_given_crashes_when_a_writer_goes_on_then_each_append_stands_once(
    nats_server: NatsServer, connect, count: int
) -> None:
    """Three kills under load: every acknowledged append stands, at its place, whole."""
    log: JetStreamLog = await connect(nats_server.url, patience=HASTY)
    await create_stream(log, "T")
    bodies: list[bytes] = []
    stopping = asyncio.Event()

    async def write() -> None:
        while not stopping.is_set():
            group = outgoing("T", *(b"%d.%d" % (len(bodies), i) for i in range(count)))
            assert await log.append("T", len(bodies), group) == len(bodies) + count
            bodies.extend(message.body for message in group)

    writing = asyncio.create_task(write())
    for _ in range(3):
        await asyncio.sleep(0.15)
        await asyncio.to_thread(nats_server.restart)
    await asyncio.sleep(0.2)
    stopping.set()
    await writing
    assert [m.body for m in await take(log, "T", 0, len(bodies))] == bodies
    assert (await log.state("T")).messages == len(bodies) > 3 * count


async def test_given_no_broker_when_the_append_gives_up_then_nothing_comes_late(
    nats_server: NatsServer, connect
) -> None:
    """A writer does not buffer: what was given up is not stored after the reconnect."""
    log: JetStreamLog = await connect(nats_server.url, patience=Patience(0.2, 0.5))
    await create_stream(log, "T")
    nats_server.kill()
    with pytest.raises(LogUnavailableError, match="read the stream"):
        await log.append("T", 0, some("T", 3))
    with pytest.raises(LogUnavailableError):
        await log.append("T", 0, some("T", 1))
    nats_server.start()
    await asyncio.wait_for(log.wait_connected(), 10)
    assert (await log.state("T")).messages == 0
    assert await log.append("T", 0, some("T", 1)) == 1


async def test_given_no_atomic_batches_when_a_group_is_appended_then_said_why(
    shared_nats: NatsServer, connect
) -> None:
    """A stream that takes no groups refuses with its reason, and stores nothing."""
    log: JetStreamLog = await connect(shared_nats.url)
    await create_stream(log, "PLAIN", allow_atomic=False)
    with pytest.raises(RefusedError, match="atomic"):
        await log.append("PLAIN", 0, some("PLAIN", 2))
    assert (await log.state("PLAIN")).messages == 0


async def test_given_too_large_a_message_then_refused_at_once(
    shared_nats: NatsServer, connect
) -> None:
    """What the broker never takes is no reason to wait."""
    log: JetStreamLog = await connect(shared_nats.url)
    await create_stream(log, "LARGE")
    with pytest.raises(RefusedError):
        await log.append("LARGE", 0, outgoing("LARGE", bytes(2_000_000)))


async def test_given_no_stream_then_each_operation_says_so(
    shared_nats: NatsServer, connect
) -> None:
    """A missing stream is named, with the remedy."""
    log: JetStreamLog = await connect(shared_nats.url, patience=Patience(0.2, 0.3))
    with pytest.raises(RefusedError, match="orca streams apply"):
        await log.state("NOPE")
    with pytest.raises(RefusedError, match="orca streams apply"):
        await take(log, "NOPE", 0, 1)
    with pytest.raises(LogUnavailableError, match="no stream takes"):
        await log.append("NOPE", 0, some("NOPE", 1))


async def test_given_many_unfinished_groups_when_appended_then_it_waits_its_turn(
    shared_nats: NatsServer, connect
) -> None:
    """The broker keeps 50 open groups at most; the append goes through when there is room."""
    log: JetStreamLog = await connect(shared_nats.url, patience=Patience(1, 15))
    await create_stream(log, "BUSY")
    for number in range(50):
        headers = {"Nats-Batch-Id": f"open{number}", "Nats-Batch-Sequence": "1"}
        await log.nc.request("busy.x", b"", headers=headers, timeout=2)
    await create_stream(log, "FREE")
    assert await log.append("FREE", 0, some("FREE", 2)) == 2
    busy = asyncio.create_task(log.append("BUSY", 0, some("BUSY", 2)))
    await asyncio.sleep(0.3)
    assert not busy.done()
    busy.cancel()


USERS = """
accounts {
  ORCA {
    jetstream: enabled
    users: [
      { user: admin, password: a }
      { user: reader, password: r, permissions: {
          publish: ["$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.CREATE.>"],
          subscribe: ["_INBOX.>"] } }
      { user: writer, password: w, permissions: {
          publish: ["orca.*.*.*.node.node-1.*"], subscribe: ["_INBOX.>"] } }
      { user: deaf, password: d, permissions: { publish: [">"], subscribe: ["nothing"] } }
    ]
  }
}
"""


@pytest.fixture
async def guarded(tmp_path, connect):
    """A broker with users who may do little; and its administrator's log with stream T."""
    server = NatsServer(tmp_path, extra=USERS)
    server.start()
    log = await connect(server.url, user="admin", password="a")
    await create_stream(log, "T")
    await log.append("T", 0, some("T", 1))
    yield server, log
    server.stop()


async def test_given_no_permission_then_refused_at_once_and_said_what(guarded, connect) -> None:
    """A denial is no timeout: it says which subject, for one message and for a group."""
    server, _ = guarded
    log: JetStreamLog = await connect(server.url, user="reader", password="r")
    began = time.monotonic()
    for count in (1, 3):
        with pytest.raises(RefusedError, match=r"t\.x"):
            await log.append("T", 1, some("T", count))
    with pytest.raises(RefusedError, match=r"msg\.next"):
        await take(log, "T", 0, 1)
    with pytest.raises(RefusedError, match=r"msg\.get"):
        await log.get("T", 1)
    assert time.monotonic() - began < 2


async def test_given_no_right_to_listen_then_refused(guarded, connect) -> None:
    """Who may hear no answer is told so, instead of timing out."""
    server, _ = guarded
    log: JetStreamLog = await connect(server.url, user="deaf", password="d")
    with pytest.raises(RefusedError, match="subscription"):
        await log.state("T")


async def test_given_a_node_that_may_only_report_then_its_reports_are_stored(
    guarded, connect
) -> None:
    """A node has no rights on JetStream's API; a repeat is stored again rather than trusted."""
    server, admin = guarded
    await create_stream(admin, "NODE", subjects=["orca.*.*.*.node.*.*"])
    log: JetStreamLog = await connect(server.url, user="writer", password="w")
    report = outgoing("X", b"1")[0]
    report = type(report)("orca.a.task.b.node.node-1.TaskStarted", report.body, report.id)
    places = [await log.publish(report) for _ in range(2)]
    assert [(p.stream, p.epoch, p.sequence) for p in places] == [("NODE", 0, 1), ("NODE", 0, 2)]
    with pytest.raises(RefusedError):
        await log.publish(type(report)("orca.a.task.b.node.node-2.TaskStarted", b"", "x"))


async def test_given_wrong_credentials_then_refused_at_once(guarded) -> None:
    """A wrong password is said, not retried for ever."""
    server, _ = guarded
    with pytest.raises(RefusedError, match="authorization"):
        await JetStreamLog.connect(server.url, name="x", user="admin", password="wrong")


async def test_given_no_broker_when_connecting_then_unavailable_in_time() -> None:
    """The wait for a broker is bounded."""
    with pytest.raises(LogUnavailableError, match="not connected"):
        await JetStreamLog.connect("nats://127.0.0.1:1", name="x", wait_s=0.3)


async def test_given_a_closed_log_when_used_then_unavailable(
    shared_nats: NatsServer, connect
) -> None:
    """After close nothing hangs."""
    log: JetStreamLog = await connect(shared_nats.url)
    await create_stream(log, "CLOSED")
    await log.close()
    await asyncio.wait_for(log.wait_closed(), 1)
    for use in (log.append("CLOSED", 0, some("CLOSED", 1)), log.get("CLOSED", 1)):
        with pytest.raises(LogError):
            await asyncio.wait_for(use, 1)


async def test_given_pipelined_appends_then_each_knows_its_outcome(
    shared_nats: NatsServer, connect
) -> None:
    """Appends sent before the answer of the one before are stored in order."""
    log: JetStreamLog = await connect(shared_nats.url)
    await create_stream(log, "PIPE")
    tries = [log.append("PIPE", last, some("PIPE", 1)) for last in range(200)]
    assert await asyncio.gather(*tries) == list(range(1, 201))
    assert sequences(await take(log, "PIPE", 0, 200)) == list(range(1, 201))
