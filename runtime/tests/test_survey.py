"""orca streams check and apply on a real broker: whole, holed, rolled back, at odds."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from orca_runtime import streams
from orca_runtime.clock import SystemClock
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.lease import SoleLease
from orca_runtime.log import Outgoing
from orca_runtime.shell import DeciderShell
from orca_runtime.streams_tool import main
from orca_runtime.survey import survey
from orca_runtime.testing_log import broker_api
from orca_runtime.testing_nats import NatsServer, running_nats
from orca_runtime.testing_toy import TOY, add
from orca_schemas.positions import Position, cursor_text

STORE_BYTES = 200_000_000
READER = "orca._cluster.account.billing.billing.-.Noted"


async def declared(server: NatsServer) -> JetStreamLog:
    log = await JetStreamLog.connect(server.url, name="test")
    await streams.apply(log.nc, STORE_BYTES)
    return log


async def added(log: JetStreamLog, *numbers: int) -> None:
    """Let the toy, whose stream is METERING, add numbers one by one."""
    before = (await log.state("CLIENT")).last_sequence
    shell = DeciderShell(TOY, log, clock=SystemClock(), lease=SoleLease())
    running = asyncio.create_task(shell.run())
    for done, number in enumerate(numbers, before + 1):
        await log.publish(add(number))
        while shell.folded.done("CLIENT") < done:
            assert not running.done(), running.result()
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def read_by_billing(log: JetStreamLog, sequence: int) -> None:
    """An event of BILLING that says it read METERING so far."""
    epoch = (await log.state("METERING")).epoch
    body = {"cursor": cursor_text({"METERING": (epoch, sequence)})}
    body["cause"] = str(Position("METERING", epoch, sequence))
    body["previous"] = "0" * 32
    await log.publish(Outgoing(READER, json.dumps(body).encode(), f"reader-{sequence}"))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.fixture
def check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Run ``orca streams``; the exit code and what it says."""

    def check_(server: NatsServer, *given: str) -> tuple[int, str]:
        monkeypatch.setenv("ORCA_NATS_URL", server.url)
        code = main(given)
        said = capsys.readouterr()
        return code, said.out + said.err

    return check_


Check = Callable[..., tuple[int, str]]


def test_streams_as_declared_and_whole_are_fine(nats_server: NatsServer, check: Check) -> None:
    """Given streams that apply made and a decider wrote, then a deep check finds nothing."""

    async def scene() -> None:
        log = await declared(nats_server)
        await added(log, 1, 2, 3)
        await read_by_billing(log, 3)
        await log.close()

    run(scene())
    code, said = check(nats_server, "check", "--deep", "--store-bytes", str(STORE_BYTES))
    assert (code, "4 own events follow each other" in said) == (0, True), said
    code, said = check(nats_server, "check", "--json")
    found = json.loads(said)
    assert (code, found["fine"], found["problems"]) == (0, True, [])
    metering = next(one for one in found["streams"] if one["name"] == "METERING")
    assert (metering["last"], metering["whole_through"], metering["cut"]) == (3, 3, 3)


def test_apply_makes_what_is_missing_once(nats_server: NatsServer, check: Check) -> None:
    """Given no streams, then check names each, apply makes them, and a second changes nothing."""
    code, said = check(nats_server, "check")
    assert (code, "fail  PLACEMENT: missing" in said) == (1, True)
    code, said = check(nats_server, "apply")
    assert (code, "--store-bytes" in said) == (2, True)
    code, said = check(nats_server, "apply", "--store-bytes", str(STORE_BYTES))
    assert (code, said.count(": created")) == (0, len(streams.STREAMS))
    code, said = check(nats_server, "apply", "--store-bytes", str(STORE_BYTES))
    assert (code, said) == (0, "nothing to do: the streams are as declared\n")
    assert check(nats_server, "check", "--store-bytes", str(2 * STORE_BYTES))[0] == 1


def test_without_a_broker_nothing_is_said_of_streams(
    nats_server: NatsServer, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no broker, then the exit code is that of what is unavailable."""
    monkeypatch.setattr("orca_runtime.streams_tool.CONNECT_S", 0.2)
    nats_server.stop()
    assert check(nats_server, "check")[0] == 69


def test_a_stream_rolled_back_on_disk_is_found_by_its_reader(tmp_path: Path, check: Check) -> None:
    """Given METERING's files of yesterday under today's other streams, then the cut is named.

    The stream itself is whole: only BILLING, which read it further, knows.
    """
    with running_nats(tmp_path / "nats") as server:

        async def some(*numbers: int) -> None:
            log = await declared(server)
            await added(log, *numbers)
            await read_by_billing(log, (await log.state("METERING")).last_sequence)
            await log.close()

        files = tmp_path / "nats" / "jetstream" / "$G" / "streams" / "METERING"
        run(some(1, 2))
        server.stop()
        shutil.copytree(files, tmp_path / "yesterday")
        server.start()
        run(some(3, 4))
        server.stop()
        shutil.rmtree(files)
        shutil.copytree(tmp_path / "yesterday", files)
        server.start()
        code, said = check(server, "check")
        assert code == 1
        assert "fail  METERING at sequence 2: ends here, yet BILLING at 2 read it through 4" in said
        assert "restore all streams from one backup, each at most to its CUT" in said
        code, said = check(server, "check", "--json")
        cuts = {one["name"]: (one["last"], one["cut"]) for one in json.loads(said)["streams"]}
        assert (cuts["METERING"], cuts["BILLING"]) == ((2, 2), (2, 1))

        async def reason() -> str:
            log = await JetStreamLog.connect(server.url, name="test")
            shell = DeciderShell(TOY, log, clock=SystemClock(), lease=SoleLease())
            running = asyncio.create_task(shell.run())
            while "not ready" not in shell.reason:  # noqa: ASYNC110 - a text has no event
                await asyncio.sleep(0.005)
            running.cancel()
            await log.close()
            return shell.reason

        assert "yet BILLING at 2 read it through 4" in run(reason())


async def test_a_hole_is_named_and_cuts_what_follows(nats_server: NatsServer) -> None:
    """Given a stream that lost a message in its middle, then its place and the cut before it."""
    log = await JetStreamLog.connect(nats_server.url, name="test")
    soft = streams.BY_NAME["METERING"].config(STORE_BYTES, 1) | {"deny_delete": False}
    await broker_api(log, "STREAM.CREATE.METERING", soft)
    for spec in streams.STREAMS:
        if spec.name != "METERING":
            await broker_api(log, f"STREAM.CREATE.{spec.name}", spec.config(STORE_BYTES, 1))
    await added(log, *range(1, 31))
    for sequence in (17, 18, 25):
        await broker_api(log, "STREAM.MSG.DELETE.METERING", {"seq": sequence})
    found = await survey(log, deep=True)
    assert "METERING: 3 messages are missing, the first is 17" in found.problems
    metering = next(one for one in found.streams if one.name == "METERING")
    assert (metering.whole_through, metering.cut, found.chains_checked) == (16, 16, 16)
    await log.close()


async def test_a_broken_chain_is_found_only_deep(nats_server: NatsServer) -> None:
    """Given a foreign message in a decider's stream, then a deep check names it, and the cut."""
    log = await declared(nats_server)
    await added(log, 1, 2)
    await log.publish(Outgoing("orca.team.task.x.metering.-.Noted", b'{"stream":"CLIENT"}', "f"))
    assert (await survey(log)).problems == []
    found = await survey(log, deep=True)
    assert found.problems == ["METERING at sequence 3: does not follow its predecessor"]
    metering = next(one for one in found.streams if one.name == "METERING")
    assert (metering.whole_through, metering.cut) == (2, 2)
    await log.close()
