"""The node agent's settings. Every variable begins with ORCA_."""

from __future__ import annotations

import os
import re
import socket
from enum import StrEnum
from pathlib import Path

from orca_runtime.settings import ServiceSettings
from orca_schemas.identifiers import Label
from orca_schemas.limits import LEASE_TTL_MS
from pydantic import Field

from orca_node_agent.docker_engine import DEFAULT_DOCKER_HOST
from orca_node_agent.docker_spec import NetworkMode


class ExecutorChoice(StrEnum):
    """What makes the bodies of attempts."""

    PROCESS = "process"
    DOCKER = "docker"


def host_label() -> str:
    """The host's name as a DNS label."""
    name = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().split(".")[0].lower())
    return name[:63].strip("-") or "node"


class Settings(ServiceSettings):
    """What a node needs to know beside the broker."""

    node: Label = Field(default_factory=host_label, description="The node's name in the cluster")
    executor: ExecutorChoice = Field(
        ExecutorChoice.PROCESS, description="docker, or process (development: isolates nothing)"
    )
    simulated_gpus: str = Field(
        "", description="GPUs to pretend, such as A100:4,H100:2; empty: the real ones, by NVML"
    )
    usage_port: int = Field(
        0, ge=0, le=65535, description="Port of the usage endpoint; 0 chooses one and keeps it"
    )
    cpu_milli: int | None = Field(
        None, ge=1, description="CPU offered to tasks, 1000 a core; none: all of the host"
    )
    memory_mib: int | None = Field(
        None, ge=1, description="Memory offered to tasks; none: all of the host"
    )
    spool_max_rows: int = Field(
        100_000, ge=100, description="Messages kept while the broker is away, then no new work"
    )
    spool_max_mib: int = Field(256, ge=1, description="Likewise, in MiB")
    stop_tasks_on_exit: bool = Field(
        False, description="End the tasks with the agent instead of leaving them to the next"
    )
    lease_ttl_ms: int = Field(
        LEASE_TTL_MS,
        ge=6_000,
        le=LEASE_TTL_MS,
        description="Tasks of onNodeLoss: requeue are stopped so long after placement last answered"
        "; never longer than placement waits",
    )
    docker_host: str = Field(DEFAULT_DOCKER_HOST, description="Where the Docker Engine listens")
    docker_network: NetworkMode = Field(
        NetworkMode.HOST, description="none, bridge or host; only host reaches the usage endpoint"
    )
    docker_pull: bool = Field(False, description="Whether missing images are pulled")
    task_path: str = Field(
        default_factory=lambda: os.environ.get("PATH", os.defpath),
        description="PATH of tasks of the process executor; default: the agent's own",
    )

    @property
    def node_dir(self) -> Path:
        """Where this node keeps its spool and its attempts."""
        return self.data_dir / "nodes" / self.node
