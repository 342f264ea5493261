"""Settings of the embedded stack: ports, places, nodes. Environment variables begin with ORCA_."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Literal

from orca_schemas.gpu_types import MAX_GPUS_PER_NODE, MEMORY_MIB_BY_TYPE
from orca_schemas.patterns import LABEL as LABEL_PATTERN
from orca_schemas.patterns import LABEL_REMEDY
from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

GIB = 2**30


class ExecutorName(StrEnum):
    """What runs a task's command."""

    PROCESS = "process"
    DOCKER = "docker"


def check_node(text: str) -> str:
    """Check ``node-1`` or ``node-1=A100:4,H100:2``; returns the name. Raises ValueError."""
    name, _, gpus = text.strip().partition("=")
    if re.fullmatch(LABEL_PATTERN, name.strip()) is None:
        raise ValueError(f"{name!r} is no node name: {LABEL_REMEDY}")
    for part in gpus.split(",") if gpus.strip() else ():
        type_, _, count = part.strip().partition(":")
        if type_ not in MEMORY_MIB_BY_TYPE:
            raise ValueError(f"no GPU type {type_!r}; use {', '.join(MEMORY_MIB_BY_TYPE)}")
        if not (count.isdecimal() and 1 <= int(count) <= MAX_GPUS_PER_NODE):
            raise ValueError(f"{part.strip()!r}: write TYPE:COUNT, 1 to {MAX_GPUS_PER_NODE}")
    return name.strip()


class StackSettings(BaseSettings):
    """What ``orca up`` needs to know."""

    model_config = SettingsConfigDict(env_prefix="ORCA_", frozen=True, extra="ignore")

    data_dir: Path = Field(
        Path("~/.orca"), description="Where the log, the tables, snapshots and spools are kept"
    )
    nats_port: int = Field(4222, ge=1, le=65535, description="Port of the broker, on 127.0.0.1")
    clickhouse_port: int = Field(
        8123, ge=1, le=65535, description="Port of ClickHouse over HTTP, on 127.0.0.1"
    )
    metrics_port: int = Field(
        0, ge=0, le=65000, description="First Prometheus port; each service takes the next; 0: none"
    )
    sync_interval: Literal["always", "default"] = Field(
        "always", description="When the broker syncs to disk: always, or every two minutes"
    )
    max_store_bytes: int = Field(
        8 * GIB, ge=64 * 2**20, description="Room for the log on disk, in bytes"
    )
    executor: ExecutorName = Field(
        ExecutorName.PROCESS, description="What runs tasks: process (development) or docker"
    )
    docker_host: str = Field(
        "unix:///var/run/docker.sock",
        validation_alias=AliasChoices("ORCA_DOCKER_HOST", "DOCKER_HOST"),
        description="Where the Docker Engine listens; DOCKER_HOST is read too",
    )
    nodes: str = Field(
        "node-1",
        description="Nodes to run here, such as node-1=A100:4;node-2=H100:2 (simulated GPUs)",
    )
    standby: bool = Field(False, description="Run a hot standby of every decider")
    auth: bool = Field(
        False,
        description="Users and passwords at the broker; off: open, for a single user on loopback",
    )
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    otlp_endpoint: str | None = Field(None, description="OTLP/HTTP endpoint for traces; none: off")

    @field_validator("nodes")
    @classmethod
    def _nodes_can_be(cls, nodes: str) -> str:
        names = [check_node(part) for part in nodes.split(";") if part.strip()]
        if len(set(names)) != len(names):
            raise ValueError("name each node once")
        return nodes

    def home(self) -> Path:
        """The data directory, absolute."""
        return self.data_dir.expanduser().absolute()

    def node_gpus(self) -> dict[str, str]:
        """Each node's simulated GPUs, such as ``{"node-1": "A100:4"}``; empty: what NVML finds."""
        pairs = (node.strip().partition("=") for node in self.nodes.split(";") if node.strip())
        return {name.strip(): gpus.strip() for name, _, gpus in pairs}

    def nats_url(self) -> str:
        """Where clients reach the broker."""
        return f"nats://127.0.0.1:{self.nats_port}"

    def clickhouse_url(self) -> str:
        """Where clients reach ClickHouse."""
        return f"http://127.0.0.1:{self.clickhouse_port}"
