"""What every store of streams must do: the same tests over memory and a real broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from orca_runtime.errors import (
    ConflictError,
    DecisionTooLargeError,
    IntegrityError,
    StreamFullError,
)
from orca_runtime.log import Outgoing
from orca_runtime.testing_log import Store, outgoing, sequences, some, take

TASK = "4f5e9a52-0000-4000-8000-000000000001"


async def test_given_an_empty_stream_when_appended_then_its_state_says_so(store: Store) -> None:
    """An empty stream ends at 0; the new end is returned and shown."""
    stream = await store.declare()
    before = await store.a.state(stream)
    assert (before.last_sequence, before.messages) == (0, 0)
    assert await store.a.append(stream, 0, some(stream, 1)) == 1
    after = await store.a.state(stream)
    assert (after.first_sequence, after.last_sequence, after.messages) == (1, 1, 1)
    assert after.epoch == before.epoch > 0


async def test_given_others_wrote_when_appended_then_conflict_and_nothing(store: Store) -> None:
    """The expectation is the fence: who did not see the last event stores nothing."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 2))
    for late in (some(stream, 1), some(stream, 3)):
        with pytest.raises(ConflictError):
            await store.b.append(stream, 1, late)
    assert (await store.a.state(stream)).last_sequence == 2


async def test_given_a_shorter_stream_when_appended_then_integrity_error(store: Store) -> None:
    """Who read more than now stands there looks at a stream that rolled back."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 2))
    with pytest.raises(IntegrityError, match="ends here"):
        await store.a.append(stream, 5, some(stream, 1))


@pytest.mark.parametrize("count", [1, 2, 100, 1000])
async def test_given_a_group_when_appended_then_all_stand_in_order(
    store: Store, count: int
) -> None:
    """A group of any legal size stands whole, in its order, byte for byte."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 1))
    group = some(stream, count)
    assert await store.a.append(stream, 1, group) == 1 + count
    found = await take(store.a, stream, 1, count)
    assert [(m.subject, m.body) for m in found] == [(m.subject, m.body) for m in group]


@pytest.mark.parametrize(("count", "error"), [(0, ValueError), (1001, DecisionTooLargeError)])
async def test_given_a_group_of_illegal_size_then_refused(
    store: Store, count: int, error: type[Exception]
) -> None:
    """Nothing, and more than one atomic batch holds, are the caller's bugs."""
    stream = await store.declare()
    with pytest.raises(error):
        await store.a.append(stream, 0, some(stream, count))


@pytest.mark.parametrize("count", [1, 3])
async def test_given_used_ids_when_other_bytes_are_appended_then_no_success(
    store: Store, count: int
) -> None:
    """A broker's "duplicate" is no success: the bytes are not stored."""
    stream = await store.declare()
    first = some(stream, count)
    last = await store.a.append(stream, 0, first)
    others = [replace(message, body=b"other") for message in first]
    with pytest.raises(IntegrityError, match="stored elsewhere"):
        await store.a.append(stream, last, others)
    assert (await store.a.state(stream)).last_sequence == last


async def test_given_two_rivals_when_both_append_then_exactly_one_wins(store: Store) -> None:
    """Under the same expectation one is stored whole, the other not at all."""
    stream, last = await store.declare(), 0
    for size in (1, 2, 1, 5, 1, 3):
        tries = [log.append(stream, last, some(stream, size)) for log in (store.a, store.b)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(one).__name__ for one in outcomes) == ["ConflictError", "int"]
        last += size
    assert (await store.a.state(stream)).last_sequence == last


async def test_given_a_full_stream_when_appended_then_refused_whole(store: Store) -> None:
    """At its limit a stream refuses one, and a group that fits only in part."""
    stream = await store.declare(limit=3)
    await store.a.append(stream, 0, some(stream, 2))
    with pytest.raises(StreamFullError):
        await store.a.append(stream, 2, some(stream, 2))
    assert await store.a.append(stream, 2, some(stream, 1)) == 3
    with pytest.raises(StreamFullError):
        await store.a.append(stream, 3, some(stream, 1))
    assert (await store.a.state(stream)).messages == 3


async def test_given_a_past_when_read_from_anywhere_then_no_gap(store: Store) -> None:
    """From the start, the middle, and before the last."""
    stream = await store.declare()
    for last in range(0, 1500, 500):
        await store.a.append(stream, last, some(stream, 500))
    for after in (0, 700, 1499):
        found = await take(store.b, stream, after, 1500 - after)
        assert sequences(found) == list(range(after + 1, 1501))


async def test_given_a_reader_at_the_end_when_appended_then_it_wakes(store: Store) -> None:
    """What is stored now is read now, in order, and with the stream's own time and epoch."""
    stream = await store.declare()
    reading = asyncio.create_task(take(store.b, stream, 0, 30))
    await asyncio.sleep(0.05)
    for last in range(0, 30, 3):
        await store.a.append(stream, last, some(stream, 3))
    found = await reading
    assert sequences(found) == list(range(1, 31))
    assert [m.time_ns for m in found] == sorted(m.time_ns for m in found)
    assert {m.epoch for m in found} == {(await store.a.state(stream)).epoch}


async def test_given_a_slow_reader_when_many_are_stored_then_none_is_lost(store: Store) -> None:
    """A reader slower than the writer is behind, and that is all."""
    stream = await store.declare()
    for last in range(0, 9000, 1000):
        await store.a.append(stream, last, some(stream, 1000))
    found: list[int] = []
    async for batch in store.b.read(stream, 0):
        found += sequences(batch)
        await asyncio.sleep(0.01)
        if len(found) == 9000:
            break
    assert found == list(range(1, 9001))


async def test_given_two_readers_then_each_reads_all(store: Store) -> None:
    """Readers share nothing."""
    stream = await store.declare()
    readers = [asyncio.create_task(take(log, stream, 0, 5)) for log in (store.a, store.b)]
    await store.a.append(stream, 0, some(stream, 5))
    assert [sequences(await reader) for reader in readers] == [[1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n", b"+OK\r\n-ERR 'x'\r\n", bytes(100_000)])
async def test_given_any_bytes_when_stored_then_the_same_are_read(
    store: Store, body: bytes
) -> None:
    """A body is bytes; nothing in it means anything to the store."""
    stream = await store.declare()
    await store.a.append(stream, 0, outgoing(stream, body, body))
    read = await take(store.a, stream, 0, 2)
    assert [one.body for one in read] == [body, body]
    assert await store.a.get(stream, 2) == read[1]


async def test_given_no_message_when_got_then_none(store: Store) -> None:
    """A place without a message is None, not an error."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 1))
    assert await store.a.get(stream, 2) is None


async def test_given_a_removed_message_when_read_then_integrity_error(store: Store) -> None:
    """A hole is never skipped."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 5))
    await store.erase(stream, 3)
    with pytest.raises(IntegrityError):
        await take(store.a, stream, 0, 5)


async def test_given_a_position_beyond_the_end_when_read_then_integrity_error(
    store: Store,
) -> None:
    """Who read more than now stands there must not go on."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 5))
    with pytest.raises(IntegrityError, match="rolled back"):
        await take(store.a, stream, 6, 1)


async def test_given_a_stream_made_anew_when_reading_then_integrity_error(store: Store) -> None:
    """Another stream of the same name is another stream, though it has the same sequences."""
    stream = await store.declare()
    await store.a.append(stream, 0, some(stream, 2))
    reader = asyncio.create_task(take(store.b, stream, 0, 3))
    await asyncio.sleep(0.1)
    await store.recreate(stream)
    await store.a.append(stream, 0, some(stream, 3))
    with pytest.raises(IntegrityError):
        await reader


async def test_given_a_repeat_when_published_then_it_stands_once(store: Store) -> None:
    """Where nodes write, the same message is stored once; other bytes of its id are stored."""
    subject = f"orca.team-alpha.task.{TASK}.node.node-1.TaskStarted"
    message = outgoing("X", b"one")[0]
    message = Outgoing(subject, b"one", message.id)
    place = await store.a.publish(message)
    assert place.stream == "NODE"
    assert await store.b.publish(message) == place
    other = await store.b.publish(replace(message, body=b"two"))
    assert other == place._replace(sequence=place.sequence + 1)
    assert [m.body for m in await take(store.a, "NODE", place.sequence - 1, 2)] == [b"one", b"two"]


async def test_given_strangers_write_when_ids_repeat_then_all_stand(store: Store) -> None:
    """Where users write, ids mean nothing: nobody can swallow another's message."""
    subject = f"orca.team-alpha.task.{TASK}.client.alice.TaskSubmitted"
    message = Outgoing(subject, b"{}", "mine")
    first, second = await store.a.publish(message), await store.b.publish(message)
    assert first.stream == "CLIENT"
    assert second == first._replace(sequence=first.sequence + 1)
