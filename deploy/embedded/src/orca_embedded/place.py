"""The data directory and the ports: looked at before anything starts."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

from orca_embedded.problems import EX_UNAVAILABLE, StackProblem
from orca_embedded.settings import ExecutorName, StackSettings

LOCK_FILE = "lock"
LOCK_TRIES = 3
LOCK_RETRY_S = 0.02
ENGINE_S = 2.0


def prepare(settings: StackSettings) -> IO[str]:
    """Make the data directory and lock it; returns the open lock. Raises StackProblem."""
    home = settings.home()
    try:
        for part in ("nats", "clickhouse", "logs", "services"):
            (home / part).mkdir(parents=True, exist_ok=True)
        lock = (home / LOCK_FILE).open("a+")
    except OSError as error:
        raise StackProblem(
            f"data directory {home}: {error.strerror}; choose another with --data-dir"
        ) from None
    if not _take(lock):
        lock.close()
        raise StackProblem(
            f"data directory {home} is in use by another orca up; stop it with orca down, "
            "or choose another with --data-dir",
            EX_UNAVAILABLE,
        )
    return lock


def in_use(home: Path) -> bool:
    """Whether a stack runs on this data directory: a process id alone could be another's by now."""
    try:
        with (home / LOCK_FILE).open("r+") as lock:
            return not _take(lock)
    except OSError:
        return False


def _take(lock: IO[str]) -> bool:
    for _ in range(LOCK_TRIES):  # who only looks whether it is in use holds it for a moment
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_RETRY_S)
        else:
            return True
    return False


def check_ports(settings: StackSettings) -> None:
    """Raise StackProblem if a port is taken."""
    for name, port in (
        ("nats-port", settings.nats_port),
        ("clickhouse-port", settings.clickhouse_port),
    ):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise StackProblem(
                    f"port {port} on 127.0.0.1: {os.strerror(error.errno or 0)}; stop what listens "
                    f"there, or choose another with --{name}",
                    EX_UNAVAILABLE,
                ) from None


def check_engine(settings: StackSettings) -> None:
    """Raise StackProblem if tasks are to be containers and no Docker Engine listens."""
    if settings.executor is not ExecutorName.DOCKER:
        return
    scheme, _, address = settings.docker_host.partition("://")
    try:
        if scheme == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(address)
        else:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), ENGINE_S).close()
    except (OSError, ValueError) as error:
        raise StackProblem(
            f"Docker Engine at {settings.docker_host}: {getattr(error, 'strerror', '') or error}; "
            "start one, set DOCKER_HOST, or choose --executor process",
            EX_UNAVAILABLE,
        ) from None


def tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log, on one line."""
    try:
        return " | ".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
