"""The broker's configuration with and without users, on the real broker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from orca_embedded.access import password, settle_log
from orca_embedded.problems import StackProblem
from orca_embedded.programs import nats_binary, programs
from orca_embedded.settings import StackSettings
from orca_runtime import streams

SUBJECT = "orca.team-alpha.account.team-alpha.admin.root.NamespaceSet"


def settings_of(home: Path, *, auth: bool) -> StackSettings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return StackSettings(data_dir=home, nats_port=port, auth=auth, max_store_bytes=2**27)


@contextlib.contextmanager
def broker(settings: StackSettings) -> Iterator[None]:
    """The embedded stack's broker alone, as ``orca up`` would run it."""
    (settings.home() / "nats").mkdir(parents=True, exist_ok=True)
    command = programs(settings)[0].command
    assert command[0] == nats_binary()
    with (settings.home() / "nats.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", settings.nats_port)) == 0:
                    break
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(10)


async def say_and_count(settings: StackSettings) -> tuple[int, str]:
    """Declare the streams, publish one event; how many ADMIN holds then, and its creation time."""
    user = "service" if settings.auth else None
    secret = password(settings, "service") if settings.auth else None
    nc = await nats.connect(settings.nats_url(), user=user, password=secret)
    try:
        await streams.apply(nc, settings.max_store_bytes)
        await nc.request(SUBJECT, b"{}", timeout=5)
        info = await nc.jetstream().stream_info("ADMIN")
        return info.state.messages, str(info.created)
    finally:
        await nc.close()


def test_a_log_is_kept_when_users_come_and_go(tmp_path: Path) -> None:
    """Given a log made by an open broker, with users and without it is the same."""
    seen = []
    for auth in (False, True, False, True):
        settings = settings_of(tmp_path, auth=auth)
        with broker(settings):
            seen.append(asyncio.run(say_and_count(settings)))
    assert [count for count, _ in seen] == [1, 2, 3, 4]
    assert len({created for _, created in seen}) == 1


def test_two_logs_in_one_directory_are_not_chosen_from(tmp_path: Path) -> None:
    """Given a log with and one without users, then it says so instead of hiding one."""
    settings = settings_of(tmp_path, auth=True)
    for account in ("$G", "ORCA"):
        (tmp_path / "nats" / "jetstream" / account / "streams" / "ADMIN").mkdir(parents=True)
    with pytest.raises(StackProblem, match="holds two logs"):
        settle_log(settings)


def test_passwords_are_drawn_once_and_differ(tmp_path: Path) -> None:
    """Given a data directory, then each user keeps its password over restarts."""
    settings = settings_of(tmp_path, auth=True)
    drawn = {user: password(settings, user) for user in ("service", "operator", "client")}
    assert len(set(drawn.values())) == 3
    assert all(len(secret) >= 32 for secret in drawn.values())
    assert {user: password(settings, user) for user in drawn} == drawn
