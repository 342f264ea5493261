"""``python -m orca_embedded.demo``: start a stack, play the story, show the bill, stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from types import FrameType

from orca_client.connection import Connection
from orca_schemas.errors import OrcaError
from rich.console import Console
from rich.status import Status

from orca_embedded.demo import screen
from orca_embedded.demo.bill import Bill, bill
from orca_embedded.demo.checks import checks
from orca_embedded.demo.play import USER, Play, play
from orca_embedded.demo.problem import DemoError
from orca_embedded.demo.stack import DemoStack
from orca_embedded.demo.story import NODES

FAILED, INTERRUPTED = 1, 130
BY_TASK_SQL = "SELECT namespace, name, amount_usd FROM cost_by_task"


class Progress:
    """What happens now, on stderr: lines that stay, and on a terminal a spinner."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._began_s = time.monotonic()
        self._status: Status | None = None

    def say(self, text: str) -> None:
        """Tell a step that was taken."""
        self._console.print(
            f"[dim]{time.monotonic() - self._began_s:5.1f} s[/]  {text}", soft_wrap=True
        )

    def spin(self, text: str) -> None:
        """Show that something goes on."""
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        self._status.update(text)

    def rest(self) -> None:
        """Take the spinner away."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def main() -> int:
    """Run the demo; 0 only when every check holds."""
    parser = argparse.ArgumentParser(prog="python -m orca_embedded.demo")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a screen")
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    given = parser.parse_args()
    # Also where a shell started us with SIGINT ignored, as it does in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_interrupt)
    progress = Progress()
    try:
        return _run(progress, given.json, given.keep)
    except (DemoError, OrcaError) as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        progress.rest()
        print(f"orca demo: {error}{f' ({notes})' if notes else ''}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        progress.rest()
        print("orca demo: interrupted; everything it started is stopped", file=sys.stderr)
        return INTERRUPTED
    finally:
        progress.rest()


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def _run(progress: Progress, as_json: bool, keep: bool) -> int:
    took: dict[str, float] = {}
    began_s = time.monotonic()
    progress.say(f"starting the embedded stack with simulated GPUs: {NODES}")
    progress.spin("starting")
    with DemoStack(NODES, keep) as stack:
        stack.wait_until_ready()
        took["start"] = time.monotonic() - began_s
        progress.say("the stack is ready")
        progress.spin("playing")
        played, billed = asyncio.run(_play(stack, progress))
        took["play"] = time.monotonic() - began_s - took["start"]
        progress.spin("stopping")
    took["in all"] = time.monotonic() - began_s
    progress.say("the stack is left running" if keep else "the stack is stopped")
    progress.rest()
    found = checks(played, billed)
    if as_json:
        print(json.dumps(screen.as_json(played, billed, found, took), indent=2))
    else:
        screen.show(screen.render(played, billed, found, took))
    if keep:
        _say_how_to_use(stack)
    return 0 if all(check.ok for check in found) else FAILED


async def _play(stack: DemoStack, progress: Progress) -> tuple[Play, Bill]:
    connection = await Connection.open(stack.nats_url, USER)
    async with connection:
        played = await play(connection, progress.say)
        progress.say("comparing the bill with ClickHouse")
        return played, await bill(connection, stack.clickhouse_url, played)


def _say_how_to_use(stack: DemoStack) -> None:
    print(
        f"\nThe stack runs on. Use it:\n"
        f"  export ORCA_NATS_URL={stack.nats_url} ORCA_CLICKHOUSE_URL={stack.clickhouse_url}\n"
        f"  orca get tasks\n"
        f"  orca sql '{BY_TASK_SQL}'\n"
        f"Stop it:\n"
        f"  orca down --data-dir {stack.home}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
