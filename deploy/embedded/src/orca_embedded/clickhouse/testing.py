"""A real server for tests: a process of its own, on a free port, ended by its process id."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_READY = re.compile(r"ready on [^ ]+:(\d+),")
_POLL_S = 0.02
_COMMAND = [sys.executable, "-m", "orca_embedded.clickhouse", "--port", "0", "--data"]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers on ``port`` of 127.0.0.1; ``log`` is the file of its stderr."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """The address for ``curl``, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self, timeout_s: float = 30) -> int:
        """Send SIGTERM and wait; returns the exit status."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """Send SIGKILL and wait, as a crash would."""
        self.process.kill()
        self.process.wait(30)


def start(data: Path, *flags: str, ready_within_s: float = 30) -> RunningServer:
    """Start a server and wait until it is ready; raises RuntimeError with its stderr if not."""
    log = data.with_name(f"{data.name}.stderr")
    with log.open("wb") as stderr:
        process = subprocess.Popen([*_COMMAND, str(data), *flags], stderr=stderr)  # noqa: S603
    deadline = time.monotonic() + ready_within_s
    while time.monotonic() < deadline:
        found = _READY.search(log.read_text())
        if found is not None:
            return RunningServer(process, int(found.group(1)), log)
        if process.poll() is not None:
            break
        time.sleep(_POLL_S)
    process.kill()
    process.wait()
    raise RuntimeError(f"the server did not get ready: {log.read_text()}")


@contextlib.contextmanager
def running(data: Path, *flags: str) -> Iterator[RunningServer]:
    """A server for the length of a ``with`` block."""
    server = start(data, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
