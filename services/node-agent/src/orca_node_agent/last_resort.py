"""Ending a body by what was written down about it, without the agent that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from orca_node_agent.executor import AttemptPhase
from orca_node_agent.lease import Bodies, Stopped
from orca_node_agent.process import ProcessExecutor
from orca_node_agent.process_files import AttemptDir


class LastResort(Protocol):
    """Ends bodies of one kind. Every method may be repeated safely."""

    async def end(self, stopped: Stopped, grace_s: float) -> bool:
        """SIGTERM, SIGKILL after ``grace_s``; whether the body still runs.

        A body that is not exactly the attempt's is left alone. Raises ExecutorUnavailableError.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and deadlines."""
        ...


class ProcessBodies:
    """Processes, by the attempt's directory: pid with start time and boot id."""

    def __init__(self, root: Path, boot_id: str) -> None:
        self._root, self._boot_id = root, boot_id
        self._executor = ProcessExecutor(root)

    async def end(self, stopped: Stopped, grace_s: float) -> bool:
        """See LastResort.end. A command not yet begun never begins: its directory is claimed."""
        directory = AttemptDir(self._root / stopped.key)
        seen = directory.observed(self._boot_id)
        if seen is None:
            directory.path.mkdir(exist_ok=True, mode=0o700)
            return not directory.claim_for_stop()
        if seen.phase is AttemptPhase.EXITED or seen.fence != stopped.fence:
            return False
        await self._executor.stop(stopped.key, grace_s)
        return True

    async def close(self) -> None:
        """See LastResort.close."""
        await self._executor.close()


def last_resort(bodies: Bodies, node_dir: Path, boot_id: str) -> LastResort:
    """What ends bodies of this kind."""
    if bodies.executor == ProcessExecutor.name:
        return ProcessBodies(node_dir / "attempts", boot_id)
    # Only here: a watchdog of processes stays small.
    from orca_node_agent.docker_last_resort import DockerBodies  # noqa: PLC0415

    return DockerBodies(bodies.node, bodies.docker_host)
