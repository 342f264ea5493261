"""The demo as make demo runs it, and the orca command on the stack that it can leave behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

DEMO_S = 120
Orca = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Kept:
    """What a demo with --keep left behind: its answer, and how to reach its stack."""

    answer: dict[str, Any]
    environment: dict[str, str]
    home: Path


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    command = [sys.executable, "-m", "orca_embedded.demo", "--json", "--keep"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, check=False)
    home = re.search(r"--data-dir (\S+)", ran.stderr)
    assert home is not None, ran.stderr
    try:
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
        urls = dict(re.findall(r"(ORCA_\w+_URL)=(\S+)", ran.stderr))
        yield Kept(json.loads(ran.stdout), os.environ | urls, Path(home[1]))
    finally:
        down = [sys.executable, "-m", "orca_embedded", "down", "--data-dir", home[1]]
        subprocess.run(down, capture_output=True, timeout=60, check=True)
        shutil.rmtree(home[1])


@pytest.fixture
def orca(kept: Kept) -> Orca:
    """Run the orca command on the demo's stack."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "orca_client.cli", *arguments]
        return subprocess.run(
            command, env=kept.environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_the_demo_keeps_every_promise(kept: Kept) -> None:
    """Given a demo, then all checks hold, in less than two minutes."""
    assert [check["what"] for check in kept.answer["checks"] if not check["ok"]] == []
    assert kept.answer["ok"] is True
    assert kept.answer["seconds"]["in all"] < DEMO_S
    ends = {task["name"]: task["state"] for task in kept.answer["tasks"]}
    assert ends["long-context"] == "refused"
    assert ends["runaway"] == "quota_exhausted"
    assert list(ends.values()).count("succeeded") == 6


def test_the_bill_can_be_made_again_by_hand(kept: Kept) -> None:
    """Given the printed quantities and prices, when multiplied as decimals, then the same total."""
    total = Decimal(0)
    for line in kept.answer["bill"]:
        per = 1_000_000 if line["sku"].startswith("tokens:") else 1000 * 3_600_000
        total += Decimal(line["quantity"]) * Decimal(line["price_usd"]) / per
    assert total == Decimal(kept.answer["clickhouse_total_usd"])


def test_sql_shows_the_same_total(kept: Kept, orca: Orca) -> None:
    """Given the stack, when its charges are added up in SQL, then it is the demo's total."""
    ran = orca("sql", "--csv", "SELECT sum(amount_usd) AS usd FROM cost_daily")
    head, usd = ran.stdout.split()
    assert (ran.returncode, head) == (0, "usd")
    assert Decimal(usd) == Decimal(kept.answer["total_usd"])


def test_a_wrong_statement_shows_clickhouses_code(orca: Orca) -> None:
    """Given a table that is not there, then one line with the code, and exit code 1."""
    ran = orca("sql", "SELECT * FROM nowhere")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("orca: ClickHouse error 60: ")
    assert ran.stderr.count("\n") == 1


def test_the_doctor_finds_nothing_broken_and_names_the_development_defaults(orca: Orca) -> None:
    """Given the stack, then no fail, and warnings for broker, executor and simulated GPUs."""
    ran = orca("doctor", "--json")
    found = json.loads(ran.stdout)
    assert ran.returncode == 0, found
    warned = " ".join(one["seen"] for one in found if one["level"] == "warn")
    for default in ("no authentication", "process executor", "simulated GPUs"):
        assert default in warned


def test_the_whole_life_of_the_runaway_is_told(kept: Kept, orca: Orca) -> None:
    """Given the task that was stopped, then its events lead from submission to the last charge."""
    task = next(task for task in kept.answer["tasks"] if task["name"] == "runaway")
    told = json.loads(orca("describe", "task", task["id"][:8], "--json").stdout)
    names = [event["event"] for event in told["events"]]
    assert names[0] == "TaskSubmitted"
    assert {"TaskStopRequested", "StopOrdered", "TaskFinished", "Charged"} <= set(names)
    assert re.fullmatch("[0-9a-f]{32}", told["trace_id"])
    assert told["cost"]["final"] is True
    assert orca("logs", task["id"]).stdout.startswith("counted ")


def test_a_task_is_submitted_followed_and_paid_on_the_same_stack(
    orca: Orca, tmp_path: Path
) -> None:
    """Given a manifest, when submitted, then its lines lead to success and a cost, code 0."""
    path = tmp_path / "task.yaml"
    path.write_text(
        "apiVersion: orca.ai/v1\nkind: AITask\n"
        "metadata: {name: hello, namespace: team-gamma}\n"
        "spec: {taskType: batch, image: none, command: [echo, hello], resources: {cpu: 100m}}\n"
    )
    ran = orca("submit", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"team-gamma/hello  succeeded on node-[12]$", ran.stdout, re.MULTILINE)
    assert ran.stdout.splitlines()[-1].startswith("team-gamma/hello: cost $0.")


def test_a_cancelled_task_is_told_as_cancelled(orca: Orca, tmp_path: Path) -> None:
    """Given a running task, when its owner cancels it, then it ends cancelled and stays so."""
    path = tmp_path / "task.yaml"
    path.write_text(
        "apiVersion: orca.ai/v1\nkind: AITask\n"
        "metadata: {name: long, namespace: team-gamma}\n"
        "spec: {taskType: batch, image: none, command: [sleep, '60'], resources: {cpu: 100m}}\n"
    )
    task_id = orca("submit", "--no-wait", str(path)).stdout.strip()
    assert orca("cancel", task_id, "--reason", "test").returncode == 0
    orca("logs", "-f", task_id)
    told = json.loads(orca("get", "tasks", "--json").stdout)["tasks"]
    assert [one["state"] for one in told if one["task_id"] == task_id] == ["cancelled"]
    again = orca("cancel", task_id)
    assert (again.returncode, "has ended" in again.stderr) == (3, True)
