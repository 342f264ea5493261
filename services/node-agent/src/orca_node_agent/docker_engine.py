"""One connection to a Docker Engine: every call has a deadline, and one error means "no answer"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Any

import aiodocker
import aiohttp

from orca_node_agent.executor import ExecutorUnavailableError

DEFAULT_DOCKER_HOST = "unix:///var/run/docker.sock"
CALL_TIMEOUT_S = 10.0
# Long, since a start that was given up may still happen: under 1 s, but for a busy disk or GPU.
START_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 5.0
NOT_FOUND = 404
CONFLICT = 409
REFUSALS = range(400, 500)


class Engine:
    """The engine at ``docker_host``; connects at the first call, and again after each loss."""

    def __init__(self, docker_host: str = DEFAULT_DOCKER_HOST) -> None:
        self.docker_host = docker_host
        self._docker: aiodocker.Docker | None = None

    @asynccontextmanager
    async def call(
        self, doing: str, refusals: Container[int] = (), timeout_s: float = CALL_TIMEOUT_S
    ) -> AsyncIterator[aiodocker.Docker]:
        """The client, for one call named ``doing`` of at most ``timeout_s``.

        An answer whose HTTP status is in ``refusals`` passes as aiodocker.DockerError; any other
        failure, no answer and a late one raise ExecutorUnavailableError.
        """
        docker = self._client()
        try:
            async with asyncio.timeout(timeout_s):
                yield docker
        except aiodocker.DockerError as error:
            if error.status in refusals:
                raise
            raise self._unavailable(docker, doing, error) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unavailable(docker, doing, error) from error

    async def inspect(self, name: str) -> dict[str, Any] | None:
        """The engine's record of a container, or None. Raises ExecutorUnavailableError."""
        try:
            async with self.call(f"inspect {name}", refusals=(NOT_FOUND,)) as docker:
                return await docker.containers.container(name).show()
        except aiodocker.DockerError:
            return None

    async def close(self) -> None:
        """Close the connections."""
        docker, self._docker = self._docker, None
        if docker is not None:
            await docker.close()

    def _client(self) -> aiodocker.Docker:
        if self._docker is None:
            # The deadline of each call is set in `call`; log streams must have none.
            timeout = aiohttp.ClientTimeout(connect=CONNECT_TIMEOUT_S)
            self._docker = aiodocker.Docker(url=self.docker_host, timeout=timeout)
        return self._docker

    def _unavailable(
        self, docker: aiodocker.Docker, doing: str, error: Exception
    ) -> ExecutorUnavailableError:
        docker.api_version = "auto"  # the engine that comes back may be another version
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return ExecutorUnavailableError(f"{doing}: Docker Engine at {self.docker_host}: {why}")
