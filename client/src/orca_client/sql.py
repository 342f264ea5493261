"""Statements to ClickHouse, answered as rows of Python values."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, OperationalError

from orca_client.errors import ClickHouseUnreachableError, QueryError

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 300
HTTP_PORT, HTTPS_PORT = 8123, 8443
MAX_MESSAGE_CHARS = 600

# It logs every failure beside raising it.
logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)

_CODE = re.compile(r"Code:\s*([0-9]+)\.\s*(?:DB::Exception:\s*)?(.*)", re.DOTALL)
_SYSTEM = re.compile(r"\[Errno -?[0-9]+\] ([^\"')]+)")
_VERSION = re.compile(r"\s*\(version [^)]*\)\s*.*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns, their ClickHouse types, and rows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def connect(url: str) -> Any:
    """A clickhouse-connect client of ``http[s]://[user[:password]@]host[:port][/database]``.

    Raises ClickHouseUnreachableError.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    try:
        return clickhouse_connect.get_client(
            host=parts.hostname,
            port=parts.port or (HTTPS_PORT if secure else HTTP_PORT),
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
            database=parts.path.strip("/") or "default",
            secure=secure,
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=ANSWER_TIMEOUT_S,
            autogenerate_session_id=False,
        )
    except DatabaseError as error:
        raise _problem(url, error) from None
    except (ClickHouseError, OSError, ValueError) as error:
        raise ClickHouseUnreachableError(url, _why(error)) from None


def query(url: str, statement: str, parameters: dict[str, Any] | None = None) -> Answer:
    """Run one statement. Raises ClickHouseUnreachableError, QueryError."""
    client = connect(url)
    try:
        result = client.query(statement, parameters=parameters)
    except (ClickHouseError, OSError) as error:
        raise _problem(url, error) from None
    finally:
        client.close()
    types = tuple(one.name for one in result.column_types)
    return Answer(tuple(result.column_names), types, [tuple(row) for row in result.result_rows])


def _problem(url: str, error: Exception) -> QueryError | ClickHouseUnreachableError:
    found = _CODE.search(str(error))
    if found is None and isinstance(error, (OperationalError, OSError)):
        return ClickHouseUnreachableError(url, _why(error))
    if found is None:
        return QueryError(0, _first_line(str(error)))
    return QueryError(int(found[1]), _first_line(_VERSION.sub("", found[2])))


def _why(error: Exception) -> str:
    """The system's own words, without the layers of libraries around them."""
    found = _SYSTEM.search(str(error))
    return found[1] if found else _first_line(str(error))


def _first_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"
