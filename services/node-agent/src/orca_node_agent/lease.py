"""The node's lease: files by which agent and watchdog tell each other what outlives them both.

Nothing here needs fsync: after a power loss the boot id is another, and nothing runs any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """An attempt whose manifest says ``onNodeLoss: requeue``. ``key`` is ``<run id>-<attempt>``."""

    key: str
    fence: str


@dataclass(frozen=True, slots=True)
class Bodies:
    """Where the bodies of attempts are: which executor made them, under which node's label."""

    executor: str
    node: str
    docker_host: str


@dataclass(frozen=True, slots=True)
class Lease:
    """Until when attempts may run without a word of placement.

    ``renewed_s`` (boot clock): the last heartbeat before the last answer of placement that was
    acted on. ``closed``: the agent left in order, and will start a watchdog when it needs one.
    """

    boot_id: str
    renewed_s: float
    ttl_s: float
    grace_s: float
    bodies: Bodies
    attempts: tuple[Watched, ...] = ()
    closed: bool = False

    def lapsed(self, now_s: float) -> bool:
        """Whether the lease is over; one from the future is no lease."""
        return not 0 <= now_s - self.renewed_s < self.ttl_s

    @property
    def kill_at_s(self) -> float:
        """When its attempts must be gone, however late the one who stops them is."""
        return self.renewed_s + self.ttl_s + self.grace_s


@dataclass(frozen=True, slots=True)
class Stopped:
    """An attempt that the lapse ended: it is never to run again. ``at_ms`` is Unix time."""

    key: str
    fence: str
    boot_id: str
    kill_at_s: float
    at_ms: int

    def grace_s(self, boot_id: str, now_s: float) -> float:
        """What is left between SIGTERM and SIGKILL."""
        return max(0.0, self.kill_at_s - now_s) if boot_id == self.boot_id else 0.0


class LeaseFiles:
    """The files, in ``<node dir>/watchdog``. Each is written whole; OSError passes through."""

    def __init__(self, node_dir: Path) -> None:
        self.directory = node_dir.absolute() / "watchdog"
        self._stopped = self.directory / "stopped"
        self._lease = self.directory / "lease.json"

    @property
    def log(self) -> Path:
        """What watchdogs said."""
        return self.directory / "log"

    def make(self) -> None:
        """Make the directories."""
        self._stopped.mkdir(parents=True, exist_ok=True, mode=0o700)

    def read(self) -> Lease | None:
        """The lease as last written; None before the first, and where it is damaged."""
        found = _read(self._lease)
        try:
            return _lease_of(found) if found else None
        except (KeyError, TypeError, AttributeError) as error:
            _log.error("not a lease", path=str(self._lease), error=repr(error))
            return None

    def write(self, lease: Lease) -> None:
        """Replace the lease."""
        fresh = self._lease.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(lease)))
        fresh.replace(self._lease)

    def stopped(self) -> dict[str, Stopped]:
        """Every attempt that a lapse ended and that is not yet forgotten, by key."""
        found = {path.name: _read(path) for path in self._stopped.glob("[!.]*")}
        return {key: Stopped(**one) for key, one in found.items() if one}

    def stop(self, stopped: Stopped) -> None:
        """Write down that an attempt is ended; what was written first stands."""
        fresh = self._stopped / f".{stopped.key}.{os.getpid()}"
        fresh.write_text(json.dumps(asdict(stopped)))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, self._stopped / stopped.key)
        fresh.unlink()

    def forget(self, key: str) -> None:
        """Drop what is known of an attempt; again is the same."""
        (self._stopped / key).unlink(missing_ok=True)

    def lock(self) -> int | None:
        """Become the node's one watchdog: the lock's descriptor; None: there is another."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def sign(self, lock: int) -> None:
        """Write down, for people, which process holds the lock."""
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

    def is_locked(self) -> bool:
        """Whether a watchdog is there."""
        descriptor = self.lock()
        if descriptor is None:
            return True
        os.close(descriptor)
        return False


def ended_by(lease: Lease, now_ms: int) -> dict[str, Stopped]:
    """What the lapse of a lease ends, by key."""
    return {
        one.key: Stopped(one.key, one.fence, lease.boot_id, lease.kill_at_s, now_ms)
        for one in lease.attempts
    }


def _read(path: Path) -> dict[str, Any] | None:
    """What was written there; None where nothing is, or no JSON: whole files are never half."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.error("damaged", path=str(path), error=str(error))
        return None
    return found


def _lease_of(found: dict[str, Any]) -> Lease:
    attempts = tuple(Watched(**one) for one in found.pop("attempts"))
    return Lease(bodies=Bodies(**found.pop("bodies")), attempts=attempts, **found)
