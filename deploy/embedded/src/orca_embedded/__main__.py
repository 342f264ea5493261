"""``python -m orca_embedded up|down|status``: what ``orca up`` and its companions run."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orca_embedded.place import in_use, prepare
from orca_embedded.problems import EX_UNAVAILABLE, StackProblem
from orca_embedded.screen import Progress, show_ready, show_status
from orca_embedded.settings import StackSettings
from orca_embedded.stack import STATE_FILE, Stack

DETACH_S = 90.0
DOWN_S = 60.0


def main() -> int:
    """Run a command; returns the exit code (0 fine, 69 unavailable, 78 settings)."""
    arguments = _parser().parse_args()
    try:
        settings = _settings(arguments)
        command = {"up": _up, "down": _down, "status": _status}[arguments.command]
        return command(settings, arguments)
    except StackProblem as problem:
        print(f"orca: {problem}", file=sys.stderr)
        return problem.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orca")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run the embedded stack in the foreground")
    up.add_argument("--detach", action="store_true", help="return once it is ready")
    up.add_argument("--nats-port", type=int)
    up.add_argument("--clickhouse-port", type=int)
    up.add_argument("--metrics-port", type=int)
    up.add_argument("--executor", choices=["process", "docker"])
    up.add_argument("--nodes", help="such as node-1=A100:4;node-2=H100:2")
    up.add_argument("--standby", action="store_true", default=None, help="a standby per decider")
    up.add_argument(
        "--auth", action="store_true", default=None, help="users and passwords at the broker"
    )
    up.add_argument("--sync-interval", choices=["always", "default"])
    down = commands.add_parser("down", help="stop the embedded stack")
    status = commands.add_parser("status", help="say how the embedded stack is")
    status.add_argument("--json", action="store_true")
    for command in (up, down, status):
        command.add_argument("--data-dir", type=Path)
    return parser


def _settings(arguments: argparse.Namespace) -> StackSettings:
    given = {
        name: value
        for name, value in vars(arguments).items()
        if name in StackSettings.model_fields and value is not None
    }
    try:
        return StackSettings(**given)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        name = "--" + str(detail["loc"][0]).replace("_", "-")
        message = detail["msg"].removeprefix("Value error, ")
        raise StackProblem(f"{name}: {detail['input']!r}: {message}") from None


def _up(settings: StackSettings, arguments: argparse.Namespace) -> int:
    if arguments.detach:
        return _detach(settings, arguments)
    return asyncio.run(_foreground(settings))


async def _foreground(settings: StackSettings) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    progress = Progress()

    def say(text: str) -> None:
        if text == "ready":
            progress.done()
            show_ready(settings)
        else:
            progress.step(text)

    await Stack(settings, say).run(stop)
    progress.done()
    return 0


def _detach(settings: StackSettings, arguments: argparse.Namespace) -> int:
    """Start ourselves again in a session of our own, and wait until that is ready."""
    home = settings.home()
    prepare(settings).close()  # what is wrong with the place is said here, and nothing overwritten
    command = [sys.executable, "-m", "orca_embedded", *(a for a in sys.argv[1:] if a != "--detach")]
    log = home / "logs" / "supervisor.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command line again
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + DETACH_S
    while time.monotonic() < deadline:
        state = read_state(home)
        if state and state["pid"] == process.pid and state["phase"] == "running":
            show_ready(settings)
            return 0
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it ended"]
            raise StackProblem(last[0].removeprefix("orca: "), process.returncode or EX_UNAVAILABLE)
        time.sleep(0.1)
    process.terminate()
    raise StackProblem(f"not ready in {DETACH_S:.0f} s; see {log}", EX_UNAVAILABLE)


def read_state(home: Path) -> dict[str, Any] | None:
    """What a running stack wrote of itself; None if none runs on this data directory."""
    if not in_use(home):
        return None
    try:
        state: dict[str, Any] = json.loads((home / STATE_FILE).read_text())
    except (OSError, ValueError):  # between the lock and the first line, or after the last
        return None
    return state


def _down(settings: StackSettings, _: argparse.Namespace) -> int:
    state = read_state(settings.home())
    if state is None:
        print(f"orca: nothing runs on {settings.home()}")
        return 0
    try:
        process = os.pidfd_open(state["pid"])  # this very process, even once its number is reused
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except ProcessLookupError:
        return _stopped()
    ended = select.select([process], [], [], DOWN_S)[0]
    if ended:
        return _stopped()
    raise StackProblem(f"process {state['pid']} did not stop in {DOWN_S:.0f} s", EX_UNAVAILABLE)


def _stopped() -> int:
    print("orca: stopped; state is kept, and running tasks run on for the next orca up")
    return 0


def _status(settings: StackSettings, arguments: argparse.Namespace) -> int:
    state = read_state(settings.home())
    if state is None:
        raise StackProblem(
            f"nothing runs on {settings.home()}; start it with orca up", EX_UNAVAILABLE
        )
    if arguments.json:
        print(json.dumps(state))
    else:
        show_status(state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
