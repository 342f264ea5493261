"""The data directory and the ports: looked at before anything starts."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import IO

from orca_embedded.problems import EX_UNAVAILABLE, StackProblem
from orca_embedded.settings import StackSettings


def prepare(settings: StackSettings) -> IO[str]:
    """Make the data directory and lock it; returns the open lock. Raises StackProblem."""
    home = settings.home()
    try:
        for part in ("nats", "clickhouse", "logs", "services"):
            (home / part).mkdir(parents=True, exist_ok=True)
        lock = (home / "lock").open("a+")
    except OSError as error:
        raise StackProblem(
            f"data directory {home}: {error.strerror}; choose another with --data-dir"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StackProblem(
            f"data directory {home} is in use by another orca up; stop it with orca down, "
            "or choose another with --data-dir",
            EX_UNAVAILABLE,
        ) from None
    return lock


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


def tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log, on one line."""
    try:
        return " | ".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
