"""Starting, stopping, crashing: acknowledged data stays, and each failure is one clear line."""

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from orca_embedded.clickhouse.testing import RunningServer, running, start


@contextlib.contextmanager
def connected(server: RunningServer) -> Iterator[Client]:
    client = clickhouse_connect.get_client(host="127.0.0.1", port=server.port)
    try:
        yield client
    finally:
        client.close()


def refused(*flags: str) -> tuple[int, str]:
    """Exit status and stderr of a server that cannot start."""
    done = subprocess.run(
        [sys.executable, "-m", "orca_embedded.clickhouse", *flags],
        capture_output=True,
        timeout=30,
        check=False,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_state_stays_over_a_restart(data: Path) -> None:
    with running(data) as server, connected(server) as client:
        client.command("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
        client.command("CREATE VIEW v AS SELECT sum(a) AS total FROM t")
        client.insert("t", [[n] for n in range(1000)], column_names=["a"])
        assert server.stop() == 0
    with running(data) as server, connected(server) as client:
        assert client.command("SELECT total FROM v") == 499500


def test_acknowledged_rows_stay_over_a_crash(data: Path) -> None:
    server = start(data)
    acknowledged = 0
    with connected(server) as client:
        client.command("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
        killer = threading.Timer(1.0, server.kill)
        killer.start()
        with contextlib.suppress(Exception):
            while True:
                client.insert("t", [[acknowledged]], column_names=["a"])
                acknowledged += 1
        killer.join()
    assert acknowledged > 10
    with running(data) as server, connected(server) as client:
        present = client.query("SELECT a FROM t ORDER BY a").result_columns[0]
    # The insert in flight at the crash may be there; none before it may be missing.
    assert list(present) in (list(range(acknowledged)), list(range(acknowledged + 1)))


def test_a_stop_lets_a_running_query_finish(data: Path) -> None:
    with running(data) as server, connected(server) as client:
        answers: list[object] = []
        query = threading.Thread(
            target=lambda: answers.append(client.command("SELECT count(), sleep(2)"))
        )
        query.start()
        time.sleep(0.5)
        assert server.stop() == 0
        query.join()
    assert answers == [["1", "0"]]


def test_a_stop_does_not_wait_longer_than_its_grace(data: Path) -> None:
    with running(data, "--stop-grace-s", "1") as server:
        url = f"{server.url}/?query=SELECT%20sleepEachRow(1)%20FROM%20numbers(20)&max_block_size=1"

        def ask() -> None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=30)

        query = threading.Thread(target=ask)
        query.start()
        time.sleep(0.5)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 5
        query.join()
    assert "cut off" in server.log.read_text()


def test_an_idle_connection_does_not_delay_a_stop(data: Path) -> None:
    with running(data) as server, connected(server) as client:
        client.command("SELECT 1")
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 5


def test_a_file_in_place_of_the_directory(data: Path) -> None:
    data.write_text("not a directory")
    status, stderr = refused("--port", "0", "--data", str(data))
    assert status == 78
    assert stderr.count("\n") == 1
    assert "give --data a directory" in stderr


def test_a_directory_that_cannot_be_made() -> None:
    status, stderr = refused("--port", "0", "--data", "/proc/orca/data")
    assert (status, stderr.count("\n")) == (78, 1)


def test_a_directory_in_use(data: Path) -> None:
    with running(data):
        status, stderr = refused("--port", "0", "--data", str(data))
    assert (status, stderr.count("\n")) == (78, 1)
    assert "in use by another process" in stderr


def test_unreadable_metadata(data: Path) -> None:
    with running(data) as server, connected(server) as client:
        client.command("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
    for path in (data / "store").rglob("*.sql"):
        path.write_text("garbage")
    status, stderr = refused("--port", "0", "--data", str(data))
    assert (status, stderr.count("\n")) == (78, 1)
    assert "rebuild it from the log" in stderr


def test_unreadable_rows_are_named(data: Path) -> None:
    with running(data) as server, connected(server) as client:
        client.command("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
        client.insert("t", [[1]], column_names=["a"])
    for part in (data / "store").rglob("all_*"):
        shutil.copy("/dev/null", part / "columns.txt")
        shutil.copy("/dev/null", part / "data.bin")
    with running(data) as server:
        assert "unreadable data was set aside in default.t" in server.log.read_text()


def test_a_taken_port(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, stderr = refused("--port", str(port), "--data", str(data))
    assert (status, stderr.count("\n")) == (69, 1)
    assert f"127.0.0.1:{port} is taken" in stderr


def test_an_address_of_another_machine(data: Path) -> None:
    status, stderr = refused("--host", "192.0.2.1", "--port", "0", "--data", str(data))
    assert (status, stderr.count("\n")) == (69, 1)


def test_too_many_queries_are_refused(data: Path) -> None:
    with running(data, "--max-running", "1", "--max-waiting", "1") as server:
        codes: list[str] = []

        def ask() -> None:
            try:
                urllib.request.urlopen(f"{server.url}/?query=SELECT%20sleep(1)", timeout=30)
            except urllib.error.HTTPError as error:
                codes.append(error.headers["X-ClickHouse-Exception-Code"])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert codes == ["202", "202"]


def test_a_client_that_goes_away_leaves_no_rows_and_no_noise(data: Path) -> None:
    head = "POST /?query=INSERT%20INTO%20t%20FORMAT%20CSV HTTP/1.1\r\nHost: x\r\n"
    with running(data) as server, connected(server) as client:
        client.command("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.port)) as half_sent:
                half_sent.sendall(f"{head}Content-Length: 1000\r\n\r\n1\n2\n".encode())
            with socket.create_connection(("127.0.0.1", server.port)) as not_read:
                not_read.sendall(b"GET /?query=SELECT%20sleep(0.2) HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.5)
        assert client.command("SELECT count() FROM t") == 0
        assert server.stop() == 0
        assert server.log.read_text().count("\n") == 1


def test_uploads_left_by_a_crash_are_removed(data: Path) -> None:
    (data / "uploads").mkdir(parents=True)
    (data / "uploads" / "left").write_bytes(b"x")
    with running(data):
        assert list((data / "uploads").iterdir()) == []
