"""Reading from a real broker: crashes, cuts, silence, poison, and streams that are not whole."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from orca_runtime.errors import IntegrityError
from orca_runtime.jetstream import JetStreamLog, api, reader
from orca_runtime.jetstream.reader import ROOM_MESSAGES, Tail
from orca_runtime.log import Stored
from orca_runtime.testing_log import (
    broker_api,
    create_stream,
    outgoing,
    sequences,
    some,
    take,
)
from orca_runtime.testing_nats import BadLine, NatsServer

Connect = Callable[..., Awaitable[JetStreamLog]]


class Background:
    """A reader that collects what it reads, in a task."""

    def __init__(self, log: JetStreamLog, stream: str, after: int = 0) -> None:
        self.found: list[Stored] = []
        self._grown = asyncio.Event()
        self.task = asyncio.create_task(self._read(log, stream, after))

    async def _read(self, log: JetStreamLog, stream: str, after: int) -> None:
        async for batch in log.read(stream, after):
            self.found += batch
            self._grown.set()

    async def reach(self, count: int, limit_s: float = 10) -> None:
        """Wait until ``count`` messages were read; raises what the reader raised."""
        async with asyncio.timeout(limit_s):
            while len(self.found) < count:
                self._grown.clear()
                waiting = asyncio.ensure_future(self._grown.wait())
                await asyncio.wait((waiting, self.task), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self.task.done():
                    self.task.result()

    async def stop(self) -> None:
        """End the reader."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def test_given_crashes_when_reading_then_all_in_order(
    nats_server: NatsServer, connect: Connect
) -> None:
    """The broker is killed three times under a writer and a reader: nothing lost, nothing twice."""
    log = await connect(nats_server.url)
    await create_stream(log, "T")
    background, last = Background(log, "T"), 0
    for _ in range(3):
        for _ in range(20):
            last = await log.append("T", last, some("T", 5))
        await asyncio.to_thread(nats_server.restart)
    last = await log.append("T", last, some("T", 1))
    await background.reach(last)
    assert sequences(background.found) == list(range(1, last + 1))
    await background.stop()


async def test_given_a_cut_line_when_reading_then_all_in_order(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """Connections break in the middle of a replay."""
    writer = await connect(shared_nats.url)
    await create_stream(writer, "CUT")
    for last in range(0, 8000, 1000):
        await writer.append("CUT", last, some("CUT", 1000, size=500))
    async with BadLine(shared_nats.port) as line:
        background = Background(await connect(line.url), "CUT")
        for reached in (500, 3000, 6000):
            await background.reach(reached)
            line.cut()
        await background.reach(8000)
        assert sequences(background.found) == list(range(1, 8001))
        await background.stop()


@pytest.mark.parametrize("greeting", [b"x" * 100_000, b"INFO {}\r\n", b"-ERR '\xff'\r\n", b"\r\n"])
async def test_given_nonsense_from_the_broker_when_it_recovers_then_so_does_the_reader(
    shared_nats: NatsServer, connect: Connect, greeting: bytes
) -> None:
    """Whatever a reconnect meets (a proxy's page, another server), it is tried again."""
    writer = await connect(shared_nats.url)
    await create_stream(writer, "SENSE")
    async with BadLine(shared_nats.port) as line:
        background = Background(await connect(line.url), "SENSE")
        await writer.append("SENSE", 0, some("SENSE", 1))
        await background.reach(1)
        line.greeting = greeting
        line.cut()
        await asyncio.sleep(0.3)
        line.greeting = b""
        await writer.append("SENSE", 1, some("SENSE", 1))
        await background.reach(2)
        await background.stop()
    await broker_api(writer, "STREAM.DELETE.SENSE", {})


async def test_given_a_deleted_consumer_when_reading_then_it_goes_on(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """An operator deletes the consumer: the reader makes another and misses nothing."""
    log = await connect(shared_nats.url)
    await create_stream(log, "GONE")
    await log.append("GONE", 0, some("GONE", 3))
    background = Background(log, "GONE")
    await background.reach(3)
    for name in (await broker_api(log, "CONSUMER.NAMES.GONE", {}))["consumers"]:
        await broker_api(log, f"CONSUMER.DELETE.GONE.{name}", {})
    await log.append("GONE", 3, some("GONE", 2))
    await background.reach(5)
    assert sequences(background.found) == [1, 2, 3, 4, 5]
    await background.stop()


async def test_given_silence_when_reading_then_it_asks_anew(
    shared_nats: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers vanish while the connection stands: no heartbeat, so the reader begins again."""
    monkeypatch.setattr(reader, "SILENCE_S", 0.5)
    monkeypatch.setattr(reader, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(api, "API_TIMEOUT_S", 0.3)
    writer = await connect(shared_nats.url)
    await create_stream(writer, "MUTE")
    async with BadLine(shared_nats.port) as line:
        log = await connect(line.url)
        background = Background(log, "MUTE")
        await writer.append("MUTE", 0, some("MUTE", 1))
        await background.reach(1)
        line.swallow_requests = True
        line.swallow_answers = True
        await writer.append("MUTE", 1, some("MUTE", 1))
        await asyncio.sleep(0.8)
        line.swallow_requests = False
        line.swallow_answers = False
        await background.reach(2)
        assert sequences(background.found) == [1, 2]
        await background.stop()


async def test_given_a_live_stream_when_a_message_is_stored_then_read_at_once(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """Reading is prompt, also long after the last message: no polling in between."""
    log = await connect(shared_nats.url)
    await create_stream(log, "LIVE")
    background = Background(log, "LIVE")
    await asyncio.sleep(0.2)
    loop, delays_s = asyncio.get_running_loop(), []
    for last in range(20):
        await log.append("LIVE", last, some("LIVE", 1))
        stored_s = loop.time()
        await background.reach(last + 1)
        delays_s.append(loop.time() - stored_s)
    assert sorted(delays_s)[10] < 0.02
    await background.stop()


async def test_given_a_slow_reader_then_its_memory_is_bounded(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """What is not taken is not asked for: two requests of messages at most are buffered."""
    log = await connect(shared_nats.url)
    await create_stream(log, "SLOW")
    for last in range(0, 10_000, 1000):
        await log.append("SLOW", last, some("SLOW", 1000))
    link = log._reading
    tail = Tail(link, "SLOW", await log.epoch("SLOW"), 0, expiring=False)
    seen = 0
    while seen < 10_000:
        seen += len(await tail.next_batch())
        await asyncio.sleep(0.02)
        assert len(tail.buffer) <= ROOM_MESSAGES
    await tail.close()


async def test_given_large_messages_and_a_slow_reader_then_its_bytes_are_bounded(
    shared_nats: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large messages are bounded by bytes: 20 MB pass through, a fraction of it is buffered."""
    monkeypatch.setattr(reader, "PULL_BYTES", 500_000)
    monkeypatch.setattr(reader, "BATCH_MESSAGES", 20)
    log = await connect(shared_nats.url)
    await create_stream(log, "BYTES")
    for last in range(0, 1000, 100):
        await log.append("BYTES", last, some("BYTES", 100, size=20_000))
    tail = Tail(log._reading, "BYTES", await log.epoch("BYTES"), 0, expiring=False)
    seen = most_bytes = 0
    while seen < 1000:
        seen += len(await tail.next_batch())
        await asyncio.sleep(0.01)
        most_bytes = max(most_bytes, tail.held_bytes)
    await tail.close()
    assert 0 < most_bytes < 500_000 + 2 * 2 * log.nc.max_payload
    assert tail.held_bytes == 0


def publish_raw(server: NatsServer, command: bytes) -> None:
    """Send bytes as no decent client would."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.recv(4096)
        connection.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + command + b"PING\r\n")
        assert b"PONG" in connection.recv(4096)


def with_header(header: bytes, subject: bytes = b"poison.x") -> bytes:
    """The protocol's bytes for a message "d" with this header block."""
    return b"HPUB %s %d %d\r\n%sd\r\n" % (subject, len(header), len(header) + 1, header)


POISON = {
    "header named Status": with_header(b"NATS/1.0\r\nStatus: 408\r\nDescription: Idle\r\n\r\n"),
    "status line": with_header(b"NATS/1.0 503 No Responders\r\n\r\n"),
    "status line that is no text": with_header(b"NATS/1.0 100 \xff\xfe\r\n\r\n"),
    "header cut short": with_header(b"NATS/1.0"),
    "header of one byte": with_header(b"x"),
    "header of bytes": with_header(b"NATS/1.0\r\n\xff: \xfe\r\n\r\n"),
    "subject that is no text": b"PUB poison.\xff 1\r\nd\r\n",
    "subject with a vertical tab": b"PUB poison.a\x0bb 1\r\nd\r\n",
    "subject with a form feed": b"PUB poison.a\x0cb 1\r\nd\r\n",
    "subject with a carriage return": b"PUB poison.a\rb 1\r\nd\r\n",
    "subject with a null": b"PUB poison.a\x00b 1\r\nd\r\n",
    "long subject": b"PUB poison." + b"a" * 3000 + b" 1\r\nd\r\n",
}


@pytest.mark.parametrize("command", POISON.values(), ids=POISON.keys())
async def test_given_poison_when_read_then_it_is_data(
    nats_server: NatsServer, connect: Connect, command: bytes
) -> None:
    """No stored message stops a reader; nats-py alone dies of half of these, again and again."""
    log = await connect(nats_server.url)
    await create_stream(log, "POISON")
    await log.append("POISON", 0, some("POISON", 1))
    core = await log.nc.subscribe("poison.>")
    await log.nc.flush()
    background = Background(log, "POISON")
    publish_raw(nats_server, command)
    await background.reach(2, limit_s=3)
    await log.append("POISON", 2, some("POISON", 1))
    await background.reach(3, limit_s=3)
    assert background.found[1].body == b"d"
    assert background.found[1].subject.startswith("poison.")
    assert [(await core.next_msg(2)).data[:1] for _ in range(2)] == [b"d", b"0"]
    await background.stop()


async def test_given_a_stream_that_expires_when_read_from_the_start_then_from_what_is_left(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """Only a stream said to expire may begin late, and only for a reader from the start."""
    log = await connect(shared_nats.url, expiring={"AGED"})
    for name in ("AGED", "KEPT"):
        await create_stream(log, name, max_msgs=3, discard="old")
        await log.append(name, 0, some(name, 5))
    assert sequences(await take(log, "AGED", 0, 3)) == [3, 4, 5]
    assert sequences(await take(log, "AGED", 3, 2)) == [4, 5]
    for name, after in (("KEPT", 0), ("AGED", 1)):
        with pytest.raises(IntegrityError, match="begins at 3"):
            await take(log, name, after, 1)


async def test_given_a_removed_message_behind_when_reading_anew_then_integrity_error(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """A hole is found before anything is read, wherever it is."""
    log = await connect(shared_nats.url)
    await create_stream(log, "HOLE")
    await log.append("HOLE", 0, some("HOLE", 5))
    await broker_api(log, "STREAM.MSG.DELETE.HOLE", {"seq": 2})
    with pytest.raises(IntegrityError, match="missing"):
        await take(log, "HOLE", 4, 1)


async def test_given_a_hole_ahead_when_it_is_reached_then_what_is_before_it_is_read_first(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """A running reader gets what is whole, then the fault."""
    log = await connect(shared_nats.url)
    await create_stream(log, "AHEAD")
    for last in range(0, 8000, 1000):
        await log.append("AHEAD", last, some("AHEAD", 1000))
    found: list[Stored] = []

    async def read_and_break() -> None:
        async for batch in log.read("AHEAD", 0):
            if not found:
                await broker_api(log, "STREAM.MSG.DELETE.AHEAD", {"seq": 7000})
            found.extend(batch)

    with pytest.raises(IntegrityError):
        await asyncio.wait_for(read_and_break(), 10)
    assert sequences(found) == list(range(1, 7000))


async def test_given_a_stream_made_anew_when_read_from_the_start_then_integrity_error(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """Positions of the first stream were seen, so nothing of the second may be taken for it."""
    log = await connect(shared_nats.url)
    await create_stream(log, "ANEW")
    await log.state("ANEW")
    await broker_api(log, "STREAM.DELETE.ANEW", {})
    await create_stream(log, "ANEW")
    await log.append("ANEW", 0, some("ANEW", 1))
    with pytest.raises(IntegrityError, match="another stream"):
        await take(log, "ANEW", 0, 1)


async def test_given_a_deleted_stream_when_reading_then_integrity_error(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """A stream that is gone is a fault, not a reason to wait."""
    log = await connect(shared_nats.url)
    await create_stream(log, "AWAY")
    background = Background(log, "AWAY")
    await log.append("AWAY", 0, some("AWAY", 1))
    await background.reach(1)
    await broker_api(log, "STREAM.DELETE.AWAY", {})
    with pytest.raises(IntegrityError, match="gone"):
        await background.reach(2)


@pytest.fixture
async def rolled_back(nats_server: NatsServer, connect: Connect, tmp_path: Path):
    """A reader at 8, whose broker then gets an older backup, ending at 4, put under it."""
    log = await connect(nats_server.url)
    await create_stream(log, "T")
    await log.append("T", 0, some("T", 4))
    nats_server.stop()
    shutil.copytree(nats_server.store / "jetstream", tmp_path / "backup")
    nats_server.start()
    await log.append("T", 4, some("T", 4))
    background = Background(log, "T")
    await background.reach(8)
    nats_server.kill()
    shutil.rmtree(nats_server.store / "jetstream")
    shutil.copytree(tmp_path / "backup", nats_server.store / "jetstream")
    yield nats_server, background
    await background.stop() if not background.task.done() else None


async def test_given_a_rolled_back_stream_when_reading_then_integrity_error(rolled_back) -> None:
    """The stream ends before what was read."""
    server, background = rolled_back
    server.start()
    with pytest.raises(IntegrityError, match="rolled back to 4"):
        await background.reach(9)


async def test_given_a_rolled_back_stream_that_grew_again_when_reading_then_integrity_error(
    rolled_back, connect: Connect
) -> None:
    """Sequences were used a second time: the newest message read is not what stands there now."""
    server, background = rolled_back
    elsewhere = NatsServer(server.store)
    elsewhere.start()
    other = await connect(elsewhere.url)
    await other.append("T", 4, outgoing("T", *(b"other%d" % i for i in range(6))))
    await other.close()
    elsewhere.stop()
    server.start()
    with pytest.raises(IntegrityError, match="not what stood here"):
        await background.reach(9)


async def test_given_a_reader_that_ends_then_its_consumer_goes(
    shared_nats: NatsServer, connect: Connect
) -> None:
    """Nothing is left on the broker or in the connection."""
    log = await connect(shared_nats.url)
    await create_stream(log, "TIDY")
    await log.append("TIDY", 0, some("TIDY", 1))
    subscriptions = len(log.nc._subs)
    await take(log, "TIDY", 0, 1)
    await log.nc.flush()
    assert (await broker_api(log, "CONSUMER.NAMES.TIDY", {}))["consumers"] == []
    assert len(log.nc._subs) == subscriptions
    assert not log._reading.on_reconnect
    assert not log._reading.on_denied
