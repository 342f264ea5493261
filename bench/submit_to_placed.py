"""Durable submit to durable Placed: rate and latency with everything on this machine.

Broker, admission, placement and the client are processes of their own; tasks are placed, not
executed. Three ways to submit: one client that awaits each acknowledgement, submit_many, and a
paced client. The ceiling is nats-py publishing the same bytes into the same CLIENT stream in the
same run, pipelined likewise, with nobody reading.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from harness import (
    arguments,
    broker,
    declare_cluster,
    finish,
    manifest,
    percentile,
    services,
)
from orca_client.connection import Connection
from orca_client.submit import _Pipeline, submission, submit, submit_many
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.testing_nats import NatsServer
from orca_schemas.subjects import Stream

PLACED_LIMIT_S = 120.0


class PlacedWatch:
    """When each task's Placed was read from the log, by task id (perf_counter seconds)."""

    def __init__(self) -> None:
        self.at_s: dict[str, float] = {}
        self._grown = asyncio.Event()

    async def run(self, log: JetStreamLog) -> None:
        async for batch in log.read(Stream.PLACEMENT, 0):
            now = time.perf_counter()
            for stored in batch:
                if stored.subject.endswith(".Placed"):
                    self.at_s[stored.subject.split(".", 4)[3]] = now
            self._grown.set()

    async def wait(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PLACED_LIMIT_S):
            while not reached():
                self._grown.clear()
                await self._grown.wait()


async def ceiling(server: NatsServer, count: int) -> float:
    """Publications per second of nats-py into CLIENT, pipelined, before anything reads."""
    async with await Connection.open(server.url, "bench") as connection:
        made = [submission(manifest(index), "bench") for index in range(count)]
        started = time.perf_counter()
        async with _Pipeline(connection) as pipeline:
            futures = [await pipeline.send(where, body) for _, where, body in made]
            await asyncio.gather(*futures)
        return count / (time.perf_counter() - started)


async def pipelined(connection: Connection, watch: PlacedWatch, count: int) -> dict[str, float]:
    """submit_many: from the first publication to the last durable Placed."""
    before = len(watch.at_s)
    started = time.perf_counter()
    await submit_many(connection, [manifest(index) for index in range(count)])
    submitted = time.perf_counter()
    await watch.wait(lambda: len(watch.at_s) >= before + count)
    placed = max(watch.at_s.values())
    return {
        "submitted_per_s": count / (submitted - started),
        "placed_per_s": count / (placed - started),
    }


async def single(connection: Connection, watch: PlacedWatch, count: int) -> dict[str, float]:
    """One client, one after another; the rate is its own, the latency is to Placed."""
    sent: dict[str, float] = {}
    started = time.perf_counter()
    for index in range(count):
        at = time.perf_counter()
        sent[str((await submit(connection, manifest(index))).task_id)] = at
    rate = count / (time.perf_counter() - started)
    await watch.wait(lambda: sent.keys() <= watch.at_s.keys())
    return {"submitted_per_s": rate} | _latencies(sent, watch)


async def paced(
    connection: Connection, watch: PlacedWatch, per_s: float, seconds: float
) -> dict[str, float]:
    """``per_s`` submissions a second, each sent at its time whatever the ones before do.

    Latency counts from when a submission was due, so that a stall is not left out.
    """
    due: dict[str, float] = {}
    started, pending = time.perf_counter() + 0.1, []

    async def send(index: int, at: float) -> None:
        due[str((await submit(connection, manifest(index))).task_id)] = at

    for index in range(int(per_s * seconds)):
        at = started + index / per_s
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        pending.append(asyncio.create_task(send(index, at)))
    await asyncio.gather(*pending)
    await watch.wait(lambda: due.keys() <= watch.at_s.keys())
    return _latencies(due, watch)


def _latencies(sent: dict[str, float], watch: PlacedWatch) -> dict[str, float]:
    found = [(watch.at_s[task] - at) * 1000 for task, at in sent.items()]
    return {
        "p50_ms": percentile(found, 0.50),
        "p99_ms": percentile(found, 0.99),
        "max_ms": max(found),
    }


async def measure(sync: str, options: Any) -> dict[str, Any]:
    """All ways to submit, against one broker with this sync_interval."""
    async with broker(sync) as server:
        highest = await ceiling(server, options.tasks // 2)
    async with broker(sync) as server, services(server, ("admission", "placement")):
        log = await JetStreamLog.connect(server.url, name="bench")
        watch = PlacedWatch()
        watching = asyncio.create_task(watch.run(log))
        async with await Connection.open(server.url, "bench") as connection:
            await declare_cluster(connection, options.nodes)
            await pipelined(connection, watch, 200)  # warm up
            result: dict[str, Any] = {
                "publish_ceiling_per_s": highest,
                "submit_many": await pipelined(connection, watch, options.tasks),
                "single_client": await single(connection, watch, options.single),
                "paced": await paced(connection, watch, options.rate, options.seconds),
            }
        watching.cancel()
        await log.close()
    result["ratio"] = result["submit_many"]["placed_per_s"] / highest
    return result


async def main() -> None:
    """Measure with both sync modes."""
    options = arguments(__doc__ or "", tasks=6000, single=500, nodes=100, rate=200.0, seconds=5.0)
    found = {}
    for name, sync in (("always", "always"), ("default", "2m")):
        found[name] = await measure(sync, options)
        print(f"sync_interval {name}: {json.dumps(found[name], indent=2)}")
    always = found["always"]
    finish(
        options,
        {
            "metric": "submit_to_placed",
            "value": always["submit_many"]["placed_per_s"],
            "unit": "tasks/s, durable, sync always",
            "ceiling": always["publish_ceiling_per_s"],
            "ceiling_is": "nats-py pipelined publish of the same bytes into CLIENT, same sync",
            "ratio": always["ratio"],
            "runs": found,
        },
    )


if __name__ == "__main__":
    asyncio.run(main())
