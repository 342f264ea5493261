"""A real ClickHouse for tests: the embedded engine as a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_WAIT_S = 30.0
STOP_WAIT_S = 30.0
POLL_S = 0.02
_READY = re.compile(r"ready on ([0-9.]+):(\d+)")


class ClickHouseServer:
    """One server process with its data in ``place``; ``url`` is what ``connect`` takes."""

    def __init__(self, place: Path) -> None:
        self._data, self._log_path = place / "data", place / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where clients connect, without a database."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server wrote since it was started."""
        return self._log_path.read_text(errors="replace")

    def start(self) -> None:
        """Start, on the same port as before if there was one; raises RuntimeError with its log."""
        command = [
            sys.executable, "-m", "orca_embedded.clickhouse",
            "--port", str(self.port), "--data", str(self._data),
        ]  # fmt: skip
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        deadline = time.monotonic() + START_WAIT_S
        while (ready := _READY.search(self.log)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ClickHouse did not start:\n{self.log}")
            time.sleep(POLL_S)
        self.port = int(ready[2])

    def kill(self) -> None:
        """End it at once, as a crash does (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order (SIGTERM), after STOP_WAIT_S by force."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def running_clickhouse() -> Iterator[ClickHouseServer]:
    """A started server in a temporary directory; stopped and removed after."""
    with tempfile.TemporaryDirectory(prefix="orca-clickhouse-") as temporary:
        server = ClickHouseServer(Path(temporary))
        try:
            server.start()
            yield server
        finally:
            server.stop()
