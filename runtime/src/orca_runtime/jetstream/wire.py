"""What JetStream says on the wire: acknowledgement subjects, statuses, times, error codes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

ACK_PREFIX = b"$JS.ACK."
STATUS_PREFIX = b"NATS/1.0 "
NS_PER_S = 1_000_000_000

NOT_FOUND_MESSAGE = 10037
NOT_FOUND_STREAM = 10059
WRONG_LAST_SEQUENCE = 10071
WRONG_LAST_SEQUENCE_CONSTANT = 10164
ACCOUNT_RESOURCES = 10002
SERVER_RESOURCES = 10023
STORE_FULL = 10077
STORAGE_EXCEEDED = 10047
BATCH_INCOMPLETE = 10176
BATCH_DUPLICATE_ID = 10201
BATCH_TOO_MANY = 10210

CONFLICT_CODES = frozenset((WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT))
FULL_CODES = frozenset((STORE_FULL, STORAGE_EXCEEDED, ACCOUNT_RESOURCES, SERVER_RESOURCES))
PASSING_CODES = frozenset((BATCH_INCOMPLETE, BATCH_TOO_MANY))
"""Refusals that say nothing is stored and a later try may pass."""

STATUS_HEARTBEAT = 100
STATUS_NO_MESSAGES = 404
STATUS_TIMEOUT = 408
STATUS_CONFLICT = 409
STATUS_NO_RESPONDERS = 503

_WRONG_LAST = re.compile(r"wrong last sequence: (\d+)")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


class Delivery(NamedTuple):
    """What an acknowledgement subject tells of a delivered message."""

    sequence: int
    time_ns: int


def parse_ack_subject(reply: bytes) -> Delivery | None:
    """Read ``$JS.ACK…``, with or without domain; None where it is none, so no message of a stream.

    ``$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<tries>.<stream seq>.<consumer seq>.<ns>…``
    """
    if not reply.startswith(ACK_PREFIX):
        return None
    tokens = reply.split(b".")
    offset = 5 if len(tokens) == 9 else 7
    return Delivery(int(tokens[offset]), int(tokens[offset + 2]))


def parse_status(header: bytes) -> tuple[int, str]:
    """Read ``NATS/1.0 409 Consumer Deleted``; (0, "") where the header block has no status."""
    line = header.partition(b"\r\n")[0]
    if not line.startswith(STATUS_PREFIX):
        return 0, ""
    code, _, text = line[len(STATUS_PREFIX) :].partition(b" ")
    return (int(code) if code.isdigit() else 0), text.decode("utf-8", "replace")


def parse_time_ns(text: str) -> int:
    """Read an RFC 3339 time with up to nine decimals into Unix nanoseconds; raises ValueError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    zone = "+00:00" if found[3] == "Z" else found[3]
    whole = datetime.fromisoformat(found[1] + zone).astimezone(UTC)
    return int(whole.timestamp()) * NS_PER_S + int((found[2] or "").ljust(9, "0"))


def actual_last(description: str) -> int | None:
    """Read the last sequence out of a refused expectation, where the broker names it."""
    found = _WRONG_LAST.search(description)
    return int(found[1]) if found else None
