"""Looking at an installation: one finding per thing, with what to do about it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from nats.errors import Error as NatsError
from orca_schemas.asks import Nodes, Status, StreamInfo, StreamQuery
from orca_schemas.subjects import Stream

from orca_client import deadletters, sql
from orca_client.connection import Connection
from orca_client.errors import (
    BrokerUnreachableError,
    ClickHouseUnreachableError,
    NoAnswerError,
    QueryError,
    RefusedError,
)
from orca_client.settings import ClientSettings

SERVICES = ("admission", "placement", "metering", "billing")
LOGS = "LOGS"
API_S = 3.0
LAG_WARN = 1_000
"""Inputs waiting: more than a second of work at the speed that one service must keep up."""
SKEW_WARN_MS = 2_000
SILENT_WARN_MS = 15_000
DISK_FULL_BYTES = 16 * 2**20
"""Less than the broker may need for one more file of messages."""
DISK_WARN_PERCENT = 10
CURSORS = (
    "SELECT projector, stream, max(sequence) FROM projection_cursors GROUP BY projector, stream"
)


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was seen, and what to do where it is not well."""

    level: Level
    what: str
    seen: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """As ``orca doctor --json`` prints it."""
        return {name: str(value) for name, value in asdict(self).items()}


async def examine(settings: ClientSettings) -> AsyncIterator[Finding]:
    """Look at everything, from the broker up."""
    last: dict[str, int] = {}
    password = settings.nats_password.get_secret_value() if settings.nats_password else None
    try:
        connection = await Connection.open(
            settings.nats_url, settings.user, name=settings.nats_user, password=password
        )
    except BrokerUnreachableError as error:
        yield Finding(Level.FAIL, "broker", str(error), "start one with orca up")
    else:
        async with connection:
            async for finding in _bus(connection, settings, last):
                yield finding
    for finding in await asyncio.to_thread(_clickhouse, settings.clickhouse_url, last):
        yield finding
    for finding in disk(settings.data_dir.expanduser() / "nats"):
        yield finding


async def _bus(
    connection: Connection, settings: ClientSettings, last: dict[str, int]
) -> AsyncIterator[Finding]:
    yield _broker(connection, settings.nats_url)
    for name in (*Stream, LOGS):
        yield await _stream(connection, name, last)
    yield await _clock(connection)
    for finding in await asyncio.gather(*(_service(connection, name) for name in SERVICES)):
        yield finding
    yield await _letters(connection)
    for finding in await _nodes(connection):
        yield finding


def _broker(connection: Connection, url: str) -> Finding:
    version = connection.nc.connected_server_version
    seen = f"{url}, nats-server {version.major}.{version.minor}.{version.patch}"
    # nats-py shows it nowhere else.
    if connection.nc._server_info.get("auth_required"):
        return Finding(Level.OK, "broker", seen)
    remedy = "development default: anybody who reaches the port is everybody; see orca up --auth"
    return Finding(Level.WARN, "broker", f"{seen}, open (no authentication)", remedy)


async def _stream(connection: Connection, name: str, last: dict[str, int]) -> Finding:
    what = f"stream {name}"
    try:
        info = await _info(connection, name)
    except (NatsError, TimeoutError, ValueError):
        remedy = "enable JetStream in the broker, or ask with a user that may read its API"
        return Finding(Level.FAIL, what, "JetStream does not answer", remedy)
    if "error" in info:
        remedy = "declare the streams: orca up does, or orca streams apply"
        return Finding(Level.FAIL, what, str(info["error"].get("description")), remedy)
    state, limit = info["state"], info["config"].get("max_bytes", -1)
    last[name] = state["last_seq"]
    seen = f"{state['messages']} messages, {state['bytes']} bytes, last {state['last_seq']}"
    if limit > 0 and state["bytes"] > limit * 8 // 10:
        remedy = "give the store more room: new work is refused when it is full"
        return Finding(Level.WARN, what, f"{seen} of at most {limit} bytes", remedy)
    return Finding(Level.OK, what, seen)


async def _info(connection: Connection, name: str) -> dict[str, Any]:
    """What the broker says of a stream; where this user may not ask it, a service does."""
    try:
        reply = await connection.request(f"$JS.API.STREAM.INFO.{name}", b"", API_S)
    except RefusedError:
        return await _info_of_a_service(connection, name)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def _info_of_a_service(connection: Connection, name: str) -> dict[str, Any]:
    for service in SERVICES:
        with contextlib.suppress(NoAnswerError, RefusedError):
            info = await connection.ask(StreamInfo, service, "stream", StreamQuery(stream=name))
            return {
                "state": {
                    "messages": info.messages,
                    "bytes": info.bytes,
                    "last_seq": info.last_sequence,
                },
                "config": {"max_bytes": info.max_bytes or -1},
                "ts": info.broker_time,
            }
    return {"error": {"description": "this user may not ask JetStream, and no service answers"}}


async def _clock(connection: Connection) -> Finding:
    """Compare this host's clock with the broker's, which is the clock of the log."""
    try:
        before_ms = time.time() * 1000
        info = await _info(connection, Stream.CLIENT)
        after_ms = time.time() * 1000
        broker_ms = datetime.fromisoformat(_micros(info["ts"])).timestamp() * 1000
    except (NatsError, TimeoutError, ValueError, KeyError):
        return Finding(Level.WARN, "clock", "the broker does not say its time", "compare by hand")
    skew_ms = int(max(before_ms - broker_ms, broker_ms - after_ms, 0))
    seen = f"this host and the broker differ by {skew_ms} ms"
    if skew_ms > SKEW_WARN_MS:
        return Finding(Level.WARN, "clock", seen, "let NTP set both clocks")
    return Finding(Level.OK, "clock", seen)


def _micros(stamp: str) -> str:
    """RFC 3339 with nanoseconds, cut to the microseconds that Python reads."""
    head, dot, rest = stamp.removesuffix("Z").partition(".")
    return f"{head}{dot}{rest[:6]}+00:00"


async def _service(connection: Connection, name: str) -> Finding:
    try:
        status = await connection.ask(Status, name, "status")
    except NoAnswerError:
        return Finding(Level.FAIL, name, "does not answer", "start it; orca status shows its log")
    except RefusedError as error:
        return Finding(Level.FAIL, name, str(error), "read its log")
    lag = sum(status.lag.values())
    seen = f"sequence {status.sequence}, lag {lag}, digest {status.digest[:12]}, {status.version}"
    if not (status.ready and status.active):
        return Finding(Level.FAIL, name, f"not ready: {status.reason}", "do as the reason says")
    if lag > LAG_WARN:
        waiting = ", ".join(f"{stream} {count}" for stream, count in status.lag.items() if count)
        remedy = "it is behind; watch whether it catches up"
        return Finding(Level.WARN, name, f"{seen} ({waiting})", remedy)
    return Finding(Level.OK, name, seen)


async def _letters(connection: Connection) -> Finding:
    """Inputs that no service could handle and that nobody settled."""
    what = "dead letters"
    try:
        count = await deadletters.count(connection)
    except RefusedError as error:
        return Finding(Level.FAIL, what, str(error), "see the services above")
    if count is None:
        return Finding(Level.WARN, what, "not every service says", "see the services above")
    if count:
        remedy = "orca deadletter list; then redrive or drop each"
        return Finding(Level.WARN, what, f"{count} open", remedy)
    return Finding(Level.OK, what, "none open")


async def _nodes(connection: Connection) -> list[Finding]:
    try:
        nodes = (await connection.ask(Nodes, "placement", "nodes")).nodes
    except (NoAnswerError, RefusedError) as error:
        return [Finding(Level.FAIL, "nodes", str(error), "see placement above")]
    if not nodes:
        remedy = "start a node agent: no task can run without one"
        return [Finding(Level.FAIL, "nodes", "none has joined", remedy)]
    return [finding for node in nodes for finding in _node(node)]


def _node(node: Any) -> list[Finding]:
    inventory = node.inventory
    seen = f"{node.status}, {len(inventory.gpus)} GPUs, {node.attempts} attempts"
    silent_ms = time.time() * 1000 - node.last_heard_ms if node.last_heard_ms else 0
    what = f"node {node.node}"
    found = [Finding(Level.OK, what, seen)]
    if node.status != "ready":
        found = [Finding(Level.FAIL, what, seen, "look at the node agent and its network")]
    elif silent_ms > SILENT_WARN_MS:
        late = f"{seen}, last heard {silent_ms / 1000:.0f} s ago"
        found = [Finding(Level.WARN, what, late, "look at the node agent and its network")]
    if inventory.executor == "process":
        remedy = "development default: it isolates nothing and ignores images; use docker"
        found.append(Finding(Level.WARN, what, "process executor", remedy))
    if any(gpu.simulated for gpu in inventory.gpus):
        remedy = "development default: no such GPU is there; unset ORCA_SIMULATED_GPUS"
        found.append(Finding(Level.WARN, what, "simulated GPUs", remedy))
    return found


def disk(store: Path) -> list[Finding]:
    """Whether there is room for the log; nothing where its files are not on this host."""
    if not store.is_dir():
        return []
    room = shutil.disk_usage(store)
    seen = f"{room.free // 2**20} of {room.total // 2**20} MiB free at {store}"
    if room.free < DISK_FULL_BYTES:
        # Measured on 2.15: the broker goes on reading, and writes again only after a restart.
        remedy = "nothing is stored any more; make room there, then orca down and orca up"
        return [Finding(Level.FAIL, "disk", seen, remedy)]
    if room.free < room.total * DISK_WARN_PERCENT // 100:
        return [Finding(Level.WARN, "disk", seen, "make room: when it is full, all stops")]
    return [Finding(Level.OK, "disk", seen)]


def _clickhouse(url: str, last: dict[str, int]) -> list[Finding]:
    try:
        version = str(sql.query(url, "SELECT version()").rows[0][0])
        cursors = sql.query(url, CURSORS).rows
    except ClickHouseUnreachableError as error:
        return [Finding(Level.FAIL, "clickhouse", str(error), "start it; the log keeps everything")]
    except QueryError as error:
        remedy = "metering and billing make their tables when they start"
        return [Finding(Level.FAIL, "clickhouse", str(error), remedy)]
    return [Finding(Level.OK, "clickhouse", f"{url}, {version}")] + [
        _projector(projector, stream, done, last) for projector, stream, done in sorted(cursors)
    ]


def _projector(projector: str, stream: str, done: int, last: dict[str, int]) -> Finding:
    what = f"projector {projector}/{stream}"
    if stream not in last:
        return Finding(Level.WARN, what, f"at {done}", "the stream's end is not known; see above")
    lag = max(0, last[stream] - done)
    if lag > LAG_WARN:
        return Finding(Level.WARN, what, f"at {done}, lag {lag}", "look at ClickHouse's load")
    return Finding(Level.OK, what, f"at {done}, lag {lag}")
