"""Ending containers: SIGTERM now, SIGKILL at the deadline, whoever has stopped listening."""

from __future__ import annotations

import asyncio
import time

import aiodocker

from orca_node_agent.docker_engine import CONFLICT, NOT_FOUND, Engine
from orca_node_agent.docker_spec import container_name
from orca_node_agent.executor import ExecutorUnavailableError

KILL_RETRY_S = 1.0
GONE_OR_ENDED = (NOT_FOUND, CONFLICT)


class Stopper:
    """Remembers the first deadline of each stop; what it forgets by a restart is asked again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kills: dict[str, asyncio.Task[None]] = {}

    async def stop(self, key: str, grace_s: float) -> bool:
        """Send SIGTERM and see to SIGKILL after ``grace_s``; a repeat changes nothing.

        False when no such container runs. The grace counts from the SIGTERM that arrived.
        Raises ExecutorUnavailableError.
        """
        if key in self._kills:
            return True
        deadline = time.monotonic() + grace_s
        if not await self._signal(key, "SIGTERM"):
            return False
        if key not in self._kills:  # another call may have come first while this one waited
            self._kills[key] = asyncio.create_task(self._kill_at(key, deadline))
        return True

    def forget(self, key: str) -> None:
        """The container is gone: there is nothing left to kill."""
        task = self._kills.pop(key, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Drop all deadlines; the containers run on until they are stopped again."""
        tasks = list(self._kills.values())
        for key in list(self._kills):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _kill_at(self, key: str, deadline: float) -> None:
        """Send SIGKILL from the deadline on until the engine says that it no longer runs."""
        delay_s = max(0.0, deadline - time.monotonic())
        running = True
        while running:
            await asyncio.sleep(delay_s)
            delay_s = KILL_RETRY_S
            running = await self._kill(key)
        self._kills.pop(key, None)

    async def _kill(self, key: str) -> bool:
        try:
            return await self._signal(key, "SIGKILL")
        except ExecutorUnavailableError:
            return True  # not known to be gone: try again

    async def _signal(self, key: str, signal: str) -> bool:
        name = container_name(key)
        try:
            async with self._engine.call(f"send {signal} to {name}", GONE_OR_ENDED) as docker:
                await docker.containers.container(name).kill(signal=signal)
        except aiodocker.DockerError:
            return False
        return True
