"""The embedded stack as a child of the demo: started on free ports, always stopped."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from orca_embedded.__main__ import read_state
from orca_embedded.demo.problem import DemoError

START_S = 60.0
STOP_S = 45.0
POLL_S = 0.05
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DemoStack:
    """A stack in a fresh directory. A context manager: it ends when the block ends, however.

    ``keep``: it is left running and its directory stays.
    """

    def __init__(self, nodes: str, keep: bool) -> None:
        self._nodes, self.keep = nodes, keep
        self.home = Path(tempfile.mkdtemp(prefix="orca-demo-"))
        self.nats_port, self.clickhouse_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def nats_url(self) -> str:
        """Where the broker listens."""
        return f"nats://127.0.0.1:{self.nats_port}"

    @property
    def clickhouse_url(self) -> str:
        """Where ClickHouse listens."""
        return f"http://127.0.0.1:{self.clickhouse_port}"

    def __enter__(self) -> Self:
        command = [
            sys.executable, "-m", "orca_embedded", "up", "--data-dir", str(self.home),
            "--nats-port", str(self.nats_port), "--clickhouse-port", str(self.clickhouse_port),
            "--nodes", self._nodes, "--executor", "process",
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C is for the demo, which stops the stack in order.
                process_group=0,
                preexec_fn=None if self.keep else _die_with_parent,  # noqa: PLW1509 - no threads
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.keep and error is None:
            return
        self._stop()
        if isinstance(error, DemoError):
            error.add_note(f"logs: {self.home / 'logs'}")
        else:
            shutil.rmtree(self.home, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.home / "up.log"

    def wait_until_ready(self) -> None:
        """Wait for the whole stack. Raises DemoError with its own last words."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            state = read_state(self.home)
            if state is not None and state["phase"] == "running":
                return
            if self._process is not None and self._process.poll() is not None:
                raise DemoError(f"the stack did not start: {self._last_words()}")
            time.sleep(POLL_S)
        raise DemoError(f"the stack was not ready in {START_S:.0f} s: {self._last_words()}")

    def doing(self) -> str:
        """What the stack says it is doing."""
        return self._last_words().removeprefix("orca: ")

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "starting"
        return "starting"

    def _stop(self) -> None:
        """SIGTERM, and SIGKILL when it takes too long; another Ctrl-C does not cut it short."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.terminate()
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
