"""Record histories: ``python -m tests.replay.record stack|aged NAME``.

``stack`` runs the embedded stack with a varied load; ``aged`` takes a small world of the
simulation, which lives long enough to lose nodes and to forget. Own streams go into the packages
of their services, the inputs they answer to tests/replay/histories/NAME. No file is ever
overwritten: what was once recorded must be read for ever.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orca_runtime.histories import digests_on_the_way, write_history
from orca_runtime.log import Stored
from orca_runtime.recorded import recorded
from orca_schemas.events.node import NodeJoined
from orca_schemas.events.placement import Placed
from orca_schemas.events.usage import CpuUsed
from orca_schemas.identifiers import CLUSTER, derived_id
from orca_schemas.subjects import Kind, Role, Stream, subject
from orca_schemas.values import Inventory

from tests.replay.again import decide_again
from tests.replay.shelf import DECIDERS, OWN, history_path, keep_digests

HERE = Path(__file__).parent
AGED_EVERY_SEED = 4
"""Every fourth world goes on until all is forgotten."""
MAX_SEED = 400
MAX_MESSAGES = 1400
SELDOM = {"NodeLost", "NodeReturned", "LeaseExtended", "LeaseUpdated", "AttemptEnded"}
AGED_TROUBLE_S = 25.0
"""A fifth of a world's trouble: enough for every event, and small."""


def main() -> int:
    """Record, keep the digests, say what was kept."""
    parser = argparse.ArgumentParser("tests.replay.record", description=__doc__)
    parser.add_argument("source", choices=("stack", "aged"))
    parser.add_argument("name", help="such as v1")
    options = parser.parse_args()
    if any(history_path(options.name, stream).exists() for stream in Stream):
        parser.error(f"{options.name} exists, and a history is never changed; choose another name")
    found = asyncio.run(record_stack()) if options.source == "stack" else record_aged()
    keep(options.name, found)
    return 0


def keep(name: str, found: Mapping[str, Sequence[Stored]]) -> None:
    """Write every stream that says anything, and what the own streams fold to."""
    for stream, messages in found.items():
        if not messages:
            continue
        data = write_history(messages)
        path = history_path(name, Stream(stream))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{path}: {len(messages)} messages, {len(data)} bytes")
        if stream in OWN:
            keep_digests(name, Stream(stream), digests_on_the_way(DECIDERS[stream], messages))


# -- the simulation ---------------------------------------------------------------------------


def record_aged() -> Mapping[str, Sequence[Stored]]:
    """The whole log of the first small world that came to rest and saw what a stack seldom does."""
    from tests.simulation import world  # noqa: PLC0415 - it needs a fixed hash seed first

    seen: list[world.World] = []

    class Watched(world.World):
        """A world that stays reachable."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            seen.append(self)

    world.World = Watched  # type: ignore[misc]
    world.TROUBLE_S = AGED_TROUBLE_S  # type: ignore[misc]
    for seed in range(0, MAX_SEED, AGED_EVERY_SEED):
        outcome = world.simulate(seed)
        assert outcome.problem is None, outcome.problem
        log = {stream: seen[-1].log.all(stream) for stream in Stream}
        said = {one.subject.rsplit(".", 1)[1] for messages in log.values() for one in messages}
        small = sum(map(len, log.values())) <= MAX_MESSAGES
        # Some worlds play with tighter bounds than the services have: those decide otherwise.
        if (
            small
            and said >= SELDOM
            and not any(decide_again(decider, log).different for decider in DECIDERS.values())
        ):
            print(f"seed {seed}")
            return log
    raise AssertionError(f"no world up to seed {MAX_SEED} saw {sorted(SELDOM)}")


# -- the real stack ---------------------------------------------------------------------------


async def record_stack() -> Mapping[str, Sequence[Stored]]:
    """Run the stack under a load that meets most of what can happen, and take its whole log."""
    sys.path.insert(0, str(HERE.parent / "e2e"))
    import stack_kit as kit  # noqa: PLC0415 - it is no package

    with tempfile.TemporaryDirectory(prefix="orca-record-") as folder:
        home = Path(folder)
        with kit.running_stack(home, "node-1=A100:2") as stack:
            await _load(stack, kit)
            return await stack.events()


async def _load(stack: Any, kit: Any) -> None:
    from orca_client.connection import Connection  # noqa: PLC0415

    async with (
        await Connection.open(stack.nats_url, "alice") as alice,
        await Connection.open(stack.nats_url, "bob") as bob,
    ):
        limits = {"tasks": 4, "tokens": 200_000, "gpu_milli": 2000, "cpu_milli": None}
        await kit.make_namespace(alice, "team-alpha", limits)
        await kit.set_prices(alice, PRICES)
        tasks = [await _submit(alice, document) for document in _documents(kit)]
        await _poison(alice)
        await _small_node(alice)
        await _cancels(alice, bob, tasks[-1])
        await kit.make_namespace(alice, "team-alpha", {"tasks": 3, "tokens": 150_000})
        await kit.set_prices(alice, {"cpu": 50_000})
        for task in tasks:
            await kit.ended(alice, task, 120.0)
        await _old_usage(alice, await stack.events(Stream.PLACEMENT))
        await _settled(stack, kit)


PRICES = {
    "gpu:A100": 3_000_000,
    "cpu": 40_000,
    "tokens:llama-3-8b:input_uncached": 150_000,
    "tokens:llama-3-8b:*": 600_000,
}


def _documents(kit: Any) -> list[dict[str, Any]]:
    python = sys.executable
    report = kit.REPORT_TOKENS + (
        "for n in range(4):\n"
        "    report(f'r{n}', 'llama-3-8b', {'prompt_tokens': 1000 + n, 'completion_tokens': 90,"
        " 'total_tokens': 1090 + n})\n"
    )
    gpu = {"type": "A100", "count": 1, "memoryLimit": "10Gi", "computePercent": 25,
           "sharing": "shared"}  # fmt: skip
    small = {"cpu": "100m", "memory": "64Mi"}

    def of(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
        document: dict[str, Any] = kit.manifest(name, "team-alpha", command, **spec)
        return document

    short = [python, "-c", "import time; time.sleep(0.4)"]
    plain = [of(f"plain-{n}", short) for n in range(5)]
    fails = [of("fails", [python, "-c", "raise SystemExit(3)"], retries={"backoffLimit": 1})]
    tokens = [
        of(f"tokens-{n}", [python, "-c", report], taskType="inference",
           resources=small | {"tokenQuota": 20_000})
        for n in range(3)
    ]  # fmt: skip
    greedy = [
        of("greedy", [python, "-c", report], taskType="inference",
           resources=small | {"tokenQuota": 2_000})
    ]  # fmt: skip
    gpus = [of(f"gpu-{n}", short, resources=small | {"gpu": gpu}) for n in range(3)]
    never = [
        of("too-many-tokens", short, resources=small | {"tokenQuota": 10**9}),
        kit.manifest("nowhere", "unknown", short),
    ]
    long = [of("long", [python, "-c", "import time; time.sleep(60)"])]
    return [*plain, *fails, *tokens, *greedy, *gpus, *never, *long]


async def _submit(connection: Any, document: dict[str, Any]) -> uuid.UUID:
    from orca_client.submit import submit  # noqa: PLC0415

    made = await submit(connection, document)
    return made.task_id


async def _cancels(alice: Any, bob: Any, task: uuid.UUID) -> None:
    """A stranger's cancel is refused, the owner's is not, a cancel of nothing finds nothing."""
    from orca_client.submit import cancel  # noqa: PLC0415

    await cancel(bob, "team-alpha", task, "not mine")
    await cancel(alice, "team-alpha", uuid.uuid4(), "nothing")
    await asyncio.sleep(3)
    await cancel(alice, "team-alpha", task, "no longer wanted")


async def _poison(connection: Any) -> None:
    """What is no event, in streams that every decider reads."""
    task = uuid.uuid4()
    for role, party, event in (
        ("client", "alice", "TaskSubmitted"),
        ("node", "node-1", "TaskStarted"),
        ("probe", "node-1", "TokensUsed"),
    ):
        subject = f"orca.team-alpha.task.{task}.{role}.{party}.{event}"
        await connection.nc.request(subject, b'{"not": "an event"}', timeout=5)
    price = f"orca._cluster.price.{uuid.uuid4()}.admin.root.PriceSet"
    await connection.nc.request(price, b"{", timeout=5)


async def _small_node(connection: Any) -> None:
    """A node too small for any task joins, and joins again with more."""
    from orca_client.submit import body_of  # noqa: PLC0415

    for cpu_milli in (1, 2):
        inventory = Inventory(
            gpus=(), cpu_milli=cpu_milli, memory_mib=1, executor="process", agent_version="1"
        )
        data = NodeJoined(boot_id=uuid.uuid4(), inventory=inventory)
        where = subject(CLUSTER, Kind.NODE, "node-9", Role.NODE, "node-9", "NodeJoined")
        await connection.publish(where, body_of(data))


async def _old_usage(connection: Any, found: Mapping[str, Sequence[Stored]]) -> None:
    """A record of two months ago, of a run of today: nobody believes it."""
    from orca_client.submit import body_of  # noqa: PLC0415

    placed = next(one for one in found[Stream.PLACEMENT] if one.subject.endswith(".Placed"))
    event = recorded(placed)
    assert isinstance(event.data, Placed)
    then_ms = placed.time_ms - 60 * 86_400_000
    data = CpuUsed(
        record_id=derived_id(then_ms, "old"), run_id=event.data.run_id, attempt=1,
        fence=str(placed.position), epoch=9, number=1, cpu_milli=100, from_ms=then_ms,
        duration_ms=1000,
    )  # fmt: skip
    about, node = event.subject, event.data.node
    where = subject(about.namespace, Kind.TASK, about.id, Role.PROBE, node, "CpuUsed")
    await connection.publish(where, body_of(data))


async def _settled(stack: Any, kit: Any) -> None:
    """Wait until nothing has been said for three seconds."""
    last: list[int] = []

    async def still() -> bool:
        nonlocal last
        before, found = last, await stack.events()
        last = [len(messages) for messages in found.values()]
        await asyncio.sleep(3)
        return before == last

    await kit.eventually("the log is still", still, 60.0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of hash maps is part of a simulated world.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.replay.record", *sys.argv[1:]])
    sys.exit(main())
