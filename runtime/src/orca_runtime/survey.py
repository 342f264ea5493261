"""A look at all streams at once: as declared, whole, and of one mind about what was read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from nats.aio.client import Client
from orca_schemas.codec import digest
from orca_schemas.positions import Position
from orca_schemas.subjects import Stream

from orca_runtime import streams
from orca_runtime.cut import cut_of
from orca_runtime.errors import IntegrityError
from orca_runtime.fold import NO_EVENT
from orca_runtime.integrity import DECIDER_STREAMS, Mark, check_marks, marks_of
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Stored, StreamState
from orca_runtime.streams import API_TIMEOUT_S, EXPIRING, NS_PER_S

COUNTER_S = 5


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One stream: where it begins and ends, through where it is whole, and where to cut it."""

    name: str
    epoch: int
    first: int
    last: int
    messages: int
    whole_through: int
    cut: int


@dataclass(slots=True)
class Survey:
    """What was found. No problem: every recorded cause exists and every stream is as declared."""

    streams: list[StreamReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    chains_checked: int = 0
    """Own events whose chain was verified (``--deep``)."""

    def as_json(self) -> dict[str, Any]:
        """As ``orca streams check --json`` prints it."""
        return {"fine": not self.problems} | asdict(self)


async def survey(
    log: JetStreamLog, *, deep: bool = False, store_bytes: int | None = None, replicas: int = 1
) -> Survey:
    """Look at every stream of the log; what is written meanwhile raises no alarm.

    Raises LogUnavailableError, RefusedError where the broker denies asking.
    """
    found = Survey(problems=await streams.check(log.nc, store_bytes, replicas))
    missing = {text.split(":")[0] for text in found.problems if text.endswith(": missing")}
    names = [stream for stream in Stream if stream not in missing]
    if missing:
        return found
    # Marks first, ends then: streams only grow, so none can end before an older mark.
    marks = {name: await marks_of(log, name) for name in names}
    states = {name: await log.state(name) for name in names}
    later = {str(name): await log.state(name) for name in names}
    whole = {str(name): await _whole(log.nc, state, found) for name, state in states.items()}
    for name in names:
        _judge_marks(later[name], marks[name], found)
    if deep:
        for name in DECIDER_STREAMS:
            whole[name] = min(whole[name], await _chain(log, name, later, whole[name], found))
    cut = await cut_of(log, whole)
    for name, state in states.items():
        place = (state.first_sequence, state.last_sequence, state.messages)
        report = StreamReport(name.value, state.epoch, *place, whole[name], cut[name])
        found.streams.append(report)
    return found


def _judge_marks(state: StreamState, marks: list[Mark], found: Survey) -> None:
    for mark in marks:
        try:
            check_marks(state, [mark])
        except IntegrityError as error:
            found.problems.append(str(error).partition("; restore")[0])


async def _whole(nc: Client, state: StreamState, found: Survey) -> int:
    """Through where a stream has no hole."""
    first, last = state.first_sequence, state.last_sequence
    if not state.messages:
        if last and state.stream not in EXPIRING:
            found.problems.append(f"{state.stream}: all {last} messages are missing")
            return 0
        return last
    if first > 1 and state.stream not in EXPIRING:
        found.problems.append(f"{state.stream}: begins at {first}, not at 1")
        return 0
    lacking = last - first + 1 - state.messages
    if lacking == 0:
        return last
    through = await _first_hole(nc, state) - 1
    text = f"{state.stream}: {lacking} messages are missing, the first is {through + 1}"
    found.problems.append(text)
    return through


async def _first_hole(nc: Client, state: StreamState) -> int:
    """The first sequence that is missing: halves, by how many messages stand from a place on."""
    low, high = state.first_sequence, state.last_sequence  # low stands, at or before high lacks one
    while high - low > 1:
        middle = (low + high) // 2
        before = state.messages - await _count_from(nc, state, middle + 1)
        if before == middle - state.first_sequence + 1:
            low = middle
        else:
            high = middle
    return high


async def _count_from(nc: Client, state: StreamState, sequence: int) -> int:
    """How many messages stand from ``sequence`` to the end that the state names."""
    more = await _pending(nc, state.stream, state.last_sequence + 1)
    return await _pending(nc, state.stream, sequence) - more


async def _pending(nc: Client, stream: str, sequence: int) -> int:
    name = uuid4().hex
    config = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": sequence,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": COUNTER_S * NS_PER_S,
    }
    body = {"stream_name": stream, "config": config, "action": "create"}
    made = await _ask(nc, f"CONSUMER.CREATE.{stream}.{name}", body)
    await _ask(nc, f"CONSUMER.DELETE.{stream}.{name}", {})
    pending: int = made["num_pending"]
    return pending


async def _ask(nc: Client, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = await nc.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=API_TIMEOUT_S)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def _chain(
    log: JetStreamLog, stream: str, states: Mapping[str, StreamState], end: int, found: Survey
) -> int:
    """Check the chain and the causes of a decider's stream; returns through where both hold."""
    previous, through = NO_EVENT, 0
    async for stored in _read(log, stream, end):
        problem = _fault(stored, previous, states)
        if problem is not None:
            found.problems.append(f"{stream} at sequence {stored.sequence}: {problem}")
            break
        previous, through = digest(stored.body), stored.sequence
        found.chains_checked += 1
    return through


async def _read(log: JetStreamLog, stream: str, end: int) -> AsyncIterator[Stored]:
    """The messages through ``end``, one by one where a hole keeps the reader from beginning."""
    state = await log.state(stream)
    if end < state.last_sequence and state.messages < state.last_sequence:
        for sequence in range(1, end + 1):
            stored = await log.get(stream, sequence)
            if stored is None:
                return
            yield stored
        return
    if end == 0:
        return
    async for batch in log.read(stream, 0):
        for stored in batch:
            yield stored
            if stored.sequence >= end:
                return


def _fault(stored: Stored, previous: str, states: Mapping[str, StreamState]) -> str | None:
    try:
        body = json.loads(stored.body)
        if body.get("previous") != previous:
            return "does not follow its predecessor"
        cause = Position.parse(body["cause"])
    except (ValueError, KeyError, AttributeError, TypeError):
        return "a foreign message"
    known = states.get(cause.stream)
    if known is None or known.epoch != cause.epoch or known.last_sequence < cause.sequence:
        return f"its cause {cause} does not exist"
    return None
