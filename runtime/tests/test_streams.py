"""The table of streams, and declaring it on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from nats.aio.client import Client
from orca_runtime.errors import LogError
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Outgoing
from orca_runtime.streams import (
    BY_NAME,
    EXPIRING,
    STREAMS,
    StreamsDifferError,
    apply,
    check,
    stream_of,
    takes_ids,
)
from orca_runtime.testing_log import broker_api
from orca_runtime.testing_nats import NatsServer, running_nats
from orca_schemas.subjects import Stream

STORE_BYTES = 1_000_000_000


@pytest.fixture
def limited() -> Iterator[NatsServer]:
    """A broker whose store is bounded, as it always must be."""
    with running_nats(max_file_store_bytes=STORE_BYTES) as server:
        yield server


@pytest.fixture
async def log(limited: NatsServer, connect) -> JetStreamLog:
    """A connection to it."""
    found: JetStreamLog = await connect(limited.url)
    return found


@pytest.fixture
async def nc(log: JetStreamLog) -> Client:
    """Its connection."""
    return log.nc


def test_every_stream_of_the_log_is_declared_once() -> None:
    """Eight roles and the tasks' output; telemetry is no stream."""
    assert [spec.name for spec in STREAMS] == [*Stream, "LOGS"]


def test_shares_leave_room_in_the_store() -> None:
    """What all streams may use is less than the store; NODE and USAGE have room of their own."""
    assert sum(spec.share_per_mille for spec in STREAMS) < 1000
    assert BY_NAME["NODE"].share_per_mille + BY_NAME["USAGE"].share_per_mille >= 250
    used = [spec.config(STORE_BYTES, 1)["max_bytes"] for spec in STREAMS]
    assert min(used) > 0
    assert sum(used) <= STORE_BYTES


def test_only_what_others_write_expires() -> None:
    """A decider's stream is its state and stays."""
    assert {"CLIENT", "NODE", "USAGE", "LOGS"} == EXPIRING
    assert not {spec.name for spec in STREAMS if spec.atomic} & EXPIRING


@pytest.mark.parametrize(
    ("subject", "stream", "ids"),
    [
        ("orca.team.task.4f.client.alice.TaskSubmitted", Stream.CLIENT, False),
        ("orca.team.task.4f.admin.root.QuotaSet", Stream.ADMIN, False),
        ("orca._cluster.node.n.node.n.NodeJoined", Stream.NODE, True),
        ("orca.Team.x..probe.n.TokensUsed", None, True),
        ("orca.team.task.4f.nobody.n.TokensUsed", None, True),
        ("orca.telemetry.n.heartbeat", None, True),
    ],
)
def test_a_subject_tells_its_stream_and_whether_ids_count(
    subject: str, stream: Stream | None, ids: bool
) -> None:
    """Where strangers write, ids are not sent."""
    assert (stream_of(subject), takes_ids(subject)) == (stream, ids)


async def test_given_nothing_when_applied_twice_then_made_once_and_checked(nc: Client) -> None:
    """The whole table fits into the store it was made for; a second time does nothing."""
    assert await check(nc) == [f"{spec.name}: missing" for spec in STREAMS]
    assert await apply(nc, STORE_BYTES) == [f"{spec.name}: created" for spec in STREAMS]
    assert await apply(nc, STORE_BYTES) == []
    assert await check(nc, STORE_BYTES) == await check(nc) == []


async def test_given_another_size_when_applied_then_only_sizes_change(
    log: JetStreamLog, nc: Client
) -> None:
    """Sizes follow the store; what was stored stays."""
    await apply(nc, STORE_BYTES // 2)
    subject = "orca.team.task.4f.client.alice.TaskSubmitted"
    place = await log.publish(Outgoing(subject, b"{}", "1"))
    done = await apply(nc, STORE_BYTES)
    assert [text.split(" ")[:2] for text in done] == [[f"{s.name}:", "changed"] for s in STREAMS]
    assert "max_bytes to 100000000" in done[0]
    assert await check(nc, STORE_BYTES) == []
    assert await log.get("CLIENT", place.sequence) is not None


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ({"subjects": ["orca.*.*.*.admission.*.*", "mine.>"]}, "subjects"),
        ({"allow_msg_ttl": True}, "allow_msg_ttl"),
        ({"discard": "old"}, "discard"),
        ({"max_age": 3_600_000_000_000, "republish": {"src": ">", "dest": "x.>"}}, "republish"),
        ({"deny_purge": False}, "deny_purge"),
    ],
)
async def test_given_a_stream_that_is_otherwise_when_applied_then_nothing_is_changed(
    log: JetStreamLog, nc: Client, harm: dict[str, object], word: str
) -> None:
    """What a person set differently is named, not overwritten; nothing else is touched either."""
    theirs = BY_NAME["ADMISSION"].config(1000, 1) | harm
    await broker_api(log, "STREAM.CREATE.ADMISSION", theirs)
    with pytest.raises(StreamsDifferError, match=word):
        await apply(nc, STORE_BYTES)
    found = (await broker_api(log, "STREAM.INFO.ADMISSION", {}))["config"]
    assert all(found[key] == value for key, value in harm.items() if key != "deny_purge")
    assert (await broker_api(log, "STREAM.NAMES", {}))["streams"] == ["ADMISSION"]
    assert any(word in text for text in await check(nc))


async def test_given_a_stream_without_limit_then_check_names_it(
    log: JetStreamLog, nc: Client
) -> None:
    """Without a limit one stream could fill the store for all."""
    await apply(nc, STORE_BYTES)
    await broker_api(
        log, "STREAM.UPDATE.BILLING", BY_NAME["BILLING"].config(1000, 1) | {"max_bytes": -1}
    )
    assert await check(nc) == ["BILLING: max_bytes is -1, declared 'a limit'"]


async def test_given_a_store_too_small_when_applied_then_refused(nc: Client) -> None:
    """Sizes that do not fit are the broker's refusal, in its words."""
    with pytest.raises(LogError, match="insufficient storage"):
        await apply(nc, 4 * STORE_BYTES)


async def test_given_orcas_streams_when_someone_deletes_then_refused(
    log: JetStreamLog, nc: Client
) -> None:
    """No message can be taken out, and a stream cannot be emptied."""
    await apply(nc, STORE_BYTES)
    await log.append("BILLING", 0, [Outgoing("orca.a.price.b.billing.-.Noted", b"", "1")])
    for verb, body in (("MSG.DELETE", {"seq": 1}), ("PURGE", {})):
        with pytest.raises(AssertionError, match="not permitted"):
            await broker_api(log, f"STREAM.{verb}.BILLING", body)


async def test_given_a_strangers_id_when_used_again_then_both_stand(
    log: JetStreamLog, nc: Client
) -> None:
    """On CLIENT an id means something for 100 ms at most, so that it swallows nothing later."""
    await apply(nc, STORE_BYTES)
    subject = "orca.team.task.4f.client.alice.TaskSubmitted"
    for _ in range(2):
        await nc.request(subject, b"{}", headers={"Nats-Msg-Id": "theirs"})
        await asyncio.sleep(0.4)
    assert (await log.state("CLIENT")).messages == 2
