"""The load: tasks that testify on disk each time they begin, sent by users who insist."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from nats.errors import Error as NatsError
from orca_client.connection import Connection
from orca_client.errors import NotSetUpError, NotStoredError
from orca_client.submit import cancel, submit
from orca_schemas.subjects import Stream
from stack_kit import REPORT_TOKENS, RunningStack, make_namespace, manifest, set_prices

NAMESPACES = ("team-alpha", "team-beta", "team-gamma")
LIMITS = {"tokens": 10_000_000, "tasks": 40, "gpu_milli": 2000}
PRICES = {
    "cpu": 40_000, "gpu:A100": 3_000_000,
    "tokens:llama-3-8b:input_uncached": 150_000, "tokens:llama-3-8b:output_text": 600_000,
}  # fmt: skip
TOKENS_PER_TASK = 1149
TESTIFY = 'echo "$ORCA_TASK_ID $ORCA_ATTEMPT" >> {witness}; '
"""One short line, appended: whoever runs a command twice is seen."""
REPORT = """
with open(sys.argv[1], "a") as file:
    file.write(os.environ["ORCA_TASK_ID"] + " " + os.environ["ORCA_ATTEMPT"] + "\\n")
usage = {"prompt_tokens": 1020, "completion_tokens": 129, "total_tokens": 1149}
report("r1", "llama-3-8b", usage)
"""


@dataclass(frozen=True)
class Task:
    """One task of the load. ``cancel_after_s``: how long after its submission it is cancelled."""

    id: uuid.UUID
    namespace: str
    document: dict[str, Any]
    tokens: int = 0
    cancel_after_s: float | None = None
    twice: bool = False
    """Submitted a second time under the same id."""


def tasks(rng: Random, count: int, witness: Path) -> list[Task]:
    """Short CPU tasks, shares of GPUs, token reports, some cancelled, some sent twice."""
    return [_task(rng, index, witness) for index in range(count)]


def _task(rng: Random, index: int, witness: Path) -> Task:
    namespace = NAMESPACES[index % len(NAMESPACES)]
    resources: dict[str, Any] = {"cpu": "50m", "memory": "16Mi"}
    testify = TESTIFY.format(witness=witness)
    sleep_s: float = rng.choice((0, 0, 0, 0.5, 2))
    cancel_after_s, tokens = None, 0
    command = ["/bin/sh", "-c", f"{testify}exec sleep {sleep_s}"]
    if index % 20 == 0:
        tokens = TOKENS_PER_TASK
        resources["tokenQuota"] = 5000
        command = [sys.executable, "-S", "-c", REPORT_TOKENS + REPORT, str(witness)]
    elif index % 20 == 1:
        cancel_after_s = rng.uniform(0, 6)
        command = ["/bin/sh", "-c", f"{testify}exec sleep 300"]
    elif index % 5 == 2:
        resources["gpu"] = {
            "type": "A100", "memoryLimit": "4Gi", "computePercent": 10, "sharing": "shared",
        }  # fmt: skip
    document = manifest(f"task-{index}", namespace, command, resources=resources)
    id_ = uuid.UUID(int=rng.getrandbits(128), version=4)
    return Task(id_, namespace, document, tokens, cancel_after_s, twice=index % 10 == 3)


async def declare(connection: Connection) -> None:
    """Namespaces, limits and prices."""
    for namespace in NAMESPACES:
        await make_namespace(connection, namespace, LIMITS)
    await set_prices(connection, PRICES)


async def send(stack: RunningStack, load: Sequence[Task], seconds: float) -> None:
    """Submit all, spread over ``seconds``; every user insists until the log has it."""
    started = asyncio.get_running_loop().time()
    async with (
        await Connection.open(stack.nats_url, "alice") as connection,
        asyncio.TaskGroup() as users,
    ):
        for index, task in enumerate(load):
            at = started + seconds * index / len(load)
            await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))
            users.create_task(_use(connection, task))


async def _use(connection: Connection, task: Task) -> None:
    await _insist(lambda: submit(connection, task.document, task.id))
    if task.twice:
        await _insist(lambda: submit(connection, task.document, task.id))
    if task.cancel_after_s is not None:
        await asyncio.sleep(task.cancel_after_s)
        await _insist(lambda: cancel(connection, task.namespace, task.id, "changed my mind"))


async def _insist(call: Any) -> None:
    """Until confirmed: an unconfirmed message may be stored, and is then stored twice."""
    while True:
        try:
            await call()
        except (NotStoredError, NotSetUpError, NatsError, OSError):
            await asyncio.sleep(0.5)
        else:
            return


async def say_usage_again(stack: RunningStack, rng: Random, count: int) -> int:
    """Publish usage records that stand in the log once more; returns how many were confirmed."""
    repeated = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            stored = (await stack.events(Stream.USAGE))[Stream.USAGE]
            async with await Connection.open(stack.nats_url, "node-1") as connection:
                for one in rng.sample(stored, min(count, len(stored))):
                    await connection.nc.request(one.subject, one.body, timeout=5)
                    repeated += 1
    return repeated
