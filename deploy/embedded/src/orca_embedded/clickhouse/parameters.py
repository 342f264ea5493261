"""What a request asks for besides its SQL: query parameters, settings, database, format."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orca_embedded.clickhouse.errors import (
    BAD_QUERY_PARAMETER,
    NOT_IMPLEMENTED,
    UNKNOWN_SETTING,
    refusal,
)

# Consumed by the HTTP interface itself, or about a response sent in pieces, which ours is not.
_TRANSPORT = frozenset(
    {
        "query", "query_id", "database", "default_format", "user", "password", "quota_key",
        "session_id", "session_timeout", "session_check", "close_session", "role", "stacktrace",
        "compress", "decompress", "buffer_size", "wait_end_of_query", "client_protocol_version",
        "send_progress_in_http_headers", "http_headers_progress_interval_ms",
        "enable_http_compression", "cancel_http_readonly_queries_on_client_close",
        "add_http_cors_header",
    }
)  # fmt: skip
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PARAMETER_PREFIX = "param_"
_TRUE = {"1", "true"}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request's keys by their meaning; all values are strings, as the interface carries them.

    ``parameters`` are in the interface's escaped form (``\\n``, ``\\'``, ``\\N`` for NULL),
    which the engine itself reads by the type named in ``{name:Type}``.
    """

    query: str = ""
    query_id: str = ""
    database: str = ""
    default_format: str = ""
    user: str = ""
    password: str = ""
    compress_response: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def sort(pairs: Iterable[tuple[str, str]]) -> Ask:
    """Sort the keys of a URL or form; of a repeated key the last one counts.

    Raises ServerError: NOT_IMPLEMENTED for ``compress`` and ``decompress``, UNKNOWN_SETTING for
    a name that cannot be one, BAD_QUERY_PARAMETER for a value that is not UTF-8.
    """
    keys = dict(pairs)
    _refuse_block_compression(keys)
    return Ask(
        query=keys.get("query", ""),
        query_id=keys.get("query_id", ""),
        database=keys.get("database", ""),
        default_format=keys.get("default_format", ""),
        user=keys.get("user", ""),
        password=keys.get("password", ""),
        compress_response=keys.get("enable_http_compression", "") in _TRUE,
        parameters=dict(_parameters(keys)),
        settings=dict(_settings(keys)),
    )


def set_statement(settings: Mapping[str, str]) -> bytes:
    """One SET for all the settings; the engine turns the quoted values into their types."""
    pairs = ", ".join(f"{name} = {quote(value)}" for name, value in settings.items())
    return f"SET {pairs}".encode()


def quote(text: str) -> str:
    """A ClickHouse string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quote_identifier(name: str) -> str:
    """A ClickHouse identifier in backticks."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _parameters(keys: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for key, value in keys.items():
        if key.startswith(_PARAMETER_PREFIX):
            yield key.removeprefix(_PARAMETER_PREFIX), _checked(key, value)


def _checked(key: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"The value of {key} is not UTF-8"
        raise refusal(BAD_QUERY_PARAMETER, "BAD_QUERY_PARAMETER", message) from error
    return value


def _settings(keys: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for key, value in keys.items():
        if key in _TRANSPORT or key.startswith(_PARAMETER_PREFIX):
            continue
        if _SETTING_NAME.match(key) is None:
            raise refusal(UNKNOWN_SETTING, "UNKNOWN_SETTING", f"Unknown setting {quote(key)}")
        yield key, _checked(key, value)


def _refuse_block_compression(keys: Mapping[str, str]) -> None:
    for key in ("compress", "decompress"):
        if keys.get(key, "") in _TRUE:
            message = f"{key}=1 is not available; use Content-Encoding and Accept-Encoding"
            raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", message)
