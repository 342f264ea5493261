"""What Orca's tables and views ask of the engine holds in the embedded one."""

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from orca_embedded.clickhouse.testing import running

USAGE = """CREATE TABLE {name} (
    namespace LowCardinality(String),
    id UUID,
    event_time DateTime64(3, 'UTC') DEFAULT UUIDv7ToDateTime(id, 'UTC'),
    sequence UInt64,
    cost Decimal(38, 12),
    CONSTRAINT time_is_of_id CHECK event_time = UUIDv7ToDateTime(id, 'UTC')
) ENGINE = ReplacingMergeTree(sequence)
PARTITION BY toYYYYMM(event_time)
ORDER BY (namespace, toDate(event_time), id)
SETTINGS non_replicated_deduplication_window = 100"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    data = tmp_path_factory.mktemp("clickhouse") / "data"
    with running(data) as server:
        opened = clickhouse_connect.get_client(host="127.0.0.1", port=server.port)
        yield opened
        opened.close()


@pytest.fixture
def usage(client: Client) -> Iterator[str]:
    name = f"usage_{uuid.uuid4().hex}"
    client.command(USAGE.format(name=name))
    yield name
    client.command(f"DROP TABLE {name}")


def uuid7(moment: dt.datetime, tail: int) -> uuid.UUID:
    milliseconds = int(moment.replace(tzinfo=dt.UTC).timestamp() * 1000)
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62 | tail)


JANUARY = dt.datetime.fromisoformat("2026-01-31T23:59:59.999")
FEBRUARY = dt.datetime.fromisoformat("2026-02-01")


def insert(client: Client, usage: str, sequences: range, **settings: str) -> None:
    rows = [
        ("team", uuid7(JANUARY if n % 2 else FEBRUARY, n), n, Decimal("0.000000000001"))
        for n in sequences
    ]
    client.insert(usage, rows, ["namespace", "id", "sequence", "cost"], settings=settings or None)


def test_event_time_is_a_function_of_the_id(client: Client, usage: str) -> None:
    insert(client, usage, range(2))
    times = client.query(f"SELECT event_time FROM {usage} ORDER BY event_time").result_columns[0]
    assert list(times) == [JANUARY, FEBRUARY]


@pytest.mark.parametrize("per_partition", [0, 1])
def test_final_counts_a_replayed_row_once(client: Client, usage: str, per_partition: int) -> None:
    for sequences in (range(100), range(50, 150), range(150)):
        insert(client, usage, sequences)
    answer = client.query(
        f"SELECT count(), sum(cost) FROM {usage} FINAL",
        settings={"do_not_merge_across_partitions_select_final": per_partition},
    )
    assert answer.result_rows == [(150, Decimal("0.000000000150"))]
    assert client.command(f"SELECT count() > 150 FROM {usage}") == 1


def test_a_final_view_is_unchanged_by_a_replay(client: Client, usage: str) -> None:
    client.command(
        f"CREATE VIEW daily_{usage} AS SELECT namespace, toDate(event_time) AS day, "
        f"sum(cost) AS cost, count() AS records FROM {usage} FINAL GROUP BY namespace, day "
        "SETTINGS do_not_merge_across_partitions_select_final = 1"
    )
    select = f"SELECT * FROM daily_{usage} ORDER BY day"
    insert(client, usage, range(100))
    before = client.query(select).result_rows
    insert(client, usage, range(100))
    insert(client, usage, range(30, 60))
    client.command(f"OPTIMIZE TABLE {usage} FINAL")
    assert client.query(select).result_rows == before
    assert before[0] == ("team", JANUARY.date(), Decimal("0.000000000050"), 50)
    client.command(f"DROP VIEW daily_{usage}")


def test_the_higher_sequence_wins(client: Client, usage: str) -> None:
    key = uuid7(FEBRUARY, 1)
    for sequence, cost in ((2, "2"), (1, "1")):
        row = ("team", key, sequence, Decimal(cost))
        client.insert(usage, [row], ["namespace", "id", "sequence", "cost"])
    assert client.query(f"SELECT cost FROM {usage} FINAL").result_rows == [(Decimal(2),)]


def test_a_repeated_deduplication_token_inserts_once(client: Client, usage: str) -> None:
    for _ in range(3):
        insert(client, usage, range(10), insert_deduplication_token="USAGE:0-9")
    assert client.command(f"SELECT count() FROM {usage}") == 10
    insert(client, usage, range(10), insert_deduplication_token="USAGE:other")
    assert client.command(f"SELECT count() FROM {usage}") == 20
    assert client.command(f"SELECT count() FROM {usage} FINAL") == 10


def test_a_large_batch_with_a_token_inserts_once(client: Client, usage: str) -> None:
    for _ in range(2):
        insert(client, usage, range(100_000), insert_deduplication_token="USAGE:0-99999")
    assert client.command(f"SELECT count() FROM {usage}") == 100_000


def test_a_row_that_breaks_a_constraint_refuses_the_batch(client: Client, usage: str) -> None:
    with pytest.raises(Exception, match="VIOLATED_CONSTRAINT"):
        client.insert(
            usage,
            [("team", uuid7(FEBRUARY, 1), JANUARY, 1, Decimal(1))],
            ["namespace", "id", "event_time", "sequence", "cost"],
        )
    assert client.command(f"SELECT count() FROM {usage}") == 0


def test_decimals_of_38_digits_keep_every_digit(client: Client, usage: str) -> None:
    cost = Decimal("12345678901234567890123456.123456789012")
    client.insert(
        usage, [("team", uuid7(FEBRUARY, 1), 1, cost)], ["namespace", "id", "sequence", "cost"]
    )
    sums = "sum(cost), max(cost), multiplyDecimal(sum(cost), toDecimal64(1, 0), 12)"
    assert client.query(f"SELECT {sums} FROM {usage}").result_rows == [(cost, cost, cost)]
