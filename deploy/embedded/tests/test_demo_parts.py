"""The demo's parts: its programs, its arithmetic, its excerpt."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from uuid import UUID

import pytest
from orca_client.money import parse_price_micro_usd
from orca_client.view import TaskView
from orca_embedded.demo.bill import Bill, Line, price_pico_usd, usage
from orca_embedded.demo.play import Played
from orca_embedded.demo.problem import DemoError
from orca_embedded.demo.screen import money, used_words
from orca_embedded.demo.story import FIRST, PRICES, QUOTAS, REST, WORKER, Part
from orca_embedded.demo.worker import COUNTED, EXCERPT, calls
from orca_schemas.asks import HistoryEvent
from orca_schemas.manifest import parse_manifest


class _Endpoint:
    """A usage endpoint that fails as told, then takes reports down by their ids."""

    def __init__(self, failures: list[int]) -> None:
        self.failures, self.taken = failures, {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = outer.failures.pop(0) if outer.failures else 200
                if status == 0:  # no answer at all
                    self.connection.close()
                    return
                if status == 200:
                    outer.taken[body["id"]] = body
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/usage"


@pytest.fixture
def endpoint() -> Iterator[_Endpoint]:
    found = _Endpoint([])
    yield found
    found.server.shutdown()


def _worker(endpoint: _Endpoint, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", str(WORKER), "--service", "conv", "--model", "m", *arguments],
        env={"ORCA_USAGE_URL": endpoint.url, "ORCA_USAGE_TOKEN": "t"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_program_reports_every_call_once_though_the_endpoint_fails(endpoint: _Endpoint) -> None:
    """Given an endpoint that is busy and hangs up, then each call is counted once."""
    endpoint.failures[:] = [503, 0, 503]
    process = _worker(endpoint, "--calls", "3", "--seconds", "0")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert sorted(endpoint.taken) == ["call-0", "call-1", "call-2"]
    counted = json.loads(out.removeprefix(COUNTED))
    usages = [body["usage"] for body in endpoint.taken.values()]
    assert counted == {
        "input_uncached": sum(one["prompt_tokens"] for one in usages),
        "output_text": sum(one["completion_tokens"] for one in usages),
    }


def test_a_program_that_is_stopped_says_what_it_counted(endpoint: _Endpoint) -> None:
    """Given a program without an end, when it gets SIGTERM, then its count is what it reported."""
    process = _worker(endpoint, "--calls", "1000", "--seconds", "50")
    while len(endpoint.taken) < 3:
        assert process.poll() is None
    process.terminate()
    out, _ = process.communicate(timeout=10)
    total = sum(body["usage"]["prompt_tokens"] for body in endpoint.taken.values())
    assert process.returncode == 143
    assert json.loads(out.removeprefix(COUNTED))["input_uncached"] == total


def test_a_program_whose_report_is_refused_fails(endpoint: _Endpoint) -> None:
    """Given an endpoint that refuses the token, then the program fails instead of going on."""
    endpoint.failures[:] = [401]
    process = _worker(endpoint, "--calls", "3", "--seconds", "0")
    process.communicate(timeout=10)
    assert (process.returncode, endpoint.taken) == (1, {})


def test_the_excerpt_is_small_and_says_whose_it_is() -> None:
    """Given the excerpt, then 200 rows of two services, with the licence beside it."""
    rows = list(csv.DictReader(EXCERPT.open()))
    assert len(rows) == 200
    assert {row["SERVICE"] for row in rows} == {"conv", "code"}
    assert "CC BY 4.0" in EXCERPT.with_name("ATTRIBUTION.md").read_text()
    assert len(list(calls("code", 100))) == 100


@pytest.mark.parametrize("part", [FIRST, *REST], ids=lambda part: part.name)
def test_each_task_of_the_story_is_a_valid_manifest(part: Part) -> None:
    """Given a part, then its manifest is one that a user could submit."""
    assert parse_manifest(part.manifest()).metadata.namespace in QUOTAS


def test_only_the_runaway_would_use_more_tokens_than_it_asks_for() -> None:
    """Given the excerpt, then the calls of every other task fit into its token quota."""
    over = [
        part.name
        for part in REST
        if sum(map(sum, calls(part.service, part.calls))) >= part.token_quota
    ]
    assert over == ["runaway"]


@pytest.mark.parametrize("sku", PRICES)
def test_the_storys_prices_leave_nothing_to_round(sku: str) -> None:
    """Given the smallest quantity of each sku, then its price is a whole number of pico-USD."""
    price = parse_price_micro_usd(PRICES[sku])
    assert price_pico_usd(sku, 1, price) * (1 if sku[:6] == "tokens" else 3600) == price


def test_a_known_bill_comes_out() -> None:
    """Given 100,000 tokens at $10 a million and an A100 at $3.60 for six minutes, then $1.36."""
    tokens = price_pico_usd("tokens:m:output_text", 100_000, 10_000_000)
    gpu = price_pico_usd("gpu:A100", 1000 * 360_000, 3_600_000)
    assert tokens + gpu == 1_360_000_000_000


def _played(part: Part, output: str, events: dict[str, dict[str, Any]]) -> Played:
    history = tuple(
        HistoryEvent(position="NODE@1#1", time_ms=0, subject="", event=name, cause=None, run=None,
                     traceparent=None, data=data)
        for name, data in events.items()
    )  # fmt: skip
    view = TaskView(
        UUID(int=1), UUID(int=2), part.team, part.name, "u", part.outcome, True, "node-1", 1, (),
        0, None, None, 0, 0, 0, None,
    )  # fmt: skip
    return Played(part, view, history, output)


def test_usage_is_what_nodes_and_programs_say() -> None:
    """Given half a GPU for three seconds and a program's count, then these quantities by sku."""
    part = next(part for part in REST if part.name == "chat-lab")
    times = {
        "TaskStarted": {"started_at_ms": 1000},
        "TaskFinished": {"started_at_ms": 1014, "finished_at_ms": 4000},
    }
    task = _played(part, f'{COUNTED}{{"input_uncached": 5, "output_text": 2}}\n', times)
    assert usage([task]) == {
        (part.team, "cpu"): 200 * 3000,
        (part.team, "gpu:H100"): 500 * 3000,
        (part.team, "tokens:chat-70b:input_uncached"): 5,
        (part.team, "tokens:chat-70b:output_text"): 2,
    }


def test_a_program_that_wrote_no_count_fails_the_demo() -> None:
    """Given a traceback instead of a count, then the demo says whose and what."""
    times = {"TaskStarted": {"started_at_ms": 1}, "TaskFinished": {"finished_at_ms": 2}}
    with pytest.raises(DemoError, match=r"team-alpha/chat-day wrote no count, but: 'OSError'"):
        usage([_played(REST[0], "OSError", times)])


def test_a_bill_that_is_off_by_the_last_digit_is_not_equal() -> None:
    """Given one pico-USD too much in ClickHouse, then neither line nor bill is equal."""
    right = Line("t", "cpu", 3600, 1, 1, 3600, 1)
    wrong = Line("t", "cpu", 3600, 1, 1, 3600, 2)
    assert Bill((right,), 1).equal
    assert not Bill((right,), 2).equal
    assert not Bill((wrong,), 1).equal


def test_quantities_and_money_are_shown_to_the_last_digit() -> None:
    """Given half a millisecond and few pico-USD, then nothing is cut."""
    assert used_words(Line("t", "gpu:H100", 1_365_500, 1, 0, 0, 0)) == "1,365.5 GPU ms"
    assert used_words(Line("t", "tokens:m:*", 1_234, 1, 0, 0, 0)) == "1,234 tokens"
    assert money(1_300_000_000_000, 9) == "$1.300000000"
