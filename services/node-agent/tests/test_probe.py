"""The usage endpoint over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from orca_node_agent.endings import Ending
from orca_node_agent.identity import DataDirTakenError, Identity
from orca_node_agent.ledger import Ledger
from orca_node_agent.probe import MAX_BODY_BYTES, UsageProbe
from orca_node_agent.probe_server import PORTS, ProbeServer, UsagePortTakenError
from orca_node_agent.records import key_of
from orca_node_agent.spool import Spool, SpoolLimits
from orca_node_agent.spool_thread import SpoolThread
from orca_node_agent.testing import an_attempt
from orca_runtime.clock import SystemClock
from orca_schemas.codec import decode
from orca_schemas.events.usage import TokensUsed
from orca_schemas.subjects import parse_subject
from orca_schemas.values import Outcome, TokenClasses

T0 = 1_764_547_200_000
ATTEMPT = an_attempt(1, granted_tokens=1_000)
KEY = key_of(ATTEMPT)
OPENAI = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


class Endpoint:
    """A running endpoint and what stands behind it."""

    def __init__(self, path: Path, limits: SpoolLimits) -> None:
        self.identity = Identity(path)
        self.spool = Spool(path / "spool.db", limits, T0)
        self.ledger = Ledger(self.spool, "node-1")
        self.thread = SpoolThread()
        probe = UsageProbe(self.ledger, self.thread, self.identity, SystemClock())
        self.server = ProbeServer(probe.application(), 0, path / "usage_port")
        self.http = aiohttp.ClientSession()
        self.token = self.identity.token(KEY)

    async def open(self) -> None:
        await self.server.start()
        self.ledger.accept(ATTEMPT)
        self.ledger.started(KEY, T0)

    async def post(self, body: Any, token: str | None = None) -> tuple[int, dict[str, Any]]:
        data = {"data": body} if isinstance(body, bytes | str) else {"json": body}
        async with self.http.post(self.server.url, headers=self._headers(token), **data) as answer:
            return answer.status, await answer.json()

    async def lease(self, token: str | None = None) -> tuple[int, dict[str, Any]]:
        url = self.server.url.replace("/usage", "/lease")
        async with self.http.get(url, headers=self._headers(token)) as answer:
            return answer.status, await answer.json()

    def recorded(self) -> list[TokensUsed]:
        events = [
            decode(parse_subject(row.message.subject), row.message.body).data
            for row in self.spool.waiting(1_000)
        ]
        return [event for event in events if isinstance(event, TokensUsed)]

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token if token is None else token}"}

    async def close(self) -> None:
        await self.http.close()
        await self.server.close()
        self.thread.close()
        self.spool.close()
        self.identity.close()


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    """An endpoint with one running attempt."""
    made = Endpoint(tmp_path, SpoolLimits())
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({"input_uncached": 20, "output_text": 10},
                     TokenClasses(input_uncached=20, output_text=10), id="disjoint"),
        pytest.param(OPENAI | {"prompt_tokens_details": {"cached_tokens": 5}},
                     TokenClasses(input_uncached=15, input_cache_read=5, output_text=10),
                     id="openai"),
        pytest.param({"input_tokens": 15, "cache_read_input_tokens": 5, "output_tokens": 10},
                     TokenClasses(input_uncached=15, input_cache_read=5, output_text=10),
                     id="anthropic"),
    ],
)  # fmt: skip
async def test_each_shape_is_recorded(
    endpoint: Endpoint, usage: dict[str, Any], expected: TokenClasses
) -> None:
    """Given a report in any shape, then it is answered with the lease and spooled."""
    status, answer = await endpoint.post({"model": "llama-3", "usage": usage})
    assert (status, answer) == (
        200,
        {"accepted": True, "number": 1, "used_tokens": 30, "granted_tokens": 1_000,
         "remaining_tokens": 970, "exhausted": False, "consistent": True},
    )  # fmt: skip
    (event,) = endpoint.recorded()
    assert (event.model, event.classes, event.number) == ("llama-3", expected, 1)


async def test_a_retry_with_an_id_counts_once(endpoint: Endpoint) -> None:
    """Given a report id, when sent again, then the same answer and one record."""
    body = {"id": "call-1", "model": "m", "usage": OPENAI}
    first = await endpoint.post(body)
    assert await endpoint.post(body) == first
    assert len(endpoint.recorded()) == 1
    status, answer = await endpoint.post(body | {"model": "other"})
    assert (status, answer["error"]["field"]) == (409, "id")


async def test_exhausted_is_said_and_still_recorded(endpoint: Endpoint) -> None:
    """Given usage beyond the grant, then 200, exhausted, and it counts; also the next time."""
    big = {"model": "m", "usage": {"output_text": 1_000}}
    status, answer = await endpoint.post(big)
    assert (status, answer["exhausted"], answer["remaining_tokens"]) == (200, True, 0)
    status, answer = await endpoint.post(big)
    assert (status, answer["exhausted"], answer["used_tokens"]) == (200, True, 2_000)
    assert len(endpoint.recorded()) == 2


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, "body"),
        (b"[]", 400, "body"),
        (b"\xff\xfe", 400, "body"),
        (b"[" * 30_000, 400, "body"),
        (b"x" * (MAX_BODY_BYTES + 1), 413, "body"),
        ({"usage": OPENAI}, 400, "model"),
        ({"model": "", "usage": OPENAI}, 400, "model"),
        ({"model": "a b", "usage": OPENAI}, 400, "model"),
        ({"model": 5, "usage": OPENAI}, 400, "model"),
        ({"model": "m"}, 400, "usage"),
        ({"model": "m", "usage": OPENAI, "id": 7}, 400, "id"),
        ({"model": "m", "usage": OPENAI, "id": ""}, 400, "id"),
        ({"model": "m", "usage": OPENAI, "price": 7}, 400, "price"),
        ({"model": "m", "usage": {"prompt_tokens": -1}}, 400, "usage.prompt_tokens"),
        (b'{"model": "m", "usage": {"prompt_tokens": NaN}}', 400, "usage.prompt_tokens"),
        (b'{"model": "m", "usage": {"prompt_tokens": 1e3}}', 400, "usage.prompt_tokens"),
        ({"model": "m", "usage": {"prompt_tokens": True}}, 400, "usage.prompt_tokens"),
        ({"model": "m", "usage": {"prompt_tokens": 10**40}}, 400, "usage.prompt_tokens"),
    ],
)
async def test_malformed_reports(endpoint: Endpoint, body: Any, status: int, field: str) -> None:
    """Given nonsense, then it is refused naming field and remedy, and nothing is recorded."""
    found, answer = await endpoint.post(body)
    assert (found, answer["accepted"], answer["error"]["field"]) == (status, False, field)
    assert answer["error"]["remedy"]
    assert endpoint.recorded() == []


async def test_only_a_running_attempts_token_counts(endpoint: Endpoint) -> None:
    """Given no, a forged, another's or an ended attempt's token, then 401."""
    body = {"model": "m", "usage": OPENAI}
    forged = f"{KEY}.{'0' * 64}"
    unknown = endpoint.identity.token("nobody-1")
    for token in ("", forged, unknown, "ä"):
        status, _ = await endpoint.post(body, token)
        assert status == 401
        assert (await endpoint.lease(token))[0] == 401
    endpoint.ledger.finish(KEY, Ending(Outcome.SUCCEEDED, 0, "", T0, T0 + 1), T0 + 1)
    assert (await endpoint.post(body))[0] == 401


async def test_the_lease_can_be_read(endpoint: Endpoint) -> None:
    """Given usage, then the lease says what is left, without counting anything."""
    await endpoint.post({"model": "m", "usage": OPENAI})
    assert await endpoint.lease() == (
        200,
        {"used_tokens": 30, "granted_tokens": 1_000, "remaining_tokens": 970, "exhausted": False},
    )


async def test_a_full_spool_answers_503(tmp_path: Path) -> None:
    """Given a full spool, then the report is to be sent again, and is taken when there is room."""
    endpoint = Endpoint(tmp_path, SpoolLimits(max_rows=1))
    await endpoint.open()
    body = {"id": "call-1", "model": "m", "usage": OPENAI}
    headers = endpoint._headers(None)
    async with endpoint.http.post(endpoint.server.url, json=body, headers=headers) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    endpoint.ledger.drop_through(endpoint.spool.waiting(1)[0].seq)
    assert (await endpoint.post(body))[0] == 200
    await endpoint.close()


async def test_port_and_tokens_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """Given a restarted agent, then what tasks were given still works."""
    first = Endpoint(tmp_path, SpoolLimits())
    await first.open()
    url, token = first.server.url, first.token
    assert first.server.port in PORTS
    await first.close()
    second = Endpoint(tmp_path, SpoolLimits())
    await second.server.start()
    assert (second.server.url, second.token) == (url, token)
    assert (await second.post({"model": "m", "usage": OPENAI}))[0] == 200
    await second.close()


async def test_a_kept_port_that_is_taken(endpoint: Endpoint, tmp_path: Path) -> None:
    """Given a kept port that something else has, then tasks that know it forbid another one."""
    probe = UsageProbe(endpoint.ledger, endpoint.thread, endpoint.identity, SystemClock())
    kept = tmp_path / "kept"
    kept.write_text(f"{endpoint.server.port}\n")
    known = ProbeServer(probe.application(), 0, kept)
    with pytest.raises(UsagePortTakenError):
        await known.start(may_move=False)
    await known.close()
    free = ProbeServer(probe.application(), 0, kept)
    await free.start()
    assert free.port != endpoint.server.port
    assert kept.read_text() == f"{free.port}\n"
    await free.close()


async def test_a_taken_port_is_named(endpoint: Endpoint, tmp_path: Path) -> None:
    """Given a port that something else has, then starting says which and what to do."""
    probe = UsageProbe(endpoint.ledger, endpoint.thread, endpoint.identity, SystemClock())
    other = ProbeServer(probe.application(), endpoint.server.port, tmp_path / "other_port")
    with pytest.raises(UsagePortTakenError, match=f"{endpoint.server.port}.*ORCA_USAGE_PORT"):
        await other.start()
    await other.close()


async def test_one_agent_per_data_directory(endpoint: Endpoint, tmp_path: Path) -> None:
    """Given an agent at work, then a second one on its directory is refused."""
    with pytest.raises(DataDirTakenError, match="another node agent"):
        Identity(tmp_path)


def test_the_boot_id_is_the_hosts_and_the_agents(tmp_path: Path) -> None:
    """Given the same boot and directory, then the same id; with either new, another."""
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")

    def boot_id(directory: str) -> object:
        identity = Identity(tmp_path / directory, boot)
        identity.close()
        return identity.boot_id

    first = boot_id("a")
    assert boot_id("a") == first
    assert boot_id("b") != first
    boot.write_text("second\n")
    assert boot_id("a") != first
