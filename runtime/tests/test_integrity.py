"""Roll-backs that no snapshot remembers: found by what other streams recorded."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from orca_runtime import shell as shell_module
from orca_runtime.cut import cut_of
from orca_runtime.errors import IntegrityError
from orca_runtime.integrity import check_marks, cursor_at, marks_of
from orca_runtime.log import Outgoing, StreamState
from orca_runtime.memory_log import MemoryLog
from orca_runtime.own_mark import FileMark
from orca_runtime.testing_shell import Bench
from orca_runtime.testing_toy import add
from orca_schemas.positions import Position, cursor_text

SUBJECT = "orca.team.task.00000000-0000-4000-8000-000000000001.{role}.-.Noted"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits a second for a retry."""
    for name in ("RETRY_S", "NOT_READY_RETRY_S", "IDLE_S"):
        monkeypatch.setattr(shell_module, name, 0.005)


@pytest.fixture
def log() -> MemoryLog:
    ticks = itertools.count(1_700_000_000_000_000_000, 1_000_000)
    return MemoryLog(lambda: next(ticks))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.stop()


async def write(log: MemoryLog, stream: str, **read: int) -> Position:
    """One event of a stream; with ``read``, its cursor."""
    body: dict[str, str] = {}
    if read:
        places = {name: ((await log.state(name)).epoch, last) for name, last in read.items()}
        body["cursor"] = cursor_text(places)
    subject = SUBJECT.format(role=stream.lower())
    return await log.publish(Outgoing(subject, json.dumps(body).encode(), str(id(body))))


async def chain(log: MemoryLog, count: int) -> None:
    """As many events in CLIENT, ADMISSION, PLACEMENT, METERING, each caused by the one before."""
    for number in range(1, count + 1):
        await write(log, "CLIENT")
        await write(log, "ADMISSION", CLIENT=number)
        await write(log, "PLACEMENT", ADMISSION=number)
        await write(log, "METERING", PLACEMENT=number)


async def test_a_mark_is_the_newest_cursor_of_each_reader(log: MemoryLog) -> None:
    """Given readers of a stream, then each one's newest cursor is its mark, wherever it stands."""
    await chain(log, 3)
    await write(log, "METERING")
    epoch = (await log.state("PLACEMENT")).epoch
    marks = await marks_of(log, "PLACEMENT")
    assert [(one.reader, one.sequence) for one in marks] == [("METERING", 3)]
    assert marks[0].position == Position("PLACEMENT", epoch, 3)
    assert await cursor_at(log, "BILLING", 0) is None


async def test_a_stream_that_ends_before_a_mark_is_rolled_back(log: MemoryLog) -> None:
    """Given a reader that read further than a stream goes, then it says who and how far."""
    await chain(log, 3)
    marks = await marks_of(log, "ADMISSION")
    check_marks(await log.state("ADMISSION"), marks)
    log.roll_back("ADMISSION", 2)
    with pytest.raises(IntegrityError, match="PLACEMENT at 3 read it through 3; restore all"):
        check_marks(await log.state("ADMISSION"), marks)


async def test_a_stream_made_anew_is_no_successor(log: MemoryLog) -> None:
    """Given a stream that was deleted and made again, then its readers' marks tell."""
    await chain(log, 1)
    log.declare("ADMISSION", "orca.*.*.*.admission.*.*")
    with pytest.raises(IntegrityError, match="made anew since PLACEMENT at 1 read it"):
        check_marks(await log.state("ADMISSION"), await marks_of(log, "ADMISSION"))


async def test_a_decider_rolled_back_without_a_snapshot_is_not_ready(bench: Bench) -> None:
    """Given a decider whose stream another has read, when rolled back, then it waits.

    It starts from zero without any snapshot; the stream alone looks complete.
    """
    shell = bench.start()
    await bench.say(add("1"))
    await bench.settled(shell, {"CLIENT": 1})
    await bench.say(add("2"))
    await bench.settled(shell, {"CLIENT": 2})
    await bench.stop()
    bench.tasks.clear()
    await write(bench.log, "BILLING", METERING=2)
    bench.log.roll_back("METERING", 1)
    again = bench.start()
    await bench.until(lambda: "BILLING at 1 read it through 2" in again.reason)
    assert "restore all streams from one backup" in again.reason
    assert not again.ready
    await asyncio.sleep(0.02)
    assert (await bench.log.state("METERING")).last_sequence == 1


async def test_the_cut_of_whole_streams_is_their_ends(log: MemoryLog) -> None:
    """Given streams that agree, then nothing is cut off."""
    await chain(log, 5)
    ends = dict.fromkeys(("CLIENT", "ADMISSION", "PLACEMENT", "METERING"), 5) | {"BILLING": 0}
    assert await cut_of(log, ends) == ends


@pytest.mark.parametrize(
    ("rolled", "left", "expected"),
    [
        ("CLIENT", 12, (12, 12, 12, 12)),
        ("ADMISSION", 7, (20, 7, 7, 7)),
        ("PLACEMENT", 3, (20, 20, 3, 3)),
        ("METERING", 9, (20, 20, 20, 9)),
        ("CLIENT", 0, (0, 0, 0, 0)),
    ],
)
async def test_the_cut_follows_what_was_caused(
    log: MemoryLog, rolled: str, left: int, expected: tuple[int, ...]
) -> None:
    """Given a stream rolled back, then the cut takes off all that its lost events caused."""
    await chain(log, 20)
    log.roll_back(rolled, left)
    names = ("CLIENT", "ADMISSION", "PLACEMENT", "METERING")
    whole = {name: (await log.state(name)).last_sequence for name in names}
    cut = await cut_of(log, whole)
    assert tuple(cut[name] for name in names) == expected


async def test_a_cut_never_parts_an_append(log: MemoryLog) -> None:
    """Given an append of three events, its cursor on the last, then it is kept or cut whole."""
    await write(log, "CLIENT")
    await write(log, "ADMISSION", CLIENT=1)
    await write(log, "CLIENT")
    for _ in range(2):
        await write(log, "ADMISSION")
    await write(log, "ADMISSION", CLIENT=2)
    assert (await cut_of(log, {"CLIENT": 2, "ADMISSION": 3}))["ADMISSION"] == 1
    assert (await cut_of(log, {"CLIENT": 2, "ADMISSION": 4}))["ADMISSION"] == 4


async def test_a_replicas_own_mark_finds_what_nobody_else_read(
    bench: Bench, tmp_path: Path
) -> None:
    """Given a decider that nobody reads, when it is rolled back, then its own mark tells."""
    mark = FileMark(tmp_path / "marks" / "metering.json")
    await bench.say(add("1"), add("2"))
    shell = bench.start(mark=mark)
    await bench.settled(shell, {"CLIENT": 2})
    await bench.stop()
    bench.tasks.clear()
    bench.log.roll_back("METERING", 1)
    again = bench.start(mark=FileMark(tmp_path / "marks" / "metering.json"))
    await bench.until(lambda: "metering.json saw it go to 2" in again.reason)
    assert not again.ready


@pytest.mark.parametrize("content", ["", "{", "[]", '{"epoch": 1}', '{"epoch": 7, "sequence": 99}'])
def test_a_mark_that_says_nothing_of_this_stream_stops_nobody(tmp_path: Path, content: str) -> None:
    """Given no mark, a damaged one or one of another log, then it is no evidence."""
    path = tmp_path / "metering.json"
    FileMark(path).check(StreamState("METERING", 1, 1, 5, 5))
    path.write_text(content)
    FileMark(path).check(StreamState("METERING", 1, 1, 5, 5))


def test_a_mark_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    """Given a disk without room for it, when a mark is noted, then the service goes on."""
    (tmp_path / "marks").write_text("in the way")
    FileMark(tmp_path / "marks" / "metering.json").note(1, 1)
