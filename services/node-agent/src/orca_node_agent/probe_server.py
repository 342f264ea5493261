"""Where the usage endpoint listens: the same port after every restart, as tasks know it."""

from __future__ import annotations

import random
from pathlib import Path

from aiohttp import web

from orca_node_agent.probe import HOST, USAGE_PATH

PORTS = range(17_600, 18_600)
"""Below Linux's ephemeral range (32768 on), so no passing connection takes it over a restart."""


class UsagePortTakenError(Exception):
    """The endpoint's port is in use by something else."""


class ProbeServer:
    """Listens on loopback. ``port`` 0 chooses a free port once and keeps it in ``port_file``."""

    def __init__(self, application: web.Application, port: int, port_file: Path) -> None:
        self._runner = web.AppRunner(application, access_log=None)
        self._setting, self._port_file = port, port_file
        self.port = 0

    @property
    def url(self) -> str:
        """Where tasks send their usage."""
        return f"http://{HOST}:{self.port}{USAGE_PATH}"

    async def start(self, *, may_move: bool = True) -> None:
        """Listen. ``may_move``: no task knows the port, so another may be chosen.

        Raises UsagePortTakenError.
        """
        await self._runner.setup()
        wanted = self._setting or self._kept()
        try:
            if wanted:
                return await self._listen(wanted)
        except UsagePortTakenError:
            if self._setting or not may_move:
                raise
        await self._listen_anywhere()
        self._port_file.write_text(f"{self.port}\n")
        return None

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def _kept(self) -> int:
        return int(self._port_file.read_text()) if self._port_file.exists() else 0

    async def _listen_anywhere(self) -> None:
        # In no order: agents of one host must not wait for each other's ports.
        for port in random.sample(PORTS, len(PORTS)):
            try:
                return await self._listen(port)
            except UsagePortTakenError:
                continue
        raise UsagePortTakenError(f"no free port in {PORTS}; set ORCA_USAGE_PORT")

    async def _listen(self, port: int) -> None:
        try:
            await web.TCPSite(self._runner, HOST, port).start()
        except OSError as error:
            raise UsagePortTakenError(
                f"usage port {port}: {error}; stop what listens there, or, once no task runs, "
                f"set ORCA_USAGE_PORT or remove {self._port_file}"
            ) from error
        self.port = port
