"""The usage endpoint on loopback: tasks tell what their model calls used, and see their lease.

It measures and never blocks: usage that happened is recorded, also beyond the grant; the answer
says ``exhausted``. A token is an attempt's own, so nobody reports for another.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from orca_runtime.clock import Clock
from orca_schemas.errors import MalformedError, from_validation
from orca_schemas.model import Value
from orca_schemas.values import ModelName
from pydantic import Field, ValidationError

from orca_node_agent.identity import Identity
from orca_node_agent.ledger import (
    AmountError,
    EndedError,
    Ledger,
    RepeatedIdError,
    SpoolFullError,
)
from orca_node_agent.spool import SpoolError
from orca_node_agent.spool_thread import SpoolThread
from orca_node_agent.usage_shapes import normalise

HOST = "127.0.0.1"
USAGE_PATH = "/v1/usage"
LEASE_PATH = "/v1/lease"
MAX_BODY_BYTES = 64 * 1024
RETRY_AFTER_S = 5
MAX_REPORT_ID_CHARS = 200
_BEARER = "Bearer "

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Report(Value):
    """The body of a report. ``id`` is the client's own and makes a retry safe."""

    id: str | None = Field(default=None, min_length=1, max_length=MAX_REPORT_ID_CHARS)
    model: ModelName
    usage: Any


class UsageProbe:
    """Serves the endpoint; knows the attempts by the ledger."""

    def __init__(
        self, ledger: Ledger, thread: SpoolThread, identity: Identity, clock: Clock
    ) -> None:
        self._ledger, self._thread = ledger, thread
        self._identity, self._clock = identity, clock

    def application(self) -> web.Application:
        """The endpoint as an aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_errors])
        app.router.add_post(USAGE_PATH, self._usage)
        app.router.add_get(LEASE_PATH, self._lease)
        return app

    async def _usage(self, request: web.Request) -> web.Response:
        key = self._key(request)
        report = _report(await request.read())
        usage = normalise(report.usage)
        answer = await self._thread(
            self._ledger.tokens, key, report.model, usage.classes, report.id, self._clock.now_ms()
        )
        return web.json_response(answer | {"consistent": usage.consistent})

    async def _lease(self, request: web.Request) -> web.Response:
        return web.json_response(await self._thread(self._ledger.lease, self._key(request)))

    def _key(self, request: web.Request) -> str:
        header = request.headers.get("Authorization", "")
        key = self._identity.key_of(header[len(_BEARER) :]) if header.startswith(_BEARER) else None
        if key is None:
            raise EndedError(header)
        return key


def _report(body: bytes) -> _Report:
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError("body", body.decode(errors="replace"), f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise MalformedError("body", raw, "send a JSON object with model and usage")
    try:
        return _Report.model_validate(raw)
    except ValidationError as error:
        raise from_validation(error) from None


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except MalformedError as error:
        return _refusal(400, error.field, error.value, error.remedy)
    except tuple(_REFUSALS) as error:
        return _refusal(*_REFUSALS[type(error)])
    except (SpoolFullError, SpoolError):
        return _busy()


_REFUSALS: dict[type[Exception], tuple[int, str, str, str]] = {
    AmountError: (400, "usage", "", "the attempt's total would be too large to be counted"),
    EndedError: (401, "Authorization", "", "send 'Bearer $ORCA_USAGE_TOKEN' of a running attempt"),
    RepeatedIdError: (409, "id", "", "this id was reported with other content; use a new one"),
    web.HTTPRequestEntityTooLarge: (413, "body", "", f"send at most {MAX_BODY_BYTES} bytes"),
}


def _refusal(status: int, field: str, value: str, remedy: str) -> web.Response:
    error = {"field": field, "value": value, "remedy": remedy}
    return web.json_response({"accepted": False, "error": error}, status=status)


def _busy() -> web.Response:
    remedy = f"the node cannot take it down now; send it again in {RETRY_AFTER_S} s, with an id"
    answer = _refusal(503, "body", "", remedy)
    answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer
