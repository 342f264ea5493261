"""The log: append, read, fold, replay, snapshots, many subjects; beside nats-py at its best.

Own events are the real deciders' (see history.py), at their true sizes. Every ceiling is measured
in the same run, in turns with what it is compared to, on the same broker (see plain.py):

* append: a raw publication, or a raw atomic batch, under the same expectation, acknowledged;
* read and replay: the fastest pull loop of nats-py that loses nothing, without decoding.

Replay and the start from a snapshot are those of a real admission process, from its start to
``orca_ready``; its peak memory is the kernel's (VmHWM).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
from harness import arguments, finish, percentile
from history import ADMISSION, History
from nats.aio.client import Client
from orca_runtime import streams
from orca_runtime.fold import Folded, fold_one, unfolded
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Outgoing, Stored
from orca_runtime.testing_nats import NatsServer
from orca_schemas.subjects import Stream
from plain import publish_batch, publish_one, pull_all

STORE_BYTES = 16 * 2**30
"""Room for a million own events in ADMISSION's share; only counted, not taken."""
SYNC_MODES = {"always": "always", "default": "2m"}
GROUPS = (10, 100, 500)
TURNS = 5
READY_LIMIT_S = 900.0
SUBJECT_BODY = b"x" * 300

Writer = Callable[[int, Sequence[Outgoing]], Awaitable[int]]


@contextlib.asynccontextmanager
async def broker(sync: str) -> AsyncIterator[NatsServer]:
    """A nats-server of our own with Orca's streams, with room for large histories."""
    with tempfile.TemporaryDirectory(prefix="orca-bench-") as folder:
        store = 2 * STORE_BYTES
        server = NatsServer(Path(folder) / "nats", sync=sync, max_file_store_bytes=store)
        server.start()
        try:
            nc = await nats.connect(server.url)
            await streams.apply(nc, STORE_BYTES)
            await nc.close()
            yield server
        finally:
            server.stop()


# -- append -----------------------------------------------------------------------------------


def own_events(count: int) -> list[Stored]:
    """Admission's first ``count`` events of a real life."""
    epochs = dict.fromkeys(Stream, 1_700_000_000_000_000_000)
    found: list[Stored] = []
    for written in History(epochs).rounds_until(Stream.ADMISSION, count):
        found += written[Stream.ADMISSION]
    return found[:count]


def as_new(events: Sequence[Stored], role: str) -> list[Outgoing]:
    """The same bytes to append again, with new ids, as ``role`` would say them."""
    return [
        Outgoing(one.subject.replace(".admission.", f".{role}."), one.body, str(uuid4()))
        for one in events
    ]


async def append_in_turns(
    server: NatsServer, events: Sequence[Stored], size: int, count: int
) -> dict[str, float]:
    """Append ``count`` events in groups of ``size``, ours and nats-py's in turns."""
    log = await JetStreamLog.connect(server.url, name="bench")
    nc = await nats.connect(server.url)

    async def ours(end: int, messages: Sequence[Outgoing]) -> int:
        return await log.append(Stream.ADMISSION, end, messages)

    async def raw(end: int, messages: Sequence[Outgoing]) -> int:
        if len(messages) == 1:
            return await publish_one(nc, end, messages[0])
        return await publish_batch(nc, end, messages)

    writers: dict[str, tuple[Writer, str, str]] = {
        "ours": (ours, Stream.ADMISSION, "admission"),
        "raw": (raw, Stream.PLACEMENT, "placement"),
    }
    rates: dict[str, list[float]] = {"ours": [], "raw": []}
    waits: dict[str, list[float]] = {"ours": [], "raw": []}
    for turn in range(TURNS):
        for name, (write, stream, role) in writers.items():
            end = (await log.state(stream)).last_sequence
            share = count // TURNS
            messages = as_new([events[i % len(events)] for i in range(share)], role)
            taken = await _append_all(write, end, messages, size)
            if turn:  # the first warms up
                rates[name].append(share / sum(taken))
                waits[name] += taken
    await log.close()
    await nc.close()
    return _compare(rates["ours"], rates["raw"]) | {
        "p50_ms": percentile(waits["ours"], 0.5) * 1000,
        "p99_ms": percentile(waits["ours"], 0.99) * 1000,
        "ceiling_p50_ms": percentile(waits["raw"], 0.5) * 1000,
    }


async def _append_all(
    write: Writer, end: int, messages: Sequence[Outgoing], size: int
) -> list[float]:
    """Seconds that each append took."""
    taken = []
    for start in range(0, len(messages) - size + 1, size):
        began = time.perf_counter()
        end = await write(end, messages[start : start + size])
        taken.append(time.perf_counter() - began)
    return taken


def _compare(ours: Sequence[float], ceiling: Sequence[float]) -> dict[str, float]:
    """Medians, and the median of the ratios of neighbouring turns."""
    ratios = [a / b for a, b in zip(ours, ceiling, strict=True)]
    return {
        "per_s": statistics.median(ours),
        "ceiling_per_s": statistics.median(ceiling),
        "ratio": statistics.median(ratios),
    }


# -- read and fold ------------------------------------------------------------------------------


async def store(nc: Client, stored: dict[str, list[Stored]], ends: dict[str, int]) -> None:
    """Put a history into the broker, in atomic batches where the stream takes them."""
    for stream, messages in stored.items():
        if streams.BY_NAME[stream].atomic:
            for start in range(0, len(messages), 500):
                part = messages[start : start + 500]
                outgoing = [Outgoing(one.subject, one.body, str(uuid4())) for one in part]
                if len(outgoing) == 1:
                    ends[stream] = await publish_one(nc, ends[stream], outgoing[0])
                else:
                    ends[stream] = await publish_batch(nc, ends[stream], outgoing)
        else:
            js = nc.jetstream(timeout=30, publish_async_max_pending=1000)
            for one in messages:
                await js.publish_async(one.subject, one.body)
            await js.publish_async_completed()
            ends[stream] += len(messages)


async def epochs_of(log: JetStreamLog) -> dict[str, int]:
    """The streams' creation times."""
    return {stream: (await log.state(stream)).epoch for stream in Stream}


async def read_in_turns(server: NatsServer, end: int) -> dict[str, dict[str, float]]:
    """Read ADMISSION whole: ours, ours with the fold, and the plain loop, in turns."""
    log = await JetStreamLog.connect(server.url, name="bench")
    read, folded, plain = [], [], []
    for turn in range(TURNS):
        nc = await nats.connect(server.url)
        plain.append(end / await _timed(pull_all(nc, Stream.ADMISSION, end)))
        await nc.close()
        read.append(end / await _timed(read_to(log, end)))
        folded.append(end / await _timed(fold_to(log, end)))
        if not turn:
            read, folded, plain = [], [], []
    await log.close()
    return {"read": _compare(read, plain), "read_and_fold": _compare(folded, plain)}


async def _timed(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def read_to(log: JetStreamLog, end: int) -> None:
    """Read without looking at what is read."""
    async for batch in log.read(Stream.ADMISSION, 0):
        if batch[-1].sequence >= end:
            return


async def fold_to(log: JetStreamLog, end: int) -> Folded[Any]:
    """Read and fold as a service does when it starts."""
    folded = unfolded(ADMISSION)
    async for batch in log.read(Stream.ADMISSION, 0):
        for one in batch:
            folded, _ = fold_one(ADMISSION, folded, one)
        if folded.sequence >= end:
            break
    return folded


def fold_in_memory(events: Sequence[Stored]) -> float:
    """Events per second of the fold alone: decode, check, evolve, digest."""
    folded = unfolded(ADMISSION)
    began = time.perf_counter()
    for one in events:
        folded, _ = fold_one(ADMISSION, folded, one)
    return len(events) / (time.perf_counter() - began)


# -- a real process -----------------------------------------------------------------------------


async def start_to_ready(server: NatsServer, data_dir: Path) -> dict[str, float]:
    """Start admission; seconds until it is ready, and its peak memory by then."""
    port = free_port()
    env = os.environ | {
        "ORCA_NATS_URL": server.url, "ORCA_DATA_DIR": str(data_dir),
        "ORCA_METRICS_PORT": str(port), "ORCA_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "orca_admission"], env=env)  # noqa: ASYNC220
    try:
        up_s = await _metrics_say(port, "orca_inputs", began)
        ready_s = await _metrics_say(port, 'orca_ready{service="admission"} 1.0', began)
        peak = _memory_mib(process.pid, "VmHWM")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    return {"process_up_s": up_s, "ready_s": ready_s, "peak_mib": peak}


async def _metrics_say(port: int, words: str, began: float) -> float:
    while time.perf_counter() - began < READY_LIMIT_S:
        with contextlib.suppress(OSError):
            page = await asyncio.to_thread(
                lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
            )
            if words in page.decode():
                return time.perf_counter() - began
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {words!r} in {READY_LIMIT_S} s")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _memory_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(field)


def _newest_snapshot(folder: Path) -> dict[str, int]:
    """Its size and the own event it stands at; zeros where the history was too short for one."""
    taken = sorted(folder.glob("*.snapshot"))
    if not taken:
        return {"bytes": 0, "at": 0}
    return {"bytes": taken[-1].stat().st_size, "at": int(taken[-1].stem.rsplit("-", 1)[1])}


async def replay(server: NatsServer, events: int) -> dict[str, Any]:
    """Write a life of ``events`` own events, then read, fold and start on it."""
    log = await JetStreamLog.connect(server.url, name="bench")
    nc = await nats.connect(server.url)
    history = History(await epochs_of(log))
    ends: dict[str, int] = dict.fromkeys(Stream, 0)
    began = time.perf_counter()
    await store(nc, history.drain(), ends)
    for written in history.rounds_until(Stream.ADMISSION, events):
        await store(nc, written, ends)
    made_s = time.perf_counter() - began
    await nc.close()
    await log.close()
    end = history.ends[Stream.ADMISSION]
    found: dict[str, Any] = {"events": end, "made_in_s": made_s}
    found |= await read_in_turns(server, end)
    with tempfile.TemporaryDirectory(prefix="orca-bench-data-") as folder:
        cold = await start_to_ready(server, Path(folder))
        await asyncio.sleep(1)
        warm = [await start_to_ready(server, Path(folder)) for _ in range(3)]
        found["snapshot"] = _newest_snapshot(Path(folder, "snapshots"))
        found["snapshot"]["tail"] = end - found["snapshot"]["at"]
    found["from_zero"] = cold | {"events_per_s": end / (cold["ready_s"] - cold["process_up_s"])}
    found["from_snapshot"] = {key: statistics.median(one[key] for one in warm) for key in warm[0]}
    return found


# -- many subjects ------------------------------------------------------------------------------


async def many_subjects(sync: str, count: int) -> dict[str, float]:
    """The broker's memory and an append's latency with ``count`` distinct subjects in a stream."""
    async with broker(sync) as server:
        log = await JetStreamLog.connect(server.url, name="bench")
        empty = {"rss_mib": _memory_mib(server.pid, "VmRSS")} | await _latency(log)
        end, began = (await log.state(Stream.ADMISSION)).last_sequence, time.perf_counter()
        for start in range(0, count, 500):
            messages = [_subject_message(number) for number in range(start, start + 500)]
            end = await log.append(Stream.ADMISSION, end, messages)
        filled_s = time.perf_counter() - began
        full = {"rss_mib": _memory_mib(server.pid, "VmRSS")} | await _latency(log)
        first_s = await _timed(anext(log.read(Stream.ADMISSION, end - 1)))
        await log.close()
        server.stop()
        restart_s = await _timed(asyncio.to_thread(server.start))
        log = await JetStreamLog.connect(server.url, name="bench")
        state_s = restart_s + await _timed(log.state(Stream.ADMISSION))
        await log.close()
    return {
        "subjects": count, "fill_per_s": count / filled_s, "broker_rss_mib": full["rss_mib"],
        "broker_rss_mib_empty": empty["rss_mib"], "append_p50_ms": full["p50_ms"],
        "append_p99_ms": full["p99_ms"], "append_p50_ms_empty": empty["p50_ms"],
        "reader_begins_ms": first_s * 1000, "broker_restart_s": state_s,
    }  # fmt: skip


def _subject_message(number: int) -> Outgoing:
    id_ = f"{number:08x}-0000-7000-8000-{number:012x}"
    where = f"orca.team-a.task.{id_}.admission.-.QuotaReserved"
    return Outgoing(where, SUBJECT_BODY, str(uuid4()))


async def _latency(log: JetStreamLog) -> dict[str, float]:
    """Single appends, each awaited."""
    end, taken = (await log.state(Stream.ADMISSION)).last_sequence, []
    for number in range(300):
        began = time.perf_counter()
        end = await log.append(Stream.ADMISSION, end, [_subject_message(0xF0000000 + number)])
        taken.append((time.perf_counter() - began) * 1000)
    return {"p50_ms": percentile(taken, 0.5), "p99_ms": percentile(taken, 0.99)}


# -- all of it ------------------------------------------------------------------------------------


async def measure_append(sync: str, events: Sequence[Stored]) -> dict[str, Any]:
    """Single events and groups, with this sync_interval."""
    async with broker(sync) as server:
        found = {"1": await append_in_turns(server, events, 1, 2500)}
        for size in GROUPS:
            count = TURNS * size * (60 if size < 100 else 10)
            found[str(size)] = await append_in_turns(server, events, size, count)
    return found


async def main() -> None:
    """Measure; the reading parts do not depend on the sync mode and run once."""
    options = arguments(__doc__ or "", events=100_000, subjects=200_000)
    load = os.getloadavg()[0]
    events = own_events(3000)
    sizes = [len(one.body) for one in events]
    append = {name: await measure_append(sync, events) for name, sync in SYNC_MODES.items()}
    print(f"append: {json.dumps(append, indent=2)}")
    fold_per_s = statistics.median(fold_in_memory(events) for _ in range(3))
    async with broker("2m") as server:
        replayed = await replay(server, options.events)
    print(f"fold alone: {fold_per_s:.0f} events/s; replay: {json.dumps(replayed, indent=2)}")
    subjects = await many_subjects("always", options.subjects)
    print(f"subjects: {json.dumps(subjects, indent=2)}")
    finish(
        options,
        {
            "metric": "log_append_500",
            "value": append["always"]["500"]["per_s"],
            "unit": "own events/s in groups of 500, durable, sync always",
            "ceiling": append["always"]["500"]["ceiling_per_s"],
            "ceiling_is": "nats-py's raw atomic batch under the same expectation, same run",
            "ratio": append["always"]["500"]["ratio"],
            "load_average": [load, os.getloadavg()[0]],
            "own_event_bytes": statistics.mean(sizes),
            "append": append,
            "fold_per_s": fold_per_s,
            "replay": replayed,
            "subjects": subjects,
        },
    )


if __name__ == "__main__":
    asyncio.run(main())
