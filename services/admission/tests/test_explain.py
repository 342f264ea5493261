"""Explaining a balance: what the events did to it sums to what it is, at every moment."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from types import SimpleNamespace

import pytest
from orca_admission.decider import DECIDER
from orca_admission.explain import ledger
from orca_admission.explain_task import events_of, why
from orca_runtime.authors import Authors
from orca_runtime.histories import packaged, read_history
from orca_runtime.log import Stored
from orca_runtime.memory_log import MemoryLog, MemoryStream
from orca_runtime.past import Moment
from orca_schemas.subjects import stream_filter

TEAM = {"v1": "team-alpha", "v1-aged": "team-a"}
HISTORIES = {
    one.name.removesuffix(".jsonl.gz"): list(read_history(one.read_bytes()))
    for one in packaged("orca_admission")
}


def log_of(name: str) -> MemoryLog:
    """A log whose ADMISSION stream is a recorded one."""
    messages = HISTORIES[name]
    log = MemoryLog(lambda: 1)
    stream = DECIDER.stream
    log._streams[stream] = MemoryStream(
        stream, stream_filter(stream), messages[0].epoch, messages=list(messages)
    )
    return log


@pytest.mark.parametrize("name", HISTORIES)
async def test_at_every_moment_the_moves_sum_to_the_balance(name: str) -> None:
    """Given a recorded life, then at each tenth event every balance is the sum of its moves, and
    a later moment has no fewer of them."""
    log, counts = log_of(name), []
    for sequence in range(10, len(HISTORIES[name]) + 1, 10):
        found = await ledger(log, TEAM[name], Moment(sequence=sequence), last=5)
        assert found.folded.sequence == sequence
        assert all(map(found.adds_up, found.balances()))
        assert len(found.moves) <= 5
        counts.append(found.count)
    assert all(before <= after for before, after in pairwise(counts))
    assert counts[-1] > 5


async def test_what_is_summed_is_what_the_events_say() -> None:
    """Given the bytes of the events alone, then the tokens used are those settled in all."""
    found = await ledger(log_of("v1"), TEAM["v1"], Moment(), last=1)
    used: dict[str, int] = {}
    for stored in HISTORIES["v1"]:
        if stored.subject.endswith(".QuotaSettled"):
            data = json.loads(stored.body)["data"]
            used[data["run_id"]] = data["used_tokens"]
    assert found.sums["tokens"].committed == sum(used.values()) > 0


async def test_a_moment_in_time_is_the_last_event_before_it() -> None:
    """Given the time of an event, then the ledger stands at the last event of that time."""
    log = log_of("v1")
    full = await ledger(log, TEAM["v1"], Moment(), last=100)
    middle = full.moves[10].event
    found = await ledger(log, TEAM["v1"], Moment(time_ms=middle.time_ms), last=100)
    assert found.folded.time_ms == middle.time_ms
    assert found.folded.sequence >= middle.position.sequence
    before = await ledger(log, TEAM["v1"], Moment(time_ms=middle.time_ms - 1), last=100)
    assert before.folded.time_ms < middle.time_ms


async def test_a_wrong_sum_is_seen() -> None:
    """Given a move that is left out, then the balance does not add up."""
    found = await ledger(log_of("v1"), TEAM["v1"], Moment(), last=5)
    found.sums["tokens"].committed -= 1
    assert not found.adds_up("tokens")


async def test_a_cause_that_expired_is_named_all_the_same() -> None:
    """Given an input that left its stream by age, then its author is unknown and its place is
    not."""
    stored = next(s for s in HISTORIES["v1"] if s.subject.endswith(".TaskQueued"))
    author = await Authors(log_of("v1")).of(stored)
    assert author.event == "expired"
    assert author.position.startswith("CLIENT@")
    assert author.words() == "admission"


async def test_a_task_of_many_events_shows_the_last_of_each_stream() -> None:
    """Given more events of a task than are shown, then pages are read to the end and the last
    are kept."""
    one = HISTORIES["v1"][0]
    many = [
        Stored(one.stream, one.epoch, number, number * 1_000_000, one.subject, b"{}")
        for number in range(1, 1251)
    ]

    async def find(stream: str, _: str, after: int, limit: int) -> list[Stored]:
        return many[after : after + limit] if stream == one.stream else []

    log = SimpleNamespace(find=find)
    task = "00000000-0000-4000-8000-000000000001"
    found = await events_of(log, task, Moment())  # type: ignore[arg-type]
    assert [stored.sequence for stored in found] == list(range(1051, 1251))
    earlier = await events_of(log, task, Moment(time_ms=100))  # type: ignore[arg-type]
    assert [stored.sequence for stored in earlier] == list(range(1, 101))


def test_why_is_in_the_events_own_words() -> None:
    """Given each kind of event, then its reason is told; what is no event has none."""
    told = {stored.subject.rsplit(".", 1)[1]: why(stored) for stored in HISTORIES["v1"]}
    assert "quota_" in told["TaskQueued"]
    assert "not_" in told["RequestRefused"]
    assert "part " in told["QuotaReleased"]
    assert why(HISTORIES["v1"][0].__class__("X", 1, 1, 1, "a.b", b"\xff")) == ""


def test_the_histories_are_part_of_the_package() -> None:
    """Given the package as installed, then its histories are in it."""
    assert files("orca_admission").joinpath("history").is_dir()
    assert set(HISTORIES) == set(TEAM)
