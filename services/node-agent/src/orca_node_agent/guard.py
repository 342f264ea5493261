"""The agent's side of the lease: renewing it, saying what it covers, keeping a watchdog there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import structlog
from orca_schemas.limits import LEASE_TTL_MS, STOP_GRACE_MS
from orca_schemas.manifest import OnNodeLoss

from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.executor import AttemptObserved, AttemptPhase
from orca_node_agent.lease import Bodies, Lease, LeaseFiles, Stopped, Watched, ended_by
from orca_node_agent.records import AttemptRecord, Phase
from orca_node_agent.spool import SpoolError

MS_PER_S = 1000
SPAWN_RETRY_S = 3.0
"""A watchdog takes its lock within a second of its start."""

_log = structlog.get_logger(__name__)


class Guard:
    """Blocking: called on the spool's own thread. What the disk does not take is a SpoolError.

    Nothing is written before the first renewal of this boot: until then placement has assigned
    nothing to this agent, and what an earlier one left is as that one wrote it.
    """

    def __init__(self, node_dir: Path, bodies: Bodies, ttl_ms: int = LEASE_TTL_MS) -> None:
        self._node_dir = node_dir.absolute()
        self._files = LeaseFiles(node_dir)
        self._files.make()
        self._boot_id = host_boot_id()
        found = self._files.read()
        of_this_boot = found is not None and found.boot_id == self._boot_id
        self._lease = found if of_this_boot else None
        self._terms = (ttl_ms / MS_PER_S, STOP_GRACE_MS / MS_PER_S, bodies)
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._spawned_s = -SPAWN_RETRY_S

    def renew(self, at_s: float, now_ms: int) -> None:
        """Placement answered, and heard the node last at ``at_s`` (boot clock) or later.

        A lease that has lapsed is not mended: what it covered ends, as the watchdog has it.
        """
        lease = self._lease
        if lease is not None and lease.lapsed(boot_clock_s()):
            for one in ended_by(lease, now_ms).values():
                with _spooling():
                    self._files.stop(one)
        ttl_s, grace_s, bodies = self._terms
        attempts = lease.attempts if lease else ()
        self._write(Lease(self._boot_id, at_s, ttl_s, grace_s, bodies, attempts))

    def cover(
        self, records: Mapping[str, AttemptRecord], observed: Mapping[str, AttemptObserved]
    ) -> Mapping[str, Stopped]:
        """Bring the lease up to what is here, keep a watchdog there; what lapses have ended."""
        if self._lease is not None:
            self._name(_covered(self._lease.attempts, records, observed))
        if self._lease is not None and self._lease.attempts:
            self._watched()
        with _spooling():
            return self._files.stopped()

    def admit(self, record: AttemptRecord) -> bool:
        """Whether a body that may be requeued elsewhere may be made now.

        Only under a good lease that names it, and with a watchdog there.
        """
        with _spooling():
            if record.key in self._files.stopped():
                return False
        if self._lease is None:
            return False
        named = Watched(record.key, record.fence)
        self._name((*(one for one in self._lease.attempts if one != named), named))
        # Last, since an agent may be halted anywhere: halted here, the watchdog knows the name.
        return self._watched() and not self._lease.lapsed(boot_clock_s())

    def forget(self, key: str) -> None:
        """The attempt's remains are gone, and placement no longer lists it."""
        with _spooling():
            self._files.forget(key)

    def close(self, records: Mapping[str, AttemptRecord]) -> None:
        """Send the watchdog away if nothing needs it; else it stays, and so does the lease."""
        lease = self._lease
        if lease is None:
            return
        left = tuple(one for one in lease.attempts if not _is_over(records.get(one.key)))
        self._write(replace(lease, attempts=left, closed=not left))
        if left:
            _log.warning("stopped by the watchdog unless an agent comes", ttl_s=lease.ttl_s)

    def _name(self, attempts: Iterable[Watched]) -> None:
        """Write down which attempts the lease covers."""
        assert self._lease is not None
        found = tuple(sorted(attempts, key=lambda one: one.key))
        if found != self._lease.attempts:
            self._write(replace(self._lease, attempts=found))

    def _write(self, lease: Lease) -> None:
        with _spooling():
            self._files.write(lease)
        self._lease = lease

    def _watched(self) -> bool:
        """Whether a watchdog is there; starts one where none is."""
        with _spooling():
            if self._files.is_locked():
                return True
        now_s = boot_clock_s()
        if now_s - self._spawned_s >= SPAWN_RETRY_S:
            self._spawned_s = now_s
            self._spawn()
        return False

    def _spawn(self) -> None:
        """Start a watchdog that outlives this agent: in a session of its own, from no place."""
        if self._watchdog is not None:
            self._watchdog.poll()
        command = [sys.executable, "-P", "-m", "orca_node_agent.watchdog", str(self._node_dir)]
        with _spooling(), self._files.log.open("ab") as log:
            self._watchdog = subprocess.Popen(  # noqa: S603
                command,
                cwd="/",
                env=_without_secrets(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _log.info("watchdog started", pid=self._watchdog.pid)


def _covered(
    before: Iterable[Watched],
    records: Mapping[str, AttemptRecord],
    observed: Mapping[str, AttemptObserved],
) -> list[Watched]:
    """Attempts that may be requeued elsewhere and have not ended.

    One that runs without a record (the spool was lost) stays covered as it was.
    """
    known = [
        Watched(record.key, record.fence)
        for record in records.values()
        if record.assigned.spec.on_node_loss is OnNodeLoss.REQUEUE and not _is_over(record)
    ]
    unknown = [one for one in before if one.key not in records and _runs(observed.get(one.key))]
    return known + unknown


def _is_over(record: AttemptRecord | None) -> bool:
    return record is not None and record.progress.phase is Phase.ENDED


def _runs(seen: AttemptObserved | None) -> bool:
    return seen is not None and seen.phase is AttemptPhase.RUNNING


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("ORCA_")}


@contextmanager
def _spooling() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolError(f"the lease is not written: {error}") from error
