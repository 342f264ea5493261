"""Start, find and stop a private Docker Engine; stdlib only, so it runs before anything is built.

``engine.py start [--install] [--private] [--dir DIR]`` prints one line on stdout,
``DOCKER_HOST=...``, and starts nothing when an engine already answers at ``DOCKER_HOST``, the
default socket or the private one (with ``--private``, at the private one only).

``engine.py stop [--dir DIR]`` ends the engine that ``start`` made, by its pid, and nothing else:
its containers run on (live restore) and are found again by the next ``start``. What stays mounted
below DIR (``data``, ``exec/netns/default``) must be unmounted before DIR is deleted.
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

DEFAULT_SOCKET = Path("/var/run/docker.sock")
DEFAULT_DIR = Path("/var/lib/orca-docker")
# dockerd and the tools it calls live in sbin, which a bare CI environment may leave out.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin"])
PACKAGES = ("docker.io", "busybox-static")
PING_TIMEOUT_S = 2.0
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.1
LOG_TAIL_BYTES = 2_000


class EngineError(Exception):
    """The engine cannot be had here; says why and what to do."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to a Unix socket; ``path`` is the socket's path."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PING_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PING_TIMEOUT_S)
        self.sock.connect(self._path)


def answers(docker_host: str) -> bool:
    """Whether an engine answers ``GET /_ping`` at ``unix://PATH`` or ``tcp://HOST:PORT``."""
    scheme, _, address = docker_host.partition("://")
    connection: http.client.HTTPConnection
    if scheme == "unix":
        connection = _UnixConnection(address)
    else:
        connection = http.client.HTTPConnection(address, timeout=PING_TIMEOUT_S)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def find_engine(own_socket: Path, private: bool) -> str | None:
    """Address of the first engine that answers: the environment's, the default, the private one."""
    own = f"unix://{own_socket}"
    shared = (os.environ.get("DOCKER_HOST"), f"unix://{DEFAULT_SOCKET}")
    candidates = (own,) if private else (*shared, own)
    return next((host for host in candidates if host and answers(host)), None)


def start(directory: Path, install: bool, private: bool = False) -> str:
    """Address of an engine that answers, started under ``directory`` if there is none.

    Raises EngineError.
    """
    found = find_engine(_socket(directory), private)
    if found:
        return found
    dockerd = _dockerd(install)
    _make_private(directory)
    with (directory / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two starts at once: the second finds the first's engine
        if not answers(f"unix://{_socket(directory)}"):
            process = None if _own_pid(directory) else _spawn(dockerd, directory)
            _wait_until_answers(process, directory)
    return f"unix://{_socket(directory)}"


def stop(directory: Path) -> None:
    """End the engine started under ``directory``; nothing to do if it does not run.

    Raises EngineError if it does not end in time; it is never killed hard, since that could
    leave its store half written.
    """
    pid = _own_pid(directory)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while _own_pid(directory) is not None:
        if time.monotonic() > deadline:
            raise EngineError(f"dockerd (pid {pid}) did not end in {STOP_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def _dockerd(install: bool) -> str:
    found = shutil.which("dockerd", path=SEARCH_PATH)
    if found is None and install:
        _install()
        found = shutil.which("dockerd", path=SEARCH_PATH)
    if found is None:
        raise EngineError(
            "dockerd is not installed; run with --install (as root, Debian), or: "
            f"apt-get install -y --no-install-recommends {' '.join(PACKAGES)}"
        )
    return found


def _install() -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": SEARCH_PATH}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        command = ["apt-get", "-q", *arguments]
        done = subprocess.run(  # noqa: S603 (fixed arguments)
            command, env=env, stdout=sys.stderr, stderr=sys.stderr, check=False
        )
        if done.returncode != 0:
            raise EngineError(f"{' '.join(command)} ended with {done.returncode}")


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Who owns the directory owns the engine's socket, and so the host.
    if directory.stat().st_uid != os.geteuid():
        raise EngineError(f"{directory} belongs to another user; choose another --dir")


def _spawn(dockerd: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start dockerd detached; its output goes to ``engine.log``.

    No bridge and no iptables: the host's network stays as it is, containers use network ``none``
    or ``host``. Live restore lets containers outlive the engine. The storage driver is the
    engine's own choice (overlay2, or vfs where the file system allows no overlay).
    """
    command = [
        dockerd,
        f"--host=unix://{_socket(directory)}",
        f"--data-root={directory / 'data'}",
        f"--exec-root={directory / 'exec'}",
        f"--pidfile={_pidfile(directory)}",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--live-restore",
        "--log-level=warn",
    ]
    _forget_dead(directory)
    with (directory / "engine.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 (fixed arguments)
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PATH": SEARCH_PATH},
        )


def _wait_until_answers(dockerd: subprocess.Popen[bytes] | None, directory: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not answers(f"unix://{_socket(directory)}"):
        ended = dockerd is not None and dockerd.poll() is not None
        if ended or time.monotonic() > deadline:
            what = "dockerd ended" if ended else f"no answer after {READY_TIMEOUT_S:.0f} s"
            raise EngineError(f"{what}; its last words:\n{_log_tail(directory)}")
        time.sleep(POLL_S)


def _log_tail(directory: Path) -> str:
    return (directory / "engine.log").read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def _forget_dead(directory: Path) -> None:
    """Delete pid files of killed processes: dockerd takes a zombie or a reused pid for alive."""
    containerd = directory / "exec/containerd"
    if _own_pid(directory) is None:
        _pidfile(directory).unlink(missing_ok=True)
    if _pid_of(containerd / "containerd.pid", str(containerd / "containerd.toml")) is None:
        (containerd / "containerd.pid").unlink(missing_ok=True)


def _own_pid(directory: Path) -> int | None:
    """Pid of the live dockerd of ``directory``."""
    return _pid_of(_pidfile(directory), f"--pidfile={_pidfile(directory)}")


def _pid_of(pidfile: Path, argument: str) -> int | None:
    """Pid in ``pidfile`` if that process lives and was started with ``argument``."""
    try:
        pid = int(pidfile.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if argument.encode() in arguments else None


def _socket(directory: Path) -> Path:
    return directory / "docker.sock"


def _pidfile(directory: Path) -> Path:
    return directory / "docker.pid"


def main(arguments: list[str]) -> int:
    """Run the command line; 0 on success, 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(description="Start, find and stop a private Docker Engine.")
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="socket, data, log, pid file")
    parser.add_argument("--install", action="store_true", help="apt-get install what is missing")
    parser.add_argument("--private", action="store_true", help="use no other engine")
    options = parser.parse_args(arguments)
    directory = options.dir.resolve()
    try:
        if options.action == "start":
            print(f"DOCKER_HOST={start(directory, options.install, options.private)}")
        else:
            stop(directory)
    except EngineError as error:
        print(f"engine.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
