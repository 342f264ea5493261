"""Where an INSERT's data starts, which FORMAT is asked for, and what is refused."""

import asyncio
import threading
import time

import pytest
from orca_embedded.clickhouse import compression, options
from orca_embedded.clickhouse.errors import ServerError, from_engine
from orca_embedded.clickhouse.gate import Gate
from orca_embedded.clickhouse.parameters import quote, quote_identifier, sort
from orca_embedded.clickhouse.statement import parse
from orca_embedded.clickhouse.tokens import MAX_STATEMENT_BYTES


@pytest.mark.parametrize(
    ("sql", "rewritten", "data"),
    [
        (
            "INSERT INTO t FORMAT Native\n\x00;'",
            "INSERT INTO t FROM INFILE 'F' FORMAT Native",
            "\x00;'",
        ),
        (
            "insert into d.t (a, `b)`) values (1, ';'), (2, 'x')",
            "insert into d.t (a, `b)`) FROM INFILE 'F' FORMAT Values",
            " (1, ';'), (2, 'x')",
        ),
        (
            "-- why\nINSERT INTO TABLE t(a)SETTINGS x = 1, y='FORMAT' FORMAT CSV 1,2",
            "-- why\nINSERT INTO TABLE t(a) FROM INFILE 'F' SETTINGS x = 1, y='FORMAT' FORMAT CSV",
            "1,2",
        ),
        (
            'INSERT INTO `format`."values" FORMAT TSV\r\n\n1',
            "INSERT INTO `format`.\"values\" FROM INFILE 'F' FORMAT TSV",
            "\n1",
        ),
        (
            "INSERT INTO {t:Identifier} (a) /* VALUES */ VALUES({a:Int8})",
            "INSERT INTO {t:Identifier} (a) FROM INFILE 'F' /* VALUES */ FORMAT Values",
            "({a:Int8})",
        ),
        (
            "INSERT INTO FUNCTION null('a Int8') (a) FORMAT CSV\n1",
            "INSERT INTO FUNCTION null('a Int8') (a) FROM INFILE 'F' FORMAT CSV",
            "1",
        ),
        ("INSERT INTO t FORMAT CSV", "INSERT INTO t FROM INFILE 'F' FORMAT CSV", ""),
        ("INSERT t VALUES (1)", "INSERT t FROM INFILE 'F' FORMAT Values", " (1)"),
    ],
)
def test_the_data_of_an_insert_is_found(sql: str, rewritten: str, data: str) -> None:
    statement = parse(sql.encode())
    assert bytes(statement.data()) == data.encode()
    assert statement.from_infile("F").split() == rewritten.encode().split()
    assert not statement.returns_rows


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t SELECT 1",
        "INSERT INTO t (a) SELECT number FROM numbers(3) SETTINGS max_threads = 1;",
        "INSERT INTO t (SELECT 1)",
        "INSERT INTO t WITH x AS (SELECT 1) SELECT * FROM x",
    ],
)
def test_an_insert_from_a_select_is_left_alone(sql: str) -> None:
    statement = parse(sql.encode())
    assert (statement.insert, statement.sql) == (None, sql.encode())


@pytest.mark.parametrize(
    ("sql", "returns_rows", "name"),
    [
        ("SELECT 1", True, None),
        ("SELECT 1 FORMAT JSON", True, "JSON"),
        ("select 1 format JSONEachRow ; ", True, "JSONEachRow"),
        ("SELECT 1 FORMAT CSV SETTINGS max_threads = 1", True, "CSV"),
        ("SELECT 1 SETTINGS max_threads = 1 FORMAT CSV -- FORMAT TSV", True, "CSV"),
        ("SELECT format FROM t", True, None),
        ("SELECT 'x FORMAT CSV'", True, None),
        ("SELECT * FROM (SELECT 1 AS format) AS f", True, None),
        ("(SELECT 1) UNION ALL (SELECT 2) FORMAT TSV", True, "TSV"),
        ("/* a */ WITH 1 AS x SELECT x", True, None),
        ("SHOW TABLES", True, None),
        ("CREATE TABLE t (format String) ENGINE = Memory", False, None),
        ("OPTIMIZE TABLE t FINAL", False, None),
        ("SELECT $$it's; FORMAT CSV$$", True, None),
        ("SELECT 'unclosed", True, None),
    ],
)
def test_the_format_of_an_answer_is_found(sql: str, returns_rows: bool, name: str | None) -> None:
    statement = parse(sql.encode())
    assert (statement.returns_rows, statement.format) == (returns_rows, name)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("", 62),
        (" -- nothing\n", 62),
        ("SELECT 1; DROP TABLE t", 62),
        ("INSERT INTO t SELECT 1; DROP TABLE t", 62),
        ("INSERT INTO t FORMAT", 62),
        ("INSERT INTO t FORMAT 'x'", 62),
        ("INSERT INTO t FROM INFILE '/etc/passwd' FORMAT CSV", 1),
        ("INSERT INTO t SELECT * FROM input('a Int8') FORMAT CSV 1", 48),
        ("INSERT INTO FUNCTION file('/tmp/x', 'CSV') SELECT 1", 497),
        ("INSERT INTO FUNCTION file('/tmp/x', 'CSV', 'a Int8') VALUES (1)", 497),
        ("SELECT * FROM `file`('/etc/passwd')", 497),
        ("CREATE TABLE t (a Int8) ENGINE = File(CSV, '/tmp/x')", 497),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", 358),
    ],
)
def test_what_a_server_would_not_do_is_refused(sql: str, code: int) -> None:
    with pytest.raises(ServerError) as caught:
        parse(sql.encode())
    assert caught.value.code == code


@pytest.mark.parametrize("sql", ["SELECT 1;", "SELECT 1;;", "SELECT ';'", "SELECT 1 -- ; x"])
def test_one_statement_may_end_in_semicolons(sql: str) -> None:
    assert parse(sql.encode()).returns_rows


def test_a_statement_is_bounded_but_data_is_not() -> None:
    data = b"1\n" * MAX_STATEMENT_BYTES
    assert len(parse(b"INSERT INTO t FORMAT TSV\n" + data).data()) == len(data)
    with pytest.raises(ServerError) as caught:
        parse(b"SELECT " + b"1," * (MAX_STATEMENT_BYTES // 2))
    assert caught.value.code == 229


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (
            "Code: 60. DB::Exception: No table. (UNKNOWN_TABLE)",
            60,
            "Code: 60. DB::Exception: No table. (UNKNOWN_TABLE)",
        ),
        (
            "Failed: Code: 62. DB::Exception: Bad. (SYNTAX_ERROR) (version 26.5.1.1)",
            62,
            "Code: 62. DB::Exception: Bad. (SYNTAX_ERROR)",
        ),
        ("broken pipe", 1001, "Code: 1001. DB::Exception: broken pipe (STD_EXCEPTION)"),
    ],
)
def test_an_engine_message_is_read(message: str, code: int, text: str) -> None:
    error = from_engine(message)
    assert (error.code, error.text) == (code, text)
    assert error.body("1.2") == f"{text} (version 1.2)\n".encode()


def test_the_keys_of_a_request_are_sorted() -> None:
    keys = {"query": "q", "param_a": "1", "session_id": "s", "enable_http_compression": "1"}
    ask = sort([*keys.items(), ("max_threads", "2"), ("max_threads", "3")])
    assert (ask.query, ask.parameters, ask.settings) == ("q", {"a": "1"}, {"max_threads": "3"})
    assert ask.compress_response


def test_literals_are_quoted() -> None:
    assert quote("it's \\") == "'it\\'s \\\\'"
    assert quote_identifier("a`b\\") == "`a\\`b\\\\`"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [("", ""), ("br", ""), ("gzip, deflate", "gzip"), ("gzip;q=1.0, ZSTD", "zstd"), ("lz4", "lz4")],
)
def test_the_cheapest_accepted_encoding_is_chosen(accept: str, chosen: str) -> None:
    assert compression.negotiate(accept) == chosen


@pytest.mark.parametrize("encoding", ["", "lz4", "zstd", "gzip", "deflate"])
@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_an_encoding_goes_both_ways(encoding: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
    packed = compression.compress(data, encoding)
    assert compression.decompress(packed, encoding, max(size, 1)) == data


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "gzip"])
def test_all_frames_of_a_body_are_read(encoding: str) -> None:
    frames = [compression.compress(b"%d" % n * 2000, encoding) for n in range(50)]
    whole = b"".join(b"%d" % n * 2000 for n in range(50))
    assert compression.decompress(b"".join(frames), encoding, 10_000_000) == whole


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "gzip", "deflate"])
def test_a_body_cut_short_is_an_error(encoding: str) -> None:
    packed = compression.compress(bytes(range(256)) * 5000, encoding)
    with pytest.raises(ServerError) as caught:
        compression.decompress(packed[: len(packed) // 2], encoding, 10_000_000)
    assert caught.value.code == 117


async def test_a_gate_bounds_what_runs_and_what_waits() -> None:
    gate, release = Gate(max_running=1, max_waiting=1), threading.Event()
    held = [asyncio.create_task(gate.run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ServerError) as caught:
        await gate.run(time.monotonic)
    assert caught.value.code == 202
    release.set()
    assert await asyncio.gather(*held) == [True, True]
    assert await gate.close(1)
    with pytest.raises(ServerError) as caught:
        await gate.run(time.monotonic)
    assert caught.value.code == 236


async def test_a_caller_that_goes_away_still_holds_its_place() -> None:
    gate, release = Gate(max_running=1, max_waiting=0), threading.Event()
    gone = asyncio.create_task(gate.run(release.wait))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert not await gate.close(0.05)
    release.set()
    assert await gate.close(1)


@pytest.mark.parametrize(
    "flags", [[], ["--data", "d", "--port", "70000"], ["--data", "d", "--max-running", "0"]]
)
def test_wrong_flags_are_refused(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        options.parse(flags)
    assert caught.value.code == 2
