"""From an attempt to a container and back: pure, no engine needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from orca_node_agent.executor import AttemptObserved, AttemptPhase, AttemptSpec

LABEL_RUN = "orca.run"
LABEL_ATTEMPT = "orca.attempt"
LABEL_FENCE = "orca.fence"
LABEL_NODE = "orca.node"
LABEL_TASK = "orca.task"
LABEL_NAMESPACE = "orca.namespace"
LABEL_BOOT = "orca.boot"
IDENTITY_LABELS = (LABEL_RUN, LABEL_ATTEMPT, LABEL_FENCE)

NANO_CPUS_PER_MILLI = 1_000_000
BYTES_PER_MIB = 1 << 20
LOG_FILES = 2
# What the engine reports when a container's end was not witnessed (its shim died with the host).
EXIT_CODE_UNWITNESSED = 255
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_YEAR = 1


class NetworkMode(StrEnum):
    """How a container reaches the network; ``host`` also reaches the probe on loopback."""

    NONE = "none"
    BRIDGE = "bridge"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """What the operator of a node decides for all containers on it.

    ``gpu_runtime``: hand GPUs to containers by the NVIDIA runtime; False on a simulated backend,
    where there is nothing to hand over. ``pull``: fetch missing images. ``cap_add``: Linux
    capabilities given back; by default a container has none at all. ``log_max_mib``: output kept
    per attempt, the oldest is dropped beyond it.
    """

    node_id: str
    gpu_runtime: bool = False
    network: NetworkMode = NetworkMode.HOST
    pull: bool = False
    pids_limit: int = 4_096
    cap_add: tuple[str, ...] = ()
    log_max_mib: int = 256


def container_name(key: str) -> str:
    """The one name of an attempt's container: it makes a second create a conflict."""
    return f"orca-{key}"


def labels_of(spec: AttemptSpec, node_id: str, boot_id: str) -> dict[str, str]:
    """Who the container belongs to; what a restarted agent knows it by."""
    return {
        LABEL_RUN: str(spec.run_id),
        LABEL_ATTEMPT: str(spec.attempt),
        LABEL_FENCE: spec.fence,
        LABEL_NODE: node_id,
        LABEL_TASK: str(spec.task_id),
        LABEL_NAMESPACE: spec.namespace,
        LABEL_BOOT: boot_id,
    }


def container_config(spec: AttemptSpec, options: DockerOptions, boot_id: str) -> dict[str, Any]:
    """Body of the engine's ``POST /containers/create``."""
    return {
        "Image": spec.image,
        # The manifest's command is the whole argument vector, in every executor.
        "Entrypoint": list(spec.command),
        "Env": [f"{name}={value}" for name, value in spec.env],
        "Labels": labels_of(spec, options.node_id, boot_id),
        "Tty": False,
        "OpenStdin": False,
        "StopSignal": "SIGTERM",
        "HostConfig": _host_config(spec, options),
    }


def _host_config(spec: AttemptSpec, options: DockerOptions) -> dict[str, Any]:
    memory_bytes = spec.memory_mib * BYTES_PER_MIB
    # The engine reads 0 as "unlimited"; the schema allows positive amounts only.
    assert spec.cpu_milli > 0, spec
    assert memory_bytes > 0, spec
    return {
        "NanoCpus": spec.cpu_milli * NANO_CPUS_PER_MILLI,
        "Memory": memory_bytes,
        "MemorySwap": memory_bytes,  # equal to Memory: no swap
        "ShmSize": memory_bytes,  # counted in Memory; the 64 MB default breaks data loaders
        "PidsLimit": options.pids_limit,
        "NetworkMode": options.network.value,
        "CapDrop": ["ALL"],
        "CapAdd": list(options.cap_add),
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "RestartPolicy": {"Name": "no"},  # whether to run again is placement's decision
        # By name, so that an NVIDIA default runtime cannot give GPUs by an image's own variables.
        "Runtime": "runc",
        "LogConfig": _log_config(options),
        "DeviceRequests": _device_requests(spec, options),
    }


def _log_config(options: DockerOptions) -> dict[str, Any]:
    size_mib = max(1, options.log_max_mib // LOG_FILES)
    config = {"max-size": f"{size_mib}m", "max-file": str(LOG_FILES), "compress": "false"}
    # Not json-file, which puts U+FFFD for every byte that is not UTF-8. Engines as old as 20.10
    # lose the newline after a line of more than 16 KiB here.
    return {"Type": "local", "Config": config}


def _device_requests(spec: AttemptSpec, options: DockerOptions) -> list[dict[str, Any]]:
    if not (options.gpu_runtime and spec.gpu_uuids):
        return []
    devices = list(spec.gpu_uuids)
    return [{"Driver": "nvidia", "DeviceIDs": devices, "Capabilities": [["gpu"]]}]


def foreign_labels(spec: AttemptSpec, found: Mapping[str, str]) -> list[str]:
    """Where a container of this attempt's name is not this attempt's; empty when it is."""
    wanted = labels_of(spec, node_id="", boot_id="")
    return [
        f"{name} is {found.get(name)!r}, wanted {wanted[name]!r}"
        for name in IDENTITY_LABELS
        if found.get(name) != wanted[name]
    ]


def observed_of(inspected: Mapping[str, Any], boot_id: str) -> AttemptObserved | None:
    """What ``GET /containers/{id}/json`` says of an attempt; None if it never ran or is going.

    ``lost`` is true for an unwitnessed end in an earlier boot of the host. ``out_of_memory`` is
    true only where the end was one: a container that outlived a killed child did not fail by it.
    """
    state, labels = inspected["State"], inspected["Config"]["Labels"]
    if state["Status"] in {"created", "removing"}:
        return None
    base = AttemptObserved(
        key=inspected["Name"].removeprefix("/").removeprefix("orca-"),
        run_id=UUID(labels[LABEL_RUN]),
        attempt=int(labels[LABEL_ATTEMPT]),
        fence=labels[LABEL_FENCE],
        phase=AttemptPhase.RUNNING,
        started_at_ms=unix_ms(state["StartedAt"]) or 0,
    )
    if state["Status"] not in {"exited", "dead"}:
        return base
    return _exited(base, state, other_boot=labels.get(LABEL_BOOT) != boot_id)


def _exited(base: AttemptObserved, state: Mapping[str, Any], other_boot: bool) -> AttemptObserved:
    code = int(state["ExitCode"])
    finished_at_ms = unix_ms(state["FinishedAt"])
    if finished_at_ms is not None:
        # The engine may note the start of a short life a moment after its end.
        finished_at_ms = max(finished_at_ms, base.started_at_ms)
    lost = finished_at_ms is None or (code == EXIT_CODE_UNWITNESSED and other_boot)
    return AttemptObserved(
        key=base.key,
        run_id=base.run_id,
        attempt=base.attempt,
        fence=base.fence,
        phase=AttemptPhase.EXITED,
        started_at_ms=base.started_at_ms,
        finished_at_ms=finished_at_ms,
        exit_code=None if lost else code,
        out_of_memory=bool(state["OOMKilled"]) and code != 0,
        lost=lost,
    )


def unix_ms(rfc3339: str) -> int | None:
    """Unix milliseconds of an RFC 3339 time with up to nine decimals; None for Go's zero time."""
    moment = datetime.fromisoformat(rfc3339)
    if moment.year == _NEVER_YEAR:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1)
