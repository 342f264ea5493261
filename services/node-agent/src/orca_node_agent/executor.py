"""What an executor must do: the one port behind which Docker and plain processes stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class AttemptPhase(StrEnum):
    """Where the body of an attempt is, as the executor sees it."""

    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    """All an executor needs to run one attempt of one run.

    ``key`` is ``<run id>-<attempt>``; it names the container or the attempt directory, so a
    second start of the same attempt finds the first. ``cpu_milli`` 1000 is one core.
    """

    key: str
    run_id: UUID
    task_id: UUID
    namespace: str
    attempt: int
    fence: str
    image: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cpu_milli: int
    memory_mib: int
    gpu_uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttemptObserved:
    """One attempt found on this host; times are Unix milliseconds.

    ``exit_code`` follows the shell: 128 + n for an end by signal n; None while running, or where
    the code was lost with the host (then ``lost`` is true).
    """

    key: str
    run_id: UUID
    attempt: int
    fence: str
    phase: AttemptPhase
    started_at_ms: int
    finished_at_ms: int | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Output of an attempt from byte ``offset`` of its combined output on."""

    offset: int
    data: bytes


class ImageError(Exception):
    """The image or the command of the attempt cannot be started; says which and why."""


class ExecutorUnavailableError(Exception):
    """The engine behind the executor does not answer; nothing is known, so nothing is decided."""


class Executor(Protocol):
    """Makes, watches and ends the bodies of attempts. Every method may be repeated safely."""

    name: str

    async def start(self, spec: AttemptSpec) -> None:
        """Create and start, or find started. Raises ImageError, ExecutorUnavailableError."""
        ...

    async def observe(self) -> Mapping[str, AttemptObserved]:
        """Every attempt of this agent on the host, by key: running or exited, not yet removed.

        Raises ExecutorUnavailableError; an incomplete answer is never returned.
        """
        ...

    async def stop(self, key: str, grace_s: float) -> None:
        """Ask the attempt to end (SIGTERM) and return at once; SIGKILL follows after ``grace_s``.

        A repeat keeps the first deadline. Unknown keys are ignored.
        """
        ...

    async def read_log(self, key: str, offset: int, limit_bytes: int) -> LogChunk:
        """Output (stdout and stderr, as written) from ``offset``; empty data when there is none."""
        ...

    async def remove(self, key: str) -> None:
        """Forget an exited attempt and free what it holds on the host. Unknown keys are ignored."""
        ...

    async def close(self) -> None:
        """Let go of connections; running attempts run on."""
        ...
