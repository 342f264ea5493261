"""One supervised process: started, watched, started again with back-off, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import time
from collections.abc import Callable
from pathlib import Path

from orca_embedded.problems import EX_CONFIG, EX_UNAVAILABLE, StackProblem
from orca_embedded.programs import Program, environment

BACKOFF_FIRST_S = 0.5
BACKOFF_LAST_S = 20.0
STEADY_S = 20.0
"""A process that ran this long was well: its back-off begins anew."""
HOPELESS_EXITS = 5
"""A process that ended so often before it was well will not be well by itself."""
MAX_LOG_BYTES = 20 * 2**20
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Have the kernel end this process when the supervisor is gone, however it went."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """A process that is to run until ``stop``."""

    def __init__(self, program: Program, log: Path, changed: Callable[[], None]) -> None:
        self.program, self.log, self._changed = program, log, changed
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        self.started_at_s = 0.0
        self.last_exit: int | None = None
        self.hopeless = asyncio.Event()
        """Set once a restart helps nobody: a start ends with it, a running stack goes on."""
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        running = self.process is not None and self.process.returncode is None
        return self.process.pid if running and self.process else None

    async def start(self) -> None:
        """Start it once and keep it running from here on."""
        await self._spawn()
        self._task = asyncio.create_task(self._keep())

    async def _spawn(self) -> None:
        """Start the program once. Raises StackProblem where the system refuses."""
        if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        try:
            self.process = await self._execute()
        except OSError as error:
            path = self.program.command[0]
            raise StackProblem(f"{self.program.name}: {path}: {error.strerror}") from None
        self.started_at_s = time.monotonic()
        self._changed()

    async def _execute(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(self.program),
                # Its own group: a Ctrl-C reaches the supervisor, which stops them in order.
                process_group=0,
                preexec_fn=_die_with_parent,
            )

    async def _keep(self) -> None:
        wait_s = BACKOFF_FIRST_S
        while True:
            assert self.process is not None
            self.last_exit = await self.process.wait()
            self._changed()
            if self._stopping:
                return
            if time.monotonic() - self.started_at_s > STEADY_S:
                wait_s = BACKOFF_FIRST_S
            if self.last_exit in (EX_CONFIG, EX_UNAVAILABLE) or self.restarts >= HOPELESS_EXITS - 1:
                self.hopeless.set()
            await asyncio.sleep(wait_s)
            wait_s = min(BACKOFF_LAST_S, wait_s * 2)
            self.restarts += 1
            with contextlib.suppress(StackProblem):  # counts like one that ended at once
                await self._spawn()

    async def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when it takes longer than its ``stop_s``."""
        self._stopping = True
        if self._task is None:
            return
        if self.pid is None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            return
        assert self.process is not None
        self.process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._task), self.program.stop_s)
        except TimeoutError:
            self.process.kill()
            await self._task
