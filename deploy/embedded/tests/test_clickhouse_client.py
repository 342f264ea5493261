"""``clickhouse-connect``, synchronous and asynchronous, cannot tell this from a server."""

import asyncio
import datetime as dt
import gzip
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import clickhouse_connect
import lz4.frame
import pytest
import zstandard
from clickhouse_connect.driver.asyncclient import AsyncClient
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from orca_embedded.clickhouse.testing import RunningServer, running

COMPRESSIONS = [True, "lz4", "zstd", "gzip", False]
NASTY_STRINGS = {
    "quotes": 'it\'s "quoted" `so`',
    "backslashes": "C:\\new\\table \\' \\\\",
    "newlines": "a\nb\r\n\tc",
    "unicode": "Zürich 東京 🐋",
    "nul": "a\x00b",
    "injection": "'; DROP TABLE x; --",
    "braces": "{a:String} {b}",
    "percent": "100% %s %(x)s",
    "empty": "",
    "backslash-n": "\\N",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("clickhouse") / "data") as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    opened = clickhouse_connect.get_client(host="127.0.0.1", port=server.port)
    yield opened
    opened.close()


@pytest.fixture
async def async_client(server: RunningServer) -> AsyncIterator[AsyncClient]:
    opened = await clickhouse_connect.get_async_client(
        host="127.0.0.1", port=server.port, autogenerate_session_id=False
    )
    yield opened
    await opened.close()


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex}"
    yield name
    client.command(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("text", NASTY_STRINGS.values(), ids=NASTY_STRINGS.keys())
def test_a_string_parameter_comes_back_as_it_was(client: Client, text: str) -> None:
    answer = client.query("SELECT {text:String} AS text", parameters={"text": text})
    assert answer.result_rows == [(text,)]


@pytest.mark.parametrize("text", NASTY_STRINGS.values(), ids=NASTY_STRINGS.keys())
def test_a_client_side_parameter_comes_back_as_it_was(client: Client, text: str) -> None:
    answer = client.query("SELECT %(text)s AS text", parameters={"text": text})
    assert answer.result_rows == [(text,)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Date", dt.date(2026, 2, 28)),
        ("DateTime('UTC')", dt.datetime.fromisoformat("2026-02-28T23:59:59")),
        ("DateTime64(6, 'UTC')", dt.datetime.fromisoformat("2026-02-28T23:59:59.123456")),
        ("Array(String)", ["it's", "a\\b", "", "c\nd"]),
        ("Array(Array(Int64))", [[1, -2], [], [2**62]]),
        ("Array(Nullable(Int32))", [1, None]),
        ("Tuple(String, Int8)", ("x", -1)),
        ("Decimal(38, 12)", Decimal("12345678901234567890.123456789012")),
        ("Decimal(18, 6)", Decimal("-0.000001")),
        ("UUID", uuid.UUID("019b0000-0000-7000-8000-000000000001")),
        ("Nullable(String)", None),
        ("Bool", True),
        ("UInt64", 2**64 - 1),
        ("Float64", 0.1),
    ],
    ids=lambda value: value if isinstance(value, str) and "(" in value else None,
)
def test_a_typed_parameter_comes_back_as_it_was(client: Client, kind: str, value: Any) -> None:
    answer = client.query(f"SELECT {{value:{kind}}}", parameters={"value": value})
    assert answer.result_rows == [(value,)]


def test_a_parameter_can_name_a_table(client: Client, table: str) -> None:
    client.command(f"CREATE TABLE {table} (a Int32) ENGINE = Memory")
    client.command(f"INSERT INTO {table} VALUES ({{a:Int32}})", parameters={"a": 7})
    rows = client.query("SELECT a FROM {t:Identifier}", parameters={"t": table}).result_rows
    assert rows == [(7,)]


def test_parameters_too_long_for_a_url_go_as_a_form(client: Client) -> None:
    values = list(range(50_000))
    answer = client.query("SELECT sum(arrayJoin({v:Array(UInt64)}))", parameters={"v": values})
    assert answer.result_rows == [(sum(values),)]


def test_a_missing_parameter_is_an_error(client: Client) -> None:
    with pytest.raises(DatabaseError, match="Substitution `a` is not set") as caught:
        client.query("SELECT {a:String}", parameters={"b": 1})
    assert caught.value.code == 456


def test_settings_hold_for_their_query_alone(client: Client) -> None:
    ask = "SELECT getSetting('max_block_size')"
    before = client.command(ask)
    assert client.command(ask, settings={"max_block_size": 777}) == 777
    assert client.command(ask) == before


def test_a_setting_of_text_may_hold_quotes(client: Client) -> None:
    text = "it's a \\ comment"
    answer = client.query("SELECT getSetting('log_comment')", settings={"log_comment": text})
    assert answer.result_rows == [(text,)]


@pytest.mark.parametrize(
    ("sql", "code", "name"),
    [
        ("SELECT * FROM no_such_table", 60, "UNKNOWN_TABLE"),
        ("SELEC 1", 62, "SYNTAX_ERROR"),
        ("SELECT 1; SELECT 2", 62, "SYNTAX_ERROR"),
        ("SELECT no_such_column", 47, "UNKNOWN_IDENTIFIER"),
        ("SELECT no_such_function(1)", 46, "UNKNOWN_FUNCTION"),
        ("SELECT * FROM no_such_database.t", 81, "UNKNOWN_DATABASE"),
        ("SELECT toUInt32('x')", 6, "CANNOT_PARSE_TEXT"),
        ("SELECT 'a' + 1", 43, "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("SELECT 1 SETTINGS no_such_setting = 1", 115, "UNKNOWN_SETTING"),
        ("SELECT throwIf(number = 3) FROM numbers(10)", 395, "FUNCTION_THROW_IF"),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", 358, "INTO_OUTFILE_NOT_ALLOWED"),
        ("SELECT * FROM file('/etc/passwd', 'LineAsString')", 497, "ACCESS_DENIED"),
    ],
)
def test_an_error_carries_its_code(client: Client, sql: str, code: int, name: str) -> None:
    with pytest.raises(DatabaseError, match=name) as caught:
        client.command(sql)
    assert caught.value.code == code


def test_an_unknown_setting_is_an_error(server: RunningServer) -> None:
    client = clickhouse_connect.get_client(
        host="127.0.0.1", port=server.port, settings={"session_timeout": 5}
    )
    client.params["no_such_setting"] = "1"
    with pytest.raises(DatabaseError, match="UNKNOWN_SETTING") as caught:
        client.command("SELECT 1")
    assert caught.value.code == 115
    client.close()


def test_an_insert_of_the_wrong_type_is_an_error(client: Client, table: str) -> None:
    client.command(f"CREATE TABLE {table} (a UInt8) ENGINE = Memory")
    with pytest.raises(DatabaseError) as caught:
        client.raw_insert(table, ["a"], insert_block='{"a": "x"}', fmt="JSONEachRow")
    assert caught.value.code == 27
    assert client.command(f"SELECT count() FROM {table}") == 0


COLUMNS = """id UUID, name String, kind LowCardinality(String), note Nullable(String),
    at DateTime64(3, 'UTC'), day Date, price Decimal(38, 12), tags Map(String, String),
    nested Array(Array(Nullable(Int64))), flag Bool, mode Enum8('on' = 1, 'off' = 2),
    small LowCardinality(Nullable(String)), raw FixedString(4), pair Tuple(Int8, String),
    made String MATERIALIZED concat(name, '!'), dflt UInt16 DEFAULT 7"""
NAMES = [
    "id", "name", "kind", "note", "at", "day", "price", "tags", "nested", "flag", "mode", "small",
    "raw", "pair",
]  # fmt: skip


def sample_rows(count: int) -> list[tuple[Any, ...]]:
    return [
        (
            uuid.UUID(int=n),
            f"it's\x00 {n}\n",
            f"kind {n % 3}",
            None if n % 2 else "note",
            dt.datetime.fromisoformat("2026-01-01T00:00:00.123") + dt.timedelta(seconds=n),
            dt.date(2026, 1, 1 + n % 28),
            Decimal("12345678901234567890.123456789012") + n,
            {"a'b": "c", "n": str(n)},
            [[n, None], []],
            n % 2 == 0,
            "on" if n % 2 else "off",
            None if n % 3 else "x",
            b"\x00\xff\n;",
            (-1, "é"),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("compress", COMPRESSIONS, ids=str)
@pytest.mark.parametrize("column_oriented", [False, True], ids=["rows", "columns"])
def test_what_is_inserted_is_read_back(
    server: RunningServer, table: str, compress: bool | str, column_oriented: bool
) -> None:
    client = clickhouse_connect.get_client(host="127.0.0.1", port=server.port, compress=compress)
    client.command(f"CREATE TABLE {table} ({COLUMNS}) ENGINE = MergeTree ORDER BY id")
    rows = sample_rows(500)
    data = [list(column) for column in zip(*rows, strict=True)] if column_oriented else rows
    summary = client.insert(table, data, column_names=NAMES, column_oriented=column_oriented)
    assert summary.written_rows == 500
    answer = client.query(f"SELECT {', '.join(NAMES)}, made, dflt FROM {table} ORDER BY id")
    assert answer.result_rows == [(*row, f"{row[1]}!", 7) for row in rows]
    client.close()


@pytest.mark.parametrize("compress", COMPRESSIONS, ids=str)
async def test_the_asynchronous_client_inserts_and_reads(
    server: RunningServer, table: str, compress: bool | str
) -> None:
    client = await clickhouse_connect.get_async_client(
        host="127.0.0.1", port=server.port, compress=compress
    )
    await client.command(f"CREATE TABLE {table} ({COLUMNS}) ENGINE = MergeTree ORDER BY id")
    rows = sample_rows(300)
    await client.insert(table, rows, column_names=NAMES)
    answer = await client.query(
        f"SELECT {', '.join(NAMES)} FROM {table} WHERE name != {{x:String}} ORDER BY id",
        parameters={"x": "it's\n"},
    )
    assert answer.result_rows == rows
    with pytest.raises(DatabaseError) as caught:
        await client.query("SELECT * FROM no_such_table")
    assert caught.value.code == 60
    await client.close()


def test_a_hundred_thousand_rows_go_in_and_come_out(client: Client, table: str) -> None:
    client.command(f"CREATE TABLE {table} (n UInt64, s String) ENGINE = MergeTree ORDER BY n")
    numbers = list(range(100_000))
    client.insert(table, [numbers, [f"row {n}" for n in numbers]], column_oriented=True)
    with client.query_row_block_stream(f"SELECT n, s FROM {table} ORDER BY n") as blocks:
        rows = [row for block in blocks for row in block]
    assert rows == [(n, f"row {n}") for n in numbers]


def test_deflate_answers_are_read(server: RunningServer) -> None:
    client = clickhouse_connect.get_client(host="127.0.0.1", port=server.port, compress="deflate")
    assert client.query("SELECT sum(number) FROM numbers(1000)").result_rows == [(499500,)]
    client.close()


def test_an_empty_result_has_its_columns(client: Client) -> None:
    answer = client.query("SELECT 1 AS a, 'x' AS b LIMIT 0")
    assert (answer.column_names, answer.result_rows) == (("a", "b"), [])
    assert client.query("SELECT 1 AS a WHERE 0").result_rows == []


def test_commands_answer_as_a_server_does(client: Client, table: str) -> None:
    assert client.command("SELECT 1") == 1
    assert client.command(f"EXISTS TABLE {table}") == 0
    client.command(f"CREATE TABLE {table} (a UInt8, b String) ENGINE = MergeTree ORDER BY a")
    client.command(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b;c')")
    client.command(f"INSERT INTO {table} FORMAT CSV", data="3,d\n4,e\n")
    assert client.command(f"SELECT count(), max(b) FROM {table}") == ["4", "e"]
    assert "MergeTree" in str(client.command(f"SHOW CREATE TABLE {table}"))
    assert client.ping()


@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "zstd", "deflate"])
@pytest.mark.parametrize("fmt", ["CSV", "Native", "Parquet", "JSONEachRow", "RowBinary"])
def test_raw_bytes_go_in_as_they_came_out(
    client: Client, table: str, fmt: str, compression: str | None
) -> None:
    client.command(f"CREATE TABLE {table} (n UInt64, s String) ENGINE = Memory")
    select = "SELECT number AS n, concat('it\\'s;\\n\\0', toString(n)) AS s FROM numbers(3000)"
    block = client.raw_query(select, fmt=fmt)
    client.raw_insert(
        table, ["n", "s"], insert_block=compressed(block, compression), fmt=fmt,
        compression=compression,
    )  # fmt: skip
    query = "SELECT count(), sum(cityHash64(n, s)) FROM"
    assert client.command(f"{query} {table}") == client.command(f"{query} ({select})")


def compressed(block: bytes, compression: str | None) -> bytes:
    plain = {
        None: bytes,
        "gzip": gzip.compress,
        "lz4": lz4.frame.compress,
        "zstd": zstandard.compress,
        "deflate": zlib.compress,
    }
    return bytes(plain[compression](block))


def test_the_order_of_columns_is_the_clients(client: Client, table: str) -> None:
    client.command(
        f"CREATE TABLE {table} (a String, b String DEFAULT 'b', c String MATERIALIZED 'c', "
        "`d 'x` String) ENGINE = Memory"
    )
    client.insert(table, [["d", "a"]], column_names=["d 'x", "a"])
    assert client.query(f"SELECT a, b, c, `d 'x` FROM {table}").result_rows == [
        ("a", "b", "c", "d")
    ]


def test_a_database_is_chosen_by_request(server: RunningServer, client: Client) -> None:
    client.command("CREATE DATABASE IF NOT EXISTS `other db`")
    client.command("CREATE TABLE `other db`.t (a UInt8) ENGINE = Memory")
    other = clickhouse_connect.get_client(host="127.0.0.1", port=server.port, database="other db")
    other.insert("t", [[5]], column_names=["a"])
    assert other.command("SELECT a FROM t") == 5
    other.close()
    with pytest.raises(DatabaseError) as caught:
        clickhouse_connect.get_client(host="127.0.0.1", port=server.port, database="nope").command(
            "SELECT 1"
        )
    assert caught.value.code == 81


async def test_twenty_queries_at_once_do_not_hold_up_a_ping(async_client: AsyncClient) -> None:
    async def slow(number: int) -> Any:
        answer = await async_client.query("SELECT {n:UInt32}, sleep(0.5)", parameters={"n": number})
        return answer.result_rows[0][0]

    queries = asyncio.gather(*(slow(number) for number in range(20)))
    delays: list[float] = []
    while not queries.done():
        started = time.monotonic()
        assert await async_client.ping()
        delays.append(time.monotonic() - started)
        await asyncio.sleep(0.05)
    assert await queries == list(range(20))
    assert max(delays) < 0.5
    assert len(delays) >= 5


async def test_settings_do_not_leak_between_queries_at_once(async_client: AsyncClient) -> None:
    async def read(size: int) -> Any:
        return await async_client.command(
            "SELECT getSetting('max_block_size')", settings={"max_block_size": size}
        )

    sizes = list(range(1, 41))
    assert await asyncio.gather(*(read(size) for size in sizes)) == sizes
