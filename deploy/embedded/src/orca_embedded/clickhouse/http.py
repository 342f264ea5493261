"""ClickHouse's HTTP interface, as ``clickhouse-connect`` and ``curl`` use it."""

import dataclasses
import json
import uuid
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from orca_embedded.clickhouse import auth, compression, parameters
from orca_embedded.clickhouse.bodies import Bodies, Holder
from orca_embedded.clickhouse.engine import DEFAULT_FORMAT, Engine, Query, Result
from orca_embedded.clickhouse.errors import ACCESS_DENIED, ServerError, refusal
from orca_embedded.clickhouse.gate import Gate
from orca_embedded.clickhouse.options import Options
from orca_embedded.clickhouse.parameters import Ask
from orca_embedded.clickhouse.statement import Statement, parse

_CLIENT_GONE = 499
_WRITE_BYTES = 1024 * 1024
_CONTENT_TYPES = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "Native": "application/octet-stream",
    "Parquet": "application/octet-stream",
    "RowBinary": "application/octet-stream",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A result made ready to send: compressed by ``encoding`` ("" for not), None without rows."""

    result: Result
    body: bytes
    format: str | None
    encoding: str
    is_insert_of_data: bool


class HttpInterface:
    """The request handlers over one engine; ``app`` is what aiohttp serves."""

    def __init__(self, engine: Engine, gate: Gate, options: Options) -> None:
        self._engine = engine
        self._gate = gate
        self._options = options
        self._bodies = Bodies(options.max_body_bytes)

    def app(self) -> web.Application:
        """The routes: ``/`` for queries, ``/ping`` and ``/replicas_status`` for health."""
        app = web.Application()
        app.router.add_get("/ping", self._ok)
        app.router.add_get("/replicas_status", self._ok)
        app.router.add_get("/", self._serve)
        app.router.add_post("/", self._serve)
        return app

    async def _ok(self, _request: web.Request) -> web.Response:
        return web.Response(text="Ok.\n")

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._query(request)
        except ConnectionError:
            # The client went away, before its body was whole (nothing was run) or after; no one
            # is left to tell, and aiohttp drops what is returned.
            return web.Response(status=_CLIENT_GONE)

    async def _query(self, request: web.Request) -> web.StreamResponse:
        query_id = ""
        try:
            ask = self._admit(request)
            query_id = ask.query_id or str(uuid.uuid4())
            async with self._bodies.holding() as holder:
                ask, sql = await self._read(request, ask, holder)
                if not sql.strip() and request.method in {"GET", "HEAD"}:
                    return await self._ok(request)
                answer = await self._gate.run(lambda: self._answer(request, ask, sql))
        except ServerError as error:
            return self._failed(error, query_id)
        return await self._send(request, answer, query_id)

    def _admit(self, request: web.Request) -> Ask:
        """The keys of the URL, after the checks that need no body."""
        _refuse_foreign_page(request)
        ask = parameters.sort(_url_keys(request))
        auth.check(request.headers, ask, self._options.user, self._options.password)
        return ask

    async def _read(self, request: web.Request, ask: Ask, holder: Holder) -> tuple[Ask, bytes]:
        """All keys, of a form too, and the SQL: the key ``query`` and the body are one text."""
        body = b""
        if request.content_type == "multipart/form-data":
            fields = await holder.read_form(request)
            ask = parameters.sort([*_url_keys(request), *fields])
        else:
            body = await self._plain_body(request, await holder.read(request.content))
        query = ask.query.encode(errors="surrogateescape")
        return ask, b"\n".join(part for part in (query, body) if part)

    async def _plain_body(self, request: web.Request, body: bytes) -> bytes:
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if not encoding:
            return body
        limit = self._options.max_body_bytes
        return await self._gate.run(lambda: compression.decompress(body, encoding, limit))

    def _answer(self, request: web.Request, ask: Ask, sql: bytes) -> Answer:
        """Parse, run and compress; blocking, so called in a thread."""
        statement = parse(sql)
        output_format = ask.default_format or request.headers.get("X-ClickHouse-Format", "")
        query = self._query_for(request, ask, statement, output_format or DEFAULT_FORMAT)
        result = self._engine.run(query)
        accepted = request.headers.get("Accept-Encoding", "") if ask.compress_response else ""
        encoding = compression.negotiate(accepted)
        shown = (statement.format or query.output_format) if statement.returns_rows else None
        return Answer(
            result=result,
            body=compression.compress(result.data, encoding),
            format=shown,
            encoding=encoding,
            is_insert_of_data=statement.insert is not None,
        )

    def _query_for(
        self, request: web.Request, ask: Ask, statement: Statement, output_format: str
    ) -> Query:
        settings = {
            "max_result_bytes": str(self._options.max_result_bytes),
            "max_memory_usage": str(self._options.max_query_memory_bytes),
            "max_execution_time": str(self._options.max_execution_s),
            **ask.settings,
        }
        if request.method != "POST" and settings.get("readonly") != "1":
            # As on a server, so that a link can never change data.
            settings["readonly"] = "2"
        return Query(
            statement=statement,
            database=ask.database or request.headers.get("X-ClickHouse-Database", ""),
            output_format=output_format,
            parameters=ask.parameters,
            settings=settings,
        )

    async def _send(
        self, request: web.Request, answer: Answer, query_id: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=self._headers(query_id))
        response.headers["X-ClickHouse-Summary"] = _summary(answer)
        response.headers["Content-Type"] = "text/plain; charset=UTF-8"
        if answer.format is not None:
            response.headers["X-ClickHouse-Format"] = answer.format
            kind = _CONTENT_TYPES.get(answer.format, "text/plain; charset=UTF-8")
            response.headers["Content-Type"] = kind
        if answer.encoding:
            response.headers["Content-Encoding"] = answer.encoding
        response.content_length = len(answer.body)
        await response.prepare(request)
        view = memoryview(answer.body)
        for start in range(0, len(view), _WRITE_BYTES):
            await response.write(view[start : start + _WRITE_BYTES])
        await response.write_eof()
        return response

    def _failed(self, error: ServerError, query_id: str) -> web.Response:
        headers = self._headers(query_id)
        headers["X-ClickHouse-Exception-Code"] = str(error.code)
        headers["Content-Type"] = "text/plain; charset=UTF-8"
        body = error.body(self._engine.version)
        return web.Response(status=error.status, body=body, headers=headers)

    def _headers(self, query_id: str) -> dict[str, str]:
        return {
            "X-ClickHouse-Server-Display-Name": self._engine.host_name,
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Timezone": self._engine.timezone,
        }


def _url_keys(request: web.Request) -> list[tuple[str, str]]:
    """The keys as they were sent: bytes that are not UTF-8 survive as surrogates."""
    raw = urlsplit(request.raw_path).query
    return parse_qsl(raw, keep_blank_values=True, errors="surrogateescape")


def _refuse_foreign_page(request: web.Request) -> None:
    """A web page open in a browser on this machine must not be able to query the database."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        message = f"Requests from the web page at {origin} are not allowed"
        raise refusal(ACCESS_DENIED, "ACCESS_DENIED", message)


def _summary(answer: Answer) -> str:
    """The counts that the engine tells; what a SELECT or INSERT SELECT made it does not."""
    rows, size = str(answer.result.rows), str(answer.result.bytes)
    counts = {
        "read_rows": rows,
        "read_bytes": size,
        "written_rows": rows if answer.is_insert_of_data else "0",
        "written_bytes": size if answer.is_insert_of_data else "0",
        "total_rows_to_read": "0",
        "result_bytes": str(len(answer.result.data)),
        "elapsed_ns": str(answer.result.elapsed_ns),
    }
    return json.dumps(counts)
