"""``curl`` gets from this server what it gets from ClickHouse."""

import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

import lz4.frame
import pytest
import zstandard
from orca_embedded.clickhouse.testing import RunningServer, running

BODY_LIMIT_BYTES = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("clickhouse") / "data"
    with running(
        data, "--password", "pass word", "--max-body-bytes", str(BODY_LIMIT_BYTES),
        "--max-result-bytes", "1000000",
    ) as started:  # fmt: skip
        yield started


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Curl:
    url: str

    def __call__(
        self, path: str, *flags: str, stdin: bytes = b"", login: str = "default:pass word"
    ) -> Reply:
        user = ["--user", login] if login else []
        done = subprocess.run(
            ["curl", "-s", "-i", *user, *flags, f"{self.url}{path}"],
            input=stdin,
            capture_output=True,
            timeout=30,
            check=True,
        )
        head, _, body = (
            done.stdout.rpartition(b"\r\n\r\n") if not done.stdout else split(done.stdout)
        )
        lines = head.decode().splitlines()
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        return Reply(int(lines[0].split()[1]), headers, body)


def split(raw: bytes) -> tuple[bytes, bytes, bytes]:
    while raw.startswith(b"HTTP/1.1 100"):
        raw = raw.partition(b"\r\n\r\n")[2]
    return raw.partition(b"\r\n\r\n")


@pytest.fixture
def curl(server: RunningServer) -> Curl:
    return Curl(server.url)


@pytest.mark.parametrize("path", ["/ping", "/replicas_status", "/"])
def test_health_answers_ok(curl: Curl, path: str) -> None:
    assert curl(path).body == b"Ok.\n"


def test_ping_needs_no_password(curl: Curl) -> None:
    assert curl("/ping", login="").body == b"Ok.\n"


def test_the_query_may_come_in_the_url_the_body_or_both(curl: Curl) -> None:
    assert curl("/?query=SELECT%201").body == b"1\n"
    assert curl("/", "--data-binary", "@-", stdin=b"SELECT 1\n").body == b"1\n"
    assert curl("/?query=SELECT", "--data-binary", "@-", stdin=b"1+1").body == b"2\n"
    assert curl("/", "-F", "query=SELECT {a:UInt8}", "-F", "param_a=3").body == b"3\n"


def test_parameters_come_in_the_url(curl: Curl) -> None:
    path = "/?param_name=it%5C%27s%20%F0%9F%90%8B%5Ct&param_n=-5&param_l=%5B1,2%5D"
    query = b"SELECT {name:String}, {n:Int8}, {l:Array(UInt8)}"
    reply = curl(path, "--data-binary", "@-", stdin=query)
    assert reply.body.decode() == "it\\'s 🐋\\t\t-5\t[1,2]\n"


@pytest.mark.parametrize(
    ("clause", "body"),
    [
        ("", b"0\t0\n1\t1\n"),
        (" FORMAT CSV", b'0,"0"\n1,"1"\n'),
        (" FORMAT TSVWithNames", b"n\ts\n0\t0\n1\t1\n"),
        (" FORMAT JSONEachRow", b'{"n":0,"s":"0"}\n{"n":1,"s":"1"}\n'),
    ],
)
def test_the_format_is_the_one_asked_for(curl: Curl, clause: str, body: bytes) -> None:
    query = f"SELECT number AS n, toString(number) AS s FROM numbers(2){clause}"
    reply = curl("/", "--data-binary", query)
    assert reply.body == body
    expected = clause.removeprefix(" FORMAT ") or "TabSeparated"
    assert reply.headers["X-ClickHouse-Format"].lower() == expected.lower()


def test_json_and_pretty_are_made(curl: Curl) -> None:
    reply = curl("/", "--data-binary", "SELECT 1 AS a FORMAT JSON")
    assert json.loads(reply.body)["data"] == [{"a": 1}]
    assert reply.headers["Content-Type"].startswith("application/json")
    assert "┃ a ┃" in curl("/?default_format=Pretty", "-d", "SELECT 1 AS a").body.decode()


def test_a_reply_names_itself(curl: Curl) -> None:
    reply = curl("/?query_id=my-query", "-d", "SELECT number FROM numbers(10)")
    assert reply.headers["X-ClickHouse-Query-Id"] == "my-query"
    assert reply.headers["X-ClickHouse-Timezone"]
    assert reply.headers["X-ClickHouse-Server-Display-Name"]
    assert json.loads(reply.headers["X-ClickHouse-Summary"])["read_rows"] == "10"


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("SELECT * FROM nope", HTTPStatus.NOT_FOUND, 60),
        ("SELEC", HTTPStatus.BAD_REQUEST, 62),
        ("", HTTPStatus.BAD_REQUEST, 62),
        ("-- only a comment", HTTPStatus.BAD_REQUEST, 62),
        ("SELECT toUInt8('x')", HTTPStatus.BAD_REQUEST, 6),
        ("SELECT throwIf(1)", HTTPStatus.INTERNAL_SERVER_ERROR, 395),
        ("SELECT number FROM numbers(1000000)", HTTPStatus.INTERNAL_SERVER_ERROR, 396),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", HTTPStatus.INTERNAL_SERVER_ERROR, 358),
    ],
)
def test_an_error_has_its_status_code_and_text(
    curl: Curl, sql: str, status: HTTPStatus, code: int
) -> None:
    reply = curl("/", "--data-binary", sql)
    assert reply.status == status
    assert reply.headers["X-ClickHouse-Exception-Code"] == str(code)
    assert reply.body.startswith(f"Code: {code}. DB::Exception: ".encode())
    assert b"(version 2" in reply.body


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/?no_such_setting=1", 115),
        ("/?bad%20name=1", 115),
        ("/?database=nope", 81),
        ("/?compress=1", 48),
        ("/?param_x=%FF", 457),
        ("/?max_block_size=many", 27),
    ],
)
def test_a_wrong_key_is_an_error(curl: Curl, path: str, code: int) -> None:
    reply = curl(path, "-d", "SELECT 1")
    assert reply.headers["X-ClickHouse-Exception-Code"] == str(code)


def test_a_setting_can_not_smuggle_in_a_statement(curl: Curl) -> None:
    path = "/?log_comment=x%27%3B%20CREATE%20TABLE%20smuggled%20(a%20Int8)%20ENGINE=Memory--"
    reply = curl(path, "-d", "SELECT getSetting('log_comment')")
    assert reply.body == b"x\\'; CREATE TABLE smuggled (a Int8) ENGINE=Memory--\n"
    assert curl("/", "-d", "EXISTS TABLE smuggled").body == b"0\n"


def test_a_get_changes_nothing(curl: Curl) -> None:
    reply = curl("/?query=CREATE%20TABLE%20t%20(a%20Int8)%20ENGINE=Memory")
    assert reply.headers["X-ClickHouse-Exception-Code"] == "164"


def test_a_get_cannot_lift_its_own_limit(curl: Curl) -> None:
    path = "/?readonly=0&query=CREATE%20TABLE%20t%20(a%20Int8)%20ENGINE=Memory"
    assert curl(path).headers["X-ClickHouse-Exception-Code"] == "164"
    assert curl("/?readonly=1&query=SELECT%201").body == b"1\n"


def test_a_query_over_its_memory_is_stopped(curl: Curl) -> None:
    sql = "SELECT uniqExact(number) FROM numbers(5000000)"
    reply = curl("/?max_memory_usage=10000000", "-d", sql)
    assert reply.headers["X-ClickHouse-Exception-Code"] == "241"


def test_a_web_page_is_refused(curl: Curl) -> None:
    reply = curl("/", "-d", "SELECT 1", "-H", "Origin: https://evil.example")
    assert reply.status == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    ("login", "flags", "path"),
    [
        ("default:wrong", [], "/"),
        ("nobody:pass word", [], "/"),
        ("", [], "/"),
        ("", ["-H", "X-ClickHouse-User: default", "-H", "X-ClickHouse-Key: no"], "/"),
        ("", [], "/?user=default&password=no"),
        ("", ["-H", "Authorization: Bearer x"], "/"),
        ("", ["-H", "Authorization: Basic !"], "/"),
    ],
)
def test_a_wrong_password_is_refused(curl: Curl, login: str, flags: list[str], path: str) -> None:
    reply = curl(path, "-d", "SELECT 1", *flags, login=login)
    assert (reply.status, reply.headers["X-ClickHouse-Exception-Code"]) == (403, "516")


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        (["-H", "X-ClickHouse-User: default", "-H", "X-ClickHouse-Key: pass word"], "/"),
        ([], "/?user=default&password=pass%20word"),
        ([], "/?password=pass+word"),
    ],
)
def test_the_password_may_come_three_ways(curl: Curl, flags: list[str], path: str) -> None:
    assert curl(path, "-d", "SELECT 1", *flags, login="").body == b"1\n"


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("lz4", lz4.frame.compress), ("zstd", zstandard.compress)],
)
def test_a_compressed_insert_of_many_frames_is_whole(
    curl: Curl, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    curl("/", "-d", "CREATE OR REPLACE TABLE frames (a UInt32) ENGINE = Memory")
    body = b"".join(pack(b"%d\n" % number) for number in range(100))
    reply = curl(
        "/?query=INSERT%20INTO%20frames%20FORMAT%20TSV", "-H", f"Content-Encoding: {encoding}",
        "--data-binary", "@-", stdin=body,
    )  # fmt: skip
    assert reply.status == HTTPStatus.OK
    assert json.loads(reply.headers["X-ClickHouse-Summary"])["written_rows"] == "100"
    assert curl("/?query=SELECT%20sum(a)%20FROM%20frames").body == b"4950\n"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "lz4", "zstd"])
def test_a_body_that_is_not_what_it_says_is_an_error(curl: Curl, encoding: str) -> None:
    header = f"Content-Encoding: {encoding}"
    reply = curl("/", "-H", header, "--data-binary", "SELECT 1")
    assert (reply.status, reply.headers["X-ClickHouse-Exception-Code"]) == (400, "117")


def test_an_unknown_encoding_is_an_error(curl: Curl) -> None:
    reply = curl("/", "-H", "Content-Encoding: snappy", "--data-binary", "SELECT 1")
    assert reply.status == HTTPStatus.NOT_IMPLEMENTED


def test_an_answer_is_compressed_only_where_asked_for(curl: Curl) -> None:
    accept = ["-H", "Accept-Encoding: gzip", "-d", "SELECT 1"]
    assert curl("/", *accept).body == b"1\n"
    reply = curl("/?enable_http_compression=1", *accept)
    assert reply.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(reply.body) == b"1\n"


def test_a_body_over_the_limit_is_refused(curl: Curl) -> None:
    reply = curl("/", "--data-binary", "@-", stdin=b"x" * (BODY_LIMIT_BYTES + 1))
    assert (reply.status, reply.headers["X-ClickHouse-Exception-Code"]) == (413, "229")


def test_a_chunked_body_over_the_limit_is_refused(curl: Curl) -> None:
    body = b"x" * (BODY_LIMIT_BYTES + 1)
    reply = curl("/", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-", stdin=body)
    assert (reply.status, reply.headers["X-ClickHouse-Exception-Code"]) == (413, "229")


def test_a_small_body_that_unpacks_over_the_limit_is_refused(curl: Curl) -> None:
    bomb = gzip.compress(b"\0" * (100 * BODY_LIMIT_BYTES))
    reply = curl("/", "-H", "Content-Encoding: gzip", "--data-binary", "@-", stdin=bomb)
    assert (reply.status, reply.headers["X-ClickHouse-Exception-Code"]) == (413, "229")


def test_unknown_paths_are_not_found(curl: Curl) -> None:
    assert curl("/nope").status == HTTPStatus.NOT_FOUND
