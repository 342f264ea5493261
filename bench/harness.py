"""What the benchmarks share: a broker and services on this machine, one JSON line at the end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import nats
from orca_client.connection import Connection
from orca_client.submit import body_of, set_quota
from orca_runtime import streams
from orca_runtime.testing_nats import NatsServer
from orca_schemas.events.admin import NamespaceSet, QuotaSet
from orca_schemas.events.node import NodeJoined
from orca_schemas.subjects import Kind, Role, ask_subject, subject
from orca_schemas.values import Inventory, Period

STORE_BYTES = 4 * 2**30
NAMESPACES = ("team-a", "team-b", "team-c")


def arguments(description: str, **defaults: Any) -> argparse.Namespace:
    """Parse ``--json`` and one option per default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """The machine that measured."""
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def finish(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print the result: for a person, and with ``--json`` as the last line."""
    if options.json:
        print(json.dumps(result | {"machine": machine()}))


@contextlib.asynccontextmanager
async def broker(sync: str) -> AsyncIterator[NatsServer]:
    """A nats-server of our own with Orca's streams; ``sync`` is its sync_interval."""
    with tempfile.TemporaryDirectory(prefix="orca-bench-") as folder:
        server = NatsServer(Path(folder) / "nats", sync=sync)
        server.start()
        try:
            nc = await nats.connect(server.url)
            await streams.apply(nc, STORE_BYTES)
            await nc.close()
            yield server
        finally:
            server.stop()


@contextlib.asynccontextmanager
async def services(server: NatsServer, names: Sequence[str]) -> AsyncIterator[None]:
    """The named services as processes of their own, ready and active."""
    with tempfile.TemporaryDirectory(prefix="orca-bench-data-") as folder:
        env = os.environ | {"ORCA_NATS_URL": server.url, "ORCA_DATA_DIR": folder}
        running = [
            subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", f"orca_{name}"], env=env, stderr=subprocess.DEVNULL
            )
            for name in names
        ]
        try:
            await _ready(server, names)
            yield
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(20)


async def _ready(server: NatsServer, names: Sequence[str]) -> None:
    nc = await nats.connect(server.url)
    deadline = time.monotonic() + 30
    for name in names:
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                raw = await nc.request(ask_subject("_cluster", "bench", name, "status"), timeout=1)
                if json.loads(raw.data)["data"]["active"]:
                    break
            await asyncio.sleep(0.1)
    await nc.close()


async def declare_cluster(connection: Connection, nodes: int) -> None:
    """Three namespaces without limits, and nodes that never fill."""
    for namespace in NAMESPACES:
        where = subject(namespace, Kind.ACCOUNT, namespace, Role.ADMIN, "bench", "NamespaceSet")
        await connection.publish(where, body_of(NamespaceSet()))
        quota = QuotaSet(dimension="cpu_milli", limit=None, period=Period.CONCURRENT)
        await set_quota(connection, namespace, quota)
    inventory = Inventory(
        gpus=(), cpu_milli=10**9, memory_mib=10**9, executor="process", agent_version="bench"
    )
    for index in range(nodes):
        node = f"node-{index}"
        where = subject("_cluster", Kind.NODE, node, Role.NODE, node, "NodeJoined")
        joined = NodeJoined(boot_id=uuid.uuid4(), inventory=inventory)
        await connection.publish(where, body_of(joined))


def manifest(index: int) -> dict[str, Any]:
    """A small CPU task."""
    return {
        "apiVersion": "orca.ai/v1",
        "kind": "AITask",
        "metadata": {"name": f"task-{index}", "namespace": NAMESPACES[index % len(NAMESPACES)]},
        "spec": {
            "taskType": "batch",
            "resources": {"cpu": "100m", "memory": "64Mi"},
            "image": "pytorch-cuda:v2.8",
            "command": ["python", "train.py"],
            "schedulerHints": {"priority": "normal", "queue": "batch", "estimatedDuration": "30m"},
        },
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
