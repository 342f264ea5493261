"""The bytes on the wire: acknowledgement subjects, statuses, times, and the parser's lines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from orca_runtime.jetstream.protocol import TolerantClient
from orca_runtime.jetstream.wire import (
    Delivery,
    actual_last,
    parse_ack_subject,
    parse_status,
    parse_time_ns,
)

THERE = Delivery(42, 1764571584123456789)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (b"$JS.ACK.CLIENT.c1.1.42.7.1764571584123456789.3", THERE),
        (b"$JS.ACK.hub.A1B2.CLIENT.c1.1.42.7.1764571584123456789.3", THERE),
        (b"$JS.ACK.hub.A1B2.CLIENT.c1.1.42.7.1764571584123456789.3.x", THERE),
        (b"", None),
        (b"_INBOX.x.1", None),
    ],
)
def test_an_acknowledgement_subject_tells_sequence_and_time(
    reply: bytes, found: Delivery | None
) -> None:
    """With and without a domain; anything else is no message of a stream."""
    assert parse_ack_subject(reply) == found


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Stream: 7\r\n\r\n", (100, "Idle Heartbeat")),
        (b"NATS/1.0 503\r\n\r\n", (503, "")),
        (b"NATS/1.0\r\nStatus: 408\r\n\r\n", (0, "")),
        (b"NATS/1.0 x \xff\r\n", (0, "\ufffd")),
        (b"", (0, "")),
    ],
)
def test_a_status_is_read_from_the_first_line_only(header: bytes, found: tuple[int, str]) -> None:
    """A header named Status is somebody's data."""
    assert parse_status(header) == found


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("2025-12-01T06:46:24.123456789Z", 1764571584123456789),
        ("2025-12-01T06:46:24.1Z", 1764571584100000000),
        ("2025-12-01T06:46:24Z", 1764571584000000000),
        ("2025-12-01T07:46:24.5+01:00", 1764571584500000000),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, time_ns: int) -> None:
    """A float would lose the last digits, and an epoch is compared exactly."""
    assert parse_time_ns(text) == time_ns


def test_a_wrong_time_is_an_error() -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time_ns("yesterday")


def test_the_actual_last_sequence_is_read_where_it_is_said() -> None:
    """One of the two refusals names it."""
    assert actual_last("wrong last sequence: 11") == 11
    assert actual_last("wrong last sequence") is None


MESSAGES = [
    (b"a.b", b"", b"", b"hello"),
    (b"a.\xff\x0b\r", b"$JS.ACK.x", b"", b"\r\nMSG a 1 1\r\n"),
    (b"a", b"r", b"NATS/1.0\r\nA: b\r\n\r\n", b""),
    (b"MSG", b"", b"x", b"PING\r\n"),
]


def on_the_wire() -> bytes:
    """The messages as a server sends them, with other lines between."""
    out = b"+OK\r\n"
    for subject, reply, header, body in MESSAGES:
        words = [subject, b"7", *([reply] if reply else [])]
        if header:
            sizes = [b"%d" % len(header), b"%d" % (len(header) + len(body))]
            out += b"HMSG " + b" ".join(words + sizes)
        else:
            out += b"MSG " + b" ".join([*words, b"%d" % len(body)])
        out += b"\r\n" + header + body + b"\r\n+OK\r\n"
    return out


@given(st.sets(st.integers(1, len(on_the_wire()) - 1), max_size=20))
async def test_given_any_chunks_when_parsed_then_the_same_messages(cuts: set[int]) -> None:
    """Where the network cuts the bytes does not matter."""
    client, found = TolerantClient(), []
    client.raw_handlers[7] = lambda *message: found.append(message)
    wire, edges = on_the_wire(), [0, *sorted(cuts), len(on_the_wire())]
    for start, end in itertools.pairwise(edges):
        await client._ps.parse(wire[start:end])
    assert found == MESSAGES
    assert not client._ps.buf


@pytest.mark.parametrize("line", [b"NONSENSE\r\n", b"x" * 70_000])
async def test_given_no_protocol_when_parsed_then_an_error(line: bytes) -> None:
    """What is no NATS ends the connection instead of growing a buffer."""
    with pytest.raises(ProtocolError):
        await TolerantClient()._ps.parse(line)
