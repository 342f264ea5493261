"""``python -m orca_node_agent.watchdog <node dir>``: stops what the node's lease no longer covers.

After a loss placement starts ``onNodeLoss: requeue`` tasks anew elsewhere. That is safe only if
they surely ended here by then, whether or not the agent lives. So this process, apart from the
agent, reads the lease, and when it lapses stops exactly the attempts it names. It decides nothing
else, speaks to no broker, and knows attempts by their files and containers alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import structlog
from orca_runtime.logs import configure

from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.executor import ExecutorUnavailableError
from orca_node_agent.last_resort import LastResort, last_resort
from orca_node_agent.lease import Bodies, Lease, LeaseFiles, Stopped, ended_by

POLL_S = 0.5
"""The margin that placement leaves is ten times this."""
IDLE_S = 150.0
"""Nothing to watch for so long: it ends. Longer than an engine may take over a start given up."""
LOCK_TRIES, LOCK_POLL_S = 5, 0.05
"""The agent looks for a watchdog by taking the lock for a moment."""

_log = structlog.get_logger(__name__)


class Watchdog:
    """Looks at the lease again and again. ``run`` lasts until there is nothing to watch."""

    def __init__(self, node_dir: Path, idle_s: float = IDLE_S) -> None:
        self._node_dir, self._idle_s = node_dir.absolute(), idle_s
        self._files = LeaseFiles(node_dir)
        self._boot_id = host_boot_id()
        self._lease: Lease | None = None
        self._last_resort: tuple[Bodies, LastResort] | None = None
        self._over: set[str] = set()
        self._said: set[str] = set()
        self._busy_s = boot_clock_s()

    async def run(self) -> None:
        """Watch. Whatever goes wrong in a round is tried again in the next: nobody else will."""
        while self._files.directory.exists():
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - not even a bug may free what it guards
                _log.error("tried again", error=repr(error))
            if self._done():
                break
            await asyncio.sleep(POLL_S)
        if self._last_resort is not None:
            await self._last_resort[1].close()

    async def _round(self) -> None:
        lease = self._lease = self._files.read() or self._lease
        if lease is None or lease.boot_id != self._boot_id:
            return
        lapsed = lease.lapsed(boot_clock_s())
        doomed = self._doomed(lease, lapsed)
        self._over &= doomed.keys()
        # While the lease is good the agent sees to it that none of them comes to life again.
        if lapsed or doomed.keys() - self._over:
            await asyncio.gather(*(self._end(lease.bodies, one) for one in doomed.values()))

    def _doomed(self, lease: Lease, lapsed: bool) -> dict[str, Stopped]:
        """Everything that a lapse ended, written down before it is touched."""
        found = self._files.stopped()
        for key, one in ended_by(lease, _now_ms()).items() if lapsed else ():
            if key not in found:
                found[key] = one
                self._write_down(one)
        return {key: one for key, one in found.items() if one.boot_id == self._boot_id}

    def _write_down(self, one: Stopped) -> None:
        try:
            self._files.stop(one)
        except OSError as error:  # a full disk saves nobody
            _log.error("stopped without a record", key=one.key, error=str(error))

    async def _end(self, bodies: Bodies, one: Stopped) -> None:
        grace_s = one.grace_s(self._boot_id, boot_clock_s())
        try:
            runs = await self._resort_to(bodies).end(one, grace_s)
        except (ExecutorUnavailableError, OSError, ValueError) as error:
            _log.error("not known to have ended", key=one.key, error=str(error))
            return
        if not runs:
            self._over.add(one.key)
            return
        self._over.discard(one.key)
        if one.key not in self._said:
            _log.warning("the lease lapsed: stopped", key=one.key, grace_s=round(grace_s, 3))
            self._said.add(one.key)

    def _resort_to(self, bodies: Bodies) -> LastResort:
        if self._last_resort is None or self._last_resort[0] != bodies:
            self._last_resort = bodies, last_resort(bodies, self._node_dir, self._boot_id)
        return self._last_resort[1]

    def _done(self) -> bool:
        now_s = boot_clock_s()
        if self.watches():
            self._busy_s = now_s
            return False
        closed = self._lease is not None and self._lease.closed
        return closed or now_s - self._busy_s >= self._idle_s

    def watches(self) -> bool:
        """Whether the lease, as last read, names attempts not known to be over."""
        lease = self._lease
        if lease is None or lease.boot_id != self._boot_id:
            return False
        return any(one.key not in self._over for one in lease.attempts)

    def missed(self) -> bool:
        """Whether there is something to watch after all, by a look at the lease as it is now."""
        self._lease = self._files.read()
        return self.watches()


def watch(node_dir: Path, idle_s: float = IDLE_S) -> None:
    """Be the node's watchdog until there is nothing to watch; return at once if there is one."""
    files = LeaseFiles(node_dir)
    files.make()
    while (lock := _lock(files)) is not None:
        files.sign(lock)
        watchdog = Watchdog(node_dir, idle_s)
        asyncio.run(watchdog.run())
        os.close(lock)
        # The agent writes an attempt down and then looks for a watchdog; this one lets go and
        # then looks for attempts. One of the two sees the other.
        if not watchdog.missed():
            return


def _lock(files: LeaseFiles) -> int | None:
    for _ in range(LOCK_TRIES):
        lock = files.lock()
        if lock is not None:
            return lock
        time.sleep(LOCK_POLL_S)
    return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    configure("watchdog", "INFO")
    watch(Path(sys.argv[1]))
