"""What an attempt's directory says: written by the shim, read by whichever agent comes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from orca_node_agent.executor import AttemptObserved, AttemptPhase, AttemptSpec
from orca_node_agent.shim import CLAIMED_BY_STOP

CLAIM_GRACE_S = 10.0
"""A shim that has claimed writes its pid within milliseconds; after this it must have died."""

_STATE, _START_TIME = 0, 19
"""Fields of /proc/<pid>/stat counted after the command name, which may hold anything (proc(5))."""
_ZOMBIE = ("Z", "X")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one of the same number."""

    pid: int
    start_time: str

    @classmethod
    def from_stat(cls, stat: str) -> ProcessId:
        """Read a line of /proc/<pid>/stat."""
        return cls(int(stat.split(" ", 1)[0]), _fields(stat)[_START_TIME])

    def alive(self) -> bool:
        """Whether it still runs: same number, same start, and not merely unburied."""
        try:
            fields = _fields(Path(f"/proc/{self.pid}/stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            return False
        return fields[_START_TIME] == self.start_time and fields[_STATE] not in _ZOMBIE


def _fields(stat: str) -> list[str]:
    return stat.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True)
class Running:
    """The processes of an attempt, as the shim wrote them down. ``started_at_ms`` Unix ms."""

    boot_id: str
    shim: ProcessId
    child: ProcessId
    started_at_ms: int


class AttemptDir:
    """One attempt's directory. Missing files mean: not so far."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def output(self) -> Path:
        """Everything the command wrote to stdout and stderr."""
        return self.path / "output"

    @property
    def work(self) -> Path:
        """Where the command runs, and its HOME."""
        return self.path / "work"

    def prepare(self, spec: AttemptSpec) -> None:
        """Write down who the attempt is; again is the same."""
        self.work.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity = {"run_id": str(spec.run_id), "attempt": spec.attempt, "fence": spec.fence}
        _write_whole(self.path / "spec.json", json.dumps(identity))

    def claim_for_stop(self) -> bool:
        """See to it that a command not yet begun never begins; False if it has begun."""
        try:
            with (self.path / "claim").open("x") as file:
                file.write(f"{CLAIMED_BY_STOP}\n")
        except FileExistsError:
            return self.claimed_by_stop()
        return True

    def claimed_by_stop(self) -> bool:
        """Whether the command was stopped before it began."""
        return _read(self.path / "claim") == CLAIMED_BY_STOP

    def running(self) -> Running | None:
        """The attempt's processes, once the shim has written them down."""
        text = _read(self.path / "pid")
        if text is None:
            return None
        boot_id, shim, child = text.splitlines()
        return Running(
            boot_id,
            ProcessId.from_stat(shim),
            ProcessId.from_stat(child),
            _modified_ms(self.path / "pid"),
        )

    def deadline_s(self) -> float | None:
        """When to kill, on this boot's clock (CLOCK_BOOTTIME); None: no stop was asked."""
        text = _read(self.path / "stop")
        return float(text) if text else None

    def set_deadline(self, deadline_s: float) -> None:
        """Write down when to kill; the first deadline stands."""
        if self.deadline_s() is None:
            _write_whole(self.path / "stop", str(deadline_s))

    def termed(self) -> bool:
        """Whether SIGTERM was sent."""
        return (self.path / "termed").exists()

    def set_termed(self) -> None:
        """Write down that SIGTERM was sent."""
        (self.path / "termed").touch()

    def observed(self, boot_id: str) -> AttemptObserved | None:
        """What is seen of the attempt; None: its command has not begun."""
        running = self.running()  # before the exit file: what ends in between counts as running
        alive = running is not None and running.boot_id == boot_id and _lives(running)
        code = _read(self.path / "exit")
        if running is None and code is None:
            return self._claimed()
        started_at_ms = running.started_at_ms if running else _modified_ms(self.path / "exit")
        if code is not None:
            finished_at_ms = max(started_at_ms, _modified_ms(self.path / "exit"))
            return self._seen(started_at_ms, finished_at_ms, int(code))
        return self._seen(started_at_ms, lost=not alive)

    def _claimed(self) -> AttemptObserved | None:
        """Claimed, and the shim has not yet said more: about to run, or dead."""
        claim = self.path / "claim"
        if not claim.exists() or self.claimed_by_stop():
            return None
        claimed_at_ms = _modified_ms(claim)
        return self._seen(
            claimed_at_ms, lost=time.time() * 1000 > claimed_at_ms + CLAIM_GRACE_S * 1000
        )

    def _seen(
        self,
        started_at_ms: int,
        finished_at_ms: int | None = None,
        exit_code: int | None = None,
        lost: bool = False,
    ) -> AttemptObserved:
        identity = json.loads((self.path / "spec.json").read_text())
        ended = lost or exit_code is not None
        return AttemptObserved(
            key=self.path.name,
            run_id=UUID(identity["run_id"]),
            attempt=identity["attempt"],
            fence=identity["fence"],
            phase=AttemptPhase.EXITED if ended else AttemptPhase.RUNNING,
            started_at_ms=started_at_ms,
            finished_at_ms=finished_at_ms,
            exit_code=exit_code,
            lost=lost,
        )


def _lives(running: Running) -> bool:
    """The shim is the witness; without it a command runs on, but its code will be lost."""
    return running.shim.alive() or running.child.alive()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def _modified_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def _write_whole(path: Path, text: str) -> None:
    """Write so that a reader, or a crash, sees all of it or nothing."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):  # the attempt was removed meanwhile
        fresh.replace(path)
