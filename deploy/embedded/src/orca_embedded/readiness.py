"""Waiting until each layer answers, and saying which part did not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import aiohttp
import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from orca_runtime import streams
from orca_schemas.subjects import ask_subject

from orca_embedded.access import SERVICE, password
from orca_embedded.problems import EX_UNAVAILABLE, StackProblem
from orca_embedded.programs import DECIDERS
from orca_embedded.settings import StackSettings

PROBE_S = 0.1


async def wait_for(
    what: str, limit_s: float, probe: Callable[[], Awaitable[bool]], hint: Callable[[], str]
) -> None:
    """Probe until true; raises StackProblem after ``limit_s`` with the hint."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if await probe():
            return
        await asyncio.sleep(PROBE_S)
    raise StackProblem(f"{what} did not become ready in {limit_s:.0f} s: {hint()}", EX_UNAVAILABLE)


async def _connect(settings: StackSettings) -> Client:
    """Connect at once or not at all: nats-py would try a refused connection for two minutes."""
    _, writer = await asyncio.open_connection("127.0.0.1", settings.nats_port)
    writer.close()
    return await nats.connect(
        settings.nats_url(),
        user=SERVICE if settings.auth else None,
        password=password(settings, SERVICE) if settings.auth else None,
        connect_timeout=2,
        allow_reconnect=False,
        error_cb=_quiet,
    )


async def broker_answers(settings: StackSettings) -> bool:
    """Whether the broker takes connections and its JetStream answers."""
    try:
        nc = await _connect(settings)
    except (NatsError, OSError, TimeoutError):
        return False
    try:
        await nc.jetstream(timeout=1).account_info()
    except (NatsError, TimeoutError):
        return False
    finally:
        await nc.close()
    return True


async def declare_streams(settings: StackSettings) -> None:
    """Make the streams of the log, or check that they are what this release declares."""
    nc = await _connect(settings)
    try:
        await streams.apply(nc, settings.max_store_bytes)
    finally:
        await nc.close()


async def clickhouse_answers(settings: StackSettings) -> bool:
    """Whether ClickHouse answers /ping."""
    timeout = aiohttp.ClientTimeout(total=1)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{settings.clickhouse_url()}/ping") as answer,
        ):
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def services_not_ready(settings: StackSettings) -> dict[str, str]:
    """Each decider that is not ready and active, and why; plus nodes that placement lacks."""
    try:
        nc = await _connect(settings)
    except (NatsError, OSError, TimeoutError) as error:
        return {"nats": str(error)}
    try:
        found = {name: await _why_not(nc, name) for name in DECIDERS}
        if found["placement"] is None:
            for node in settings.node_gpus():
                found[f"node-agent/{node}"] = await _node_missing(nc, node)
        return {name: why for name, why in found.items() if why is not None}
    finally:
        await nc.close()


async def _why_not(nc: Client, service: str) -> str | None:
    try:
        reply = await nc.request(
            ask_subject("_cluster", "orca-up", service, "status"), b"", timeout=1
        )
    except (NatsError, TimeoutError):
        return "does not answer yet"
    data = json.loads(reply.data).get("data", {})
    return None if data.get("ready") and data.get("active") else str(data.get("reason"))


async def _node_missing(nc: Client, node: str) -> str | None:
    try:
        reply = await nc.request(
            ask_subject("_cluster", "orca-up", "placement", "nodes"), b"", timeout=1
        )
    except (NatsError, TimeoutError):
        return "placement does not answer yet"
    rows = json.loads(reply.data).get("data", {}).get("nodes", [])
    return None if any(row["node"] == node for row in rows) else "has not joined yet"


async def _quiet(_: Exception) -> None:
    """A probe that fails is no news."""
