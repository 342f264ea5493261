"""An active replica that is stopped, outlived and woken up: the fence refuses it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from checks import event_of
from nats.errors import Error as NatsError
from orca_client.connection import Connection
from orca_client.submit import submit
from orca_schemas.errors import OrcaError
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, eventually, manifest, running_stack

from tests.chaos.faults import Chaos
from tests.chaos.verdict import check_folds, check_inputs_answered_once

PAIR = ("admission", "admission-standby")
PAUSE_S = 4.0
TRIES = 8
FENCED = "a rival wrote"
LAPSED = "the lease lapsed"


def said(stack: RunningStack, part: str, words: str) -> int:
    """How often a process's log says it."""
    return (stack.home / "logs" / f"{part}.log").read_text().count(words)


def now_active(stack: RunningStack) -> str | None:
    """Which of the pair said last that it is active."""
    found = []
    for part in PAIR:
        for line in (stack.home / "logs" / f"{part}.log").read_text().splitlines():
            if '"event": "active"' in line:
                found.append((line.split('"timestamp": ')[1], part))
    return max(found)[1] if found else None


async def talk(stack: RunningStack, stop: asyncio.Event) -> None:
    """Submit without pause; nobody knows the namespace, so each is answered by a rejection."""
    async with await Connection.open(stack.nats_url, "alice") as alice:
        document = manifest("unknown", "nobody", ["/bin/true"])
        while not stop.is_set():
            async with asyncio.TaskGroup() as group:
                for _ in range(50):
                    group.create_task(_once(alice, document))


async def _once(alice: Connection, document: dict[str, object]) -> None:
    try:
        await submit(alice, document, uuid.uuid4())
    except (OrcaError, NatsError):
        await asyncio.sleep(0.1)


@pytest.mark.timeout(240)
async def test_a_zombie_is_refused_by_the_fence_and_stands_down(tmp_path: Path) -> None:
    """Given a paused active replica, its standby goes on; woken up, it writes nothing."""
    with running_stack(tmp_path, ORCA_STANDBY="true") as stack:
        stop, chaos = asyncio.Event(), Chaos(stack)
        talking = asyncio.create_task(talk(stack, stop))
        for _ in range(TRIES):
            zombie = now_active(stack)
            assert zombie is not None
            before = said(stack, zombie, FENCED) + said(stack, zombie, LAPSED)
            await chaos.pause(zombie, PAUSE_S)
            assert now_active(stack) != zombie, "the standby did not take over"

            def stood_down(zombie: str = zombie, before: int = before) -> bool:
                return said(stack, zombie, FENCED) + said(stack, zombie, LAPSED) > before

            await eventually(f"{zombie} stands down", stood_down, 15)
            if said(stack, zombie, FENCED):
                break
            await asyncio.sleep(2)
        stop.set()
        await talking
        assert any(said(stack, part, FENCED) for part in PAIR), "no zombie came to the fence"

        async def all_answered() -> bool:
            events = await stack.events(Stream.CLIENT, Stream.ADMISSION)
            rejected = [one for one in events[Stream.ADMISSION] if "TaskRejected" in one.subject]
            return len(rejected) == len(events[Stream.CLIENT])

        await eventually("every submission is answered", all_answered, 60)
        events = await stack.events()
        check_inputs_answered_once(events)
        assert {event_of(one)[0] for one in events[Stream.ADMISSION]} <= {"TaskRejected", "Noted"}
        await check_folds(stack, events)
