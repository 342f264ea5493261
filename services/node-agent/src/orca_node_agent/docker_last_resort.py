"""Ending containers by what was written down about them; see last_resort."""

from __future__ import annotations

from typing import Any

from orca_node_agent.docker_engine import Engine
from orca_node_agent.docker_spec import (
    LABEL_ATTEMPT,
    LABEL_FENCE,
    LABEL_NODE,
    LABEL_RUN,
    container_name,
)
from orca_node_agent.docker_stop import Stopper
from orca_node_agent.lease import Stopped


class DockerBodies:
    """Containers, by name; their labels must say node, run, attempt and fence."""

    def __init__(self, node: str, docker_host: str) -> None:
        self._node = node
        self._engine = Engine(docker_host)
        self._stopper = Stopper(self._engine)

    async def end(self, stopped: Stopped, grace_s: float) -> bool:
        """See LastResort.end."""
        inspected = await self._engine.inspect(container_name(stopped.key))
        if inspected is None or not inspected["State"]["Running"]:
            return False
        if not self._is_of(inspected["Config"]["Labels"], stopped):
            return False
        return await self._stopper.stop(stopped.key, grace_s)

    async def close(self) -> None:
        """See LastResort.close."""
        await self._stopper.close()
        await self._engine.close()

    def _is_of(self, labels: dict[str, Any], stopped: Stopped) -> bool:
        run, _, attempt = stopped.key.rpartition("-")
        wanted = {
            LABEL_NODE: self._node,
            LABEL_RUN: run,
            LABEL_ATTEMPT: attempt,
            LABEL_FENCE: stopped.fence,
        }
        return wanted.items() <= labels.items()
