"""The program of the demo's tasks: replays model calls of a trace and reports their tokens.

It runs by itself (standard library only) and has no model: for each row of the excerpt it
tells the node's usage endpoint what that call used. It says in its last line what it counted.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from types import FrameType

EXCERPT = Path(__file__).with_name("azure_llm_excerpt.csv")
CALL_TIMEOUT_S = 5.0
RETRY_S = 0.2
GIVE_UP_S = 10.0
"""A node agent that is away so long will not come back: end, and leave nothing running."""
COUNTED = "counted "
STOPPED = 128 + signal.SIGTERM

stopped = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the rows; returns 0, or 143 (128 + SIGTERM) when it was stopped before the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", required=True, choices=["conv", "code"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    endpoint, token = os.environ["ORCA_USAGE_URL"], os.environ["ORCA_USAGE_TOKEN"]
    prompt = completion = 0
    pause_s = given.seconds / given.calls
    for number, (prompt_tokens, completion_tokens) in enumerate(calls(given.service, given.calls)):
        began_s = time.monotonic()
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        report(endpoint, token, {"id": f"call-{number}", "model": given.model, "usage": usage})
        prompt, completion = prompt + prompt_tokens, completion + completion_tokens
        if not _sleep_until(began_s + pause_s):
            break
    print(COUNTED + json.dumps({"input_uncached": prompt, "output_text": completion}), flush=True)
    return STOPPED if stopped else 0


def calls(service: str, count: int) -> Iterator[tuple[int, int]]:
    """``count`` calls as (prompt tokens, completion tokens), the trace over and over."""
    with EXCERPT.open(newline="") as file:
        rows = [
            (int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for row in csv.DictReader(file)
            if row["SERVICE"] == service
        ]
    return itertools.islice(itertools.cycle(rows), count)


def report(endpoint: str, token: str, body: dict[str, object]) -> None:
    """Tell of one call until it is taken down; its id makes telling it again safe.

    Raises OSError when the endpoint is away for GIVE_UP_S, and where it refuses the report.
    """
    request = urllib.request.Request(  # noqa: S310 - the node's own endpoint on loopback
        endpoint,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    deadline_s = time.monotonic() + GIVE_UP_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=CALL_TIMEOUT_S):  # noqa: S310
                return
        except (OSError, HTTPException) as error:
            final = isinstance(error, urllib.error.HTTPError) and error.code != 503
            if final or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_S)


def _sleep_until(when_s: float) -> bool:
    """Sleep in short steps; False as soon as the task is to stop."""
    while not stopped and (left_s := when_s - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.05))
    return not stopped


def _stop(_number: int, _frame: FrameType | None) -> None:
    global stopped  # noqa: PLW0603 - a signal handler has nowhere else to say it
    stopped = True


if __name__ == "__main__":
    raise SystemExit(main())
