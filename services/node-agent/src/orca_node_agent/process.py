"""Attempts as plain processes: for development, tests and the embedded stack.

It isolates nothing: no memory or CPU limit is enforced, GPUs are only named in the environment,
the image is ignored, and a process that starts a session of its own escapes the stop. Use the
Docker executor for anybody's code but your own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import structlog

from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.executor import (
    AttemptObserved,
    AttemptPhase,
    AttemptSpec,
    ExecutorUnavailableError,
    ImageError,
    LogChunk,
)
from orca_node_agent.process_files import AttemptDir, Running
from orca_node_agent.shim import shim_command

START_WAIT_S = 5.0
POLL_S = 0.01

_log = structlog.get_logger(__name__)


class ProcessExecutor:
    """Runs each attempt as one process group under ``root/<key>/``, found again by its files.

    ``path`` is the tasks' PATH. A command runs at most once per attempt, whatever crashes.
    """

    name = "process"

    def __init__(self, root: Path, path: str = os.defpath) -> None:
        self._root, self._path = root.absolute(), path
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._boot_id = host_boot_id()
        self._kills: dict[str, asyncio.Task[None]] = {}
        self._shims: list[subprocess.Popen[bytes]] = []
        self._said_image = False

    async def start(self, spec: AttemptSpec) -> None:
        """Run the command, or find that it was. Raises ImageError, ExecutorUnavailableError."""
        directory = self._directory(spec.key)
        if directory.observed(self._boot_id) is not None or directory.claimed_by_stop():
            return
        self._check_command(spec)
        self._say_image_is_ignored()
        # No await up to the launch: a start that is cancelled has launched, or has done nothing.
        directory.prepare(spec)
        self._launch(directory, spec)
        await self._begun(directory, spec)

    async def observe(self) -> Mapping[str, AttemptObserved]:
        """Every attempt by key. Raises ExecutorUnavailableError."""
        self._bury()
        try:
            return await asyncio.to_thread(self._observe)
        except OSError as error:
            raise ExecutorUnavailableError(f"{self._root}: {error}") from error

    async def stop(self, key: str, grace_s: float) -> None:
        """SIGTERM to the group, SIGKILL after ``grace_s``; the deadline outlives this agent."""
        directory = self._directory(key)
        if not directory.path.exists() or directory.claim_for_stop():
            return
        directory.set_deadline(boot_clock_s() + grace_s)
        running = directory.running()
        if running is not None and not directory.termed():
            self._signal(running, signal.SIGTERM)
            directory.set_termed()
        if key not in self._kills or self._kills[key].done():
            self._kills[key] = asyncio.create_task(self._kill_late(directory))

    async def read_log(self, key: str, offset: int, limit_bytes: int) -> LogChunk:
        """Output from ``offset`` on."""
        try:
            with self._directory(key).output.open("rb") as file:
                file.seek(offset)
                return LogChunk(offset, file.read(limit_bytes))
        except FileNotFoundError:
            return LogChunk(offset, b"")

    async def remove(self, key: str) -> None:
        """Delete an ended attempt's directory, the work in it too. RuntimeError while it runs."""
        directory = self._directory(key)
        seen = directory.observed(self._boot_id)
        if seen is not None and seen.phase is AttemptPhase.RUNNING:
            raise RuntimeError(f"{key} still runs; stop it first")
        self._drop_kill(key)
        await asyncio.to_thread(shutil.rmtree, directory.path, ignore_errors=True)

    async def close(self) -> None:
        """Let go; processes run on, and their deadlines stand on disk."""
        tasks = list(self._kills.values())
        for key in list(self._kills):
            self._drop_kill(key)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._bury()

    def _directory(self, key: str) -> AttemptDir:
        return AttemptDir(self._root / key)

    def _observe(self) -> dict[str, AttemptObserved]:
        directories = (AttemptDir(path) for path in self._root.iterdir())
        seen = (directory.observed(self._boot_id) for directory in directories)
        return {one.key: one for one in seen if one is not None}

    def _check_command(self, spec: AttemptSpec) -> None:
        program = spec.command[0]
        found = shutil.which(program, path=self._path)
        if found is None or not Path(found).is_absolute():
            raise ImageError(
                f"command {program!r}: no such program in PATH={self._path}; "
                "the process executor takes programs from this host, not from the image"
            )

    def _say_image_is_ignored(self) -> None:
        if not self._said_image:
            _log.warning("the process executor ignores images and enforces no limits")
        self._said_image = True

    def _launch(self, directory: AttemptDir, spec: AttemptSpec) -> None:
        try:
            with directory.output.open("ab") as output:
                shim = subprocess.Popen(  # noqa: S603
                    shim_command(str(directory.path), spec.command),
                    cwd=directory.work,
                    env=self._environment(directory, spec),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise ExecutorUnavailableError(f"start {spec.key}: {error}") from error
        self._shims.append(shim)

    def _environment(self, directory: AttemptDir, spec: AttemptSpec) -> dict[str, str]:
        own = {"PATH": self._path, "HOME": str(directory.work), "LANG": "C.UTF-8"}
        # Empty hides every GPU: a task without one must not find one.
        return own | dict(spec.env) | {"CUDA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids)}

    async def _begun(self, directory: AttemptDir, spec: AttemptSpec) -> None:
        for _ in range(int(START_WAIT_S / POLL_S)):
            if directory.running() is not None or directory.claimed_by_stop():
                return
            await asyncio.sleep(POLL_S)
        raise ExecutorUnavailableError(f"start {spec.key}: no sign of life in {START_WAIT_S:.0f} s")

    async def _kill_late(self, directory: AttemptDir) -> None:
        """SIGKILL at the deadline, again until the body is gone (a driver may hold it)."""
        deadline_s = directory.deadline_s()
        while (running := directory.running()) is None or running.child.alive():
            remaining_s = (deadline_s or 0.0) - boot_clock_s()
            await asyncio.sleep(min(max(remaining_s, POLL_S), 1.0))
            if remaining_s <= 0 and running is not None:
                self._signal(running, signal.SIGKILL)
            if not directory.path.exists():
                return

    def _signal(self, running: Running, number: signal.Signals) -> None:
        """Signal the group, but only while its leader is the process that was started here."""
        if running.boot_id == self._boot_id and running.child.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.child.pid, number)

    def _drop_kill(self, key: str) -> None:
        task = self._kills.pop(key, None)
        if task is not None:
            task.cancel()

    def _bury(self) -> None:
        self._shims = [shim for shim in self._shims if shim.poll() is None]
