"""After the faults: every promise, checked on the log, on disk, in SQL and by the services."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checks import check_log, event_of
from orca_client.connection import Connection
from orca_runtime.decider import AnyDecider
from orca_runtime.fold import Folded, fold_one, unfolded
from orca_runtime.log import Stored
from orca_runtime.tables import state_digest
from orca_schemas.asks import Status
from orca_schemas.subjects import Stream, ask_subject
from outcome import all_final, final_runs, sql_says_the_same
from stack_kit import RunningStack, eventually

from tests.chaos.faults import DECIDERS
from tests.chaos.load import Task

Events = Mapping[str, Sequence[Stored]]
ENDS = ("TaskRejected", "Released")
REPLICAS = 2
ASK_S = 5.0


async def all_done(stack: RunningStack, load: Sequence[Task], limit_s: float) -> None:
    """I7: wait until every task ended and every run that held something is billed in full."""
    await eventually("every task ends", lambda: _all_ended(stack, load), limit_s)
    runs = len(_reserved((await stack.events(Stream.ADMISSION))[Stream.ADMISSION]))
    await eventually("every run is billed", lambda: all_final(stack, runs), limit_s)


async def _all_ended(stack: RunningStack, load: Sequence[Task]) -> bool:
    try:
        async with asyncio.timeout(20):
            events = await stack.events(Stream.ADMISSION, Stream.PLACEMENT)
    except TimeoutError:
        return False
    ended = {task_id for task_id, name in _of_tasks(events) if name in ENDS}
    missing = {str(task.id) for task in load} - ended
    if missing:
        await asyncio.sleep(2)
    return not missing


def _of_tasks(events: Events) -> list[tuple[str, str]]:
    """Task id and event name of everything decided about tasks."""
    found = []
    for stream in (Stream.ADMISSION, Stream.PLACEMENT):
        for one in events[stream]:
            tokens = one.subject.split(".")
            if tokens[2] == "task":
                found.append((tokens[3], tokens[6]))
    return found


def _reserved(admission: Sequence[Stored]) -> set[str]:
    return {data["run_id"] for name, data in map(event_of, admission) if name == "QuotaReserved"}


async def judge(stack: RunningStack, load: Sequence[Task], witness: Path) -> dict[str, Any]:
    """Assert all of it; returns what was counted."""
    events = await stack.events()
    ledger = check_log(events)
    assert ledger.leaks() == {}, "I2: something is still held"
    assert final_runs(events[Stream.BILLING]) >= _reserved(events[Stream.ADMISSION])
    check_ends(events, load)
    check_inputs_answered_once(events)
    check_witness(events, load, witness)
    check_tokens(events, load)
    await sql_says_the_same(stack, events)
    await check_folds(stack, events)
    await check_active_answers(stack)
    await verify_by_replay(stack)
    return {stream: len(found) for stream, found in events.items()}


def check_ends(events: Events, load: Sequence[Task]) -> None:
    """Each task ended once, and as it should: only what was cancelled did not succeed."""
    outcomes: dict[str, list[str]] = {}
    for stream in (Stream.ADMISSION, Stream.PLACEMENT):
        for one in events[stream]:
            name, data = event_of(one)
            if name in ENDS:
                outcomes.setdefault(one.subject.split(".")[3], []).append(data["outcome"])
    for task in load:
        allowed = [["succeeded"]] if task.cancel_after_s is None else [["cancelled"]]
        assert outcomes[str(task.id)] in allowed, f"{task.id}: {outcomes[str(task.id)]}"


def check_inputs_answered_once(events: Events) -> None:
    """I8: every submission, cancellation and usage record was answered, by one decision."""
    for inputs, own in ((Stream.CLIENT, Stream.ADMISSION), (Stream.USAGE, Stream.METERING)):
        answered = _decisions(events[own])
        for one in events[inputs]:
            count = answered[str(one.position)]
            assert count == 1, f"I8: {one.position} was decided {count} times"


def _decisions(own: Sequence[Stored]) -> Counter[str]:
    """How many decisions each input caused: neighbouring events of one cause are one."""
    found: Counter[str] = Counter()
    before = None
    for one in own:
        body = json.loads(one.body)
        cause = body["cause"] if body.get("timer") is None else None
        if cause is not None and cause != before:
            found[cause] += 1
        before = cause
    return found


def check_witness(events: Events, load: Sequence[Task], witness: Path) -> None:
    """I4 on disk: no attempt's command began twice, and none that placement did not place."""
    began = Counter(witness.read_text().splitlines())
    twice = {line: count for line, count in began.items() if count > 1}
    assert twice == {}, f"I4: begun more than once: {twice}"
    placed = {
        f"{one.subject.split('.')[3]} {event_of(one)[1]['attempt']}"
        for one in events[Stream.PLACEMENT]
        if one.subject.endswith(".Placed")
    }
    assert began.keys() <= placed
    must = {f"{task.id} 1" for task in load if task.cancel_after_s is None}
    assert must <= began.keys(), "a task succeeded and never began"


def check_tokens(events: Events, load: Sequence[Task]) -> None:
    """Every token that a task reported is counted once, however often it was said."""
    expected = sum(task.tokens for task in load)
    seen, total = set(), 0
    for name, data in map(event_of, events[Stream.USAGE]):
        if name == "TokensUsed" and data["record_id"] not in seen:
            seen.add(data["record_id"])
            total += sum(data["classes"].values())
    assert total == expected


def check_no_other_death(stack: RunningStack, kills: Mapping[str, int]) -> None:
    """Nothing died but what was killed."""
    restarts = {one["name"]: one["restarts"] for one in stack.state()["processes"]}
    expected = {name: kills.get(name, 0) for name in restarts}
    assert restarts == expected, f"restarts {restarts}, of which killed {expected}"


async def check_folds(stack: RunningStack, events: Events) -> None:
    """I3: every replica's state is the fold of its stream from the first event on."""
    for name in DECIDERS:
        folded = await asyncio.to_thread(fold_from_zero, name, events)
        expected = (folded.sequence, state_digest(_decider(name).state_type, folded.state))

        async def agree(name: str = name, expected: tuple[int, str] = expected) -> bool:
            return await _statuses(stack, name) == {expected}

        await eventually(f"both replicas of {name} are at {expected}", agree, 30)


def fold_from_zero(name: str, events: Events) -> Folded[Any]:
    """Fold a service's stream; raises IntegrityError where its chain is broken."""
    decider = _decider(name)
    folded = unfolded(decider)
    for one in events[decider.stream]:
        folded, _ = fold_one(decider, folded, one)
    return folded


def _decider(name: str) -> AnyDecider:
    found: AnyDecider = importlib.import_module(f"orca_{name}.decider").DECIDER
    return found


async def check_active_answers(stack: RunningStack) -> None:
    """Whoever asks for a status hears the active replica, though the standby answers too."""
    async with await Connection.open(stack.nats_url, "chaos") as connection:
        for name in DECIDERS:
            status = await connection.ask(Status, name, "status")
            assert status.active, f"{name}: {status.reason}"


async def verify_by_replay(stack: RunningStack) -> None:
    """``replay --verify`` of every service finds what runs equal to the fold from zero."""
    for name in DECIDERS:
        data_dir = str(stack.home / "services" / name)
        env = {"ORCA_NATS_URL": stack.nats_url, "ORCA_DATA_DIR": data_dir}
        command = (sys.executable, "-W", "ignore", "-m", f"orca_{name}", "replay", "--verify")
        process = await asyncio.create_subprocess_exec(
            *command, env=os.environ | env, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()


async def _statuses(stack: RunningStack, service: str) -> set[tuple[int, str]]:
    """Sequence and digest as each replica tells them."""
    found: list[dict[str, Any]] = []
    async with await Connection.open(stack.nats_url, "chaos") as connection:
        inbox = connection.nc.new_inbox()
        answers = await connection.nc.subscribe(inbox)
        where = ask_subject("_cluster", "chaos", service, "status")
        await connection.nc.publish(where, b"", reply=inbox)
        with contextlib.suppress(TimeoutError):
            for _ in range(REPLICAS):
                found.append(json.loads((await answers.next_msg(timeout=ASK_S)).data)["data"])
    if len(found) < REPLICAS:
        return set()
    return {(one["sequence"], one["digest"]) for one in found}
