"""What the runtime's tests share: a real broker, and the two stores behind one face."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from orca_runtime import streams
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.testing_log import JetStreamStore, MemoryStore, Store
from orca_runtime.testing_nats import NatsServer, running_nats

STORE_BYTES = 2_000_000_000


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[NatsServer]:
    """One broker for all tests that do it no harm."""
    with running_nats() as server:
        yield server


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A broker of the test's own, to kill and pause."""
    with running_nats() as server:
        yield server


Connect = Callable[..., Awaitable[JetStreamLog]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a url; closed after the test."""
    logs: list[JetStreamLog] = []

    async def connect_(url: str, **options: Any) -> JetStreamLog:
        logs.append(await JetStreamLog.connect(url, **({"name": "test"} | options)))
        return logs[-1]

    yield connect_
    for log in logs:
        await log.close()


@pytest.fixture(params=["memory", "jetstream"])
async def store(request: pytest.FixtureRequest, connect: Connect) -> Store:
    """Each of the two stores."""
    if request.param == "memory":
        return MemoryStore()
    server: NatsServer = request.getfixturevalue("shared_nats")
    a = await connect(server.url)
    await streams.apply(a.nc, STORE_BYTES)
    return JetStreamStore(a, await connect(server.url))
