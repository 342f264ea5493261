"""The command against a real broker: what it prints, what it sends, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from orca_client.connection import Connection
from orca_client.submit import submit
from orca_runtime import streams
from orca_runtime.testing_nats import NatsServer, running_nats
from orca_schemas.asks import (
    CostRow,
    Costs,
    GpuRow,
    Gpus,
    History,
    HistoryEvent,
    LogLine,
    Logs,
    NodeRow,
    Nodes,
    PriceRow,
    Prices,
    QuotaRow,
    Quotas,
    Status,
    TaskRow,
    Tasks,
)
from orca_schemas.values import Gpu, Inventory, Reason, ReasonCode
from orca_schemas.yaml_load import load_documents

Orca = Callable[..., Awaitable[Any]]
Rows = Callable[..., TaskRow]
ID = UUID("12345678-0000-4000-8000-000000000001")
BLOCKED = Reason(
    code=ReasonCode.QUOTA_GPU, message="asks 2000 gpu_milli; 0 of 2000 are free",
    asked=2000, available=0, limit=2000,
)  # fmt: skip

MANIFEST = """
apiVersion: orca.ai/v1
kind: AITask
metadata: {name: train, namespace: team-a}
spec:
  taskType: training
  image: pytorch:v2
  command: [python, train.py]
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "task.yaml"
    path.write_text(MANIFEST)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "file: '(empty)'"),
        ("- a\n- b\n", "a manifest is a mapping"),
        ("a: &x 1\n", "remove the anchor"),
        (MANIFEST.replace("AITask", "Pod"), "kind: 'Pod': use 'AITask'"),
        (MANIFEST.replace("taskType", "tasktype"), "did you mean taskType?"),
        (MANIFEST.replace("team-a", "Team_A"), "metadata.namespace: 'Team_A'"),
        (MANIFEST + "  resources: {memory: 16GB}\n", "spec.resources.memory: '16GB'"),
        (MANIFEST + "  resources: {tokenQuota: 1.5}\n", "spec.resources.tokenQuota"),
        (MANIFEST + "---\n" + MANIFEST.replace("image: pytorch:v2", "image: ''"), "document 2"),
    ],
    ids=["empty", "list", "anchor", "kind", "misspelled", "name", "unit", "fraction", "second"],
)
async def test_a_manifest_that_is_wrong_is_told_before_anything_is_sent(
    orca: Orca, services: Any, tmp_path: Path, text: str, says: str
) -> None:
    """Given a wrong manifest beside a right one, then one line names field and remedy, code 2."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(MANIFEST)
    bad.write_text(text)
    ran = await orca("submit", "--no-wait", str(good), str(bad))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"orca: {bad}")
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert services.said == []


async def test_a_file_that_is_not_there_is_one_line(orca: Orca, services: Any) -> None:
    """Given a name of no file, then the code is 2 and the line names it."""
    ran = await orca("submit", "/nowhere.yaml")
    assert ran.code == 2
    assert ran.err == (
        "orca: /nowhere.yaml: file: '/nowhere.yaml': No such file or directory; "
        "name a file, or - for stdin\n"
    )


async def test_without_waiting_only_ids_are_printed(
    orca: Orca, services: Any, tmp_path: Path
) -> None:
    """Given three documents, when submitted without waiting, then three ids and three events."""
    path = tmp_path / "three.yaml"
    path.write_text("---\n".join([MANIFEST] * 3))
    ran = await orca("submit", "--no-wait", str(path))
    assert (ran.code, ran.err) == (0, "")
    ids = [UUID(line) for line in ran.lines]
    assert len(set(ids)) == 3
    assert [subject.split(".")[3] for subject, _ in services.said] == [str(one) for one in ids]
    assert {subject.split(".")[5] for subject, _ in services.said} == {"alice"}


async def test_many_documents_are_sent_in_a_pipeline_and_told_as_one_line(
    orca: Orca, services: Any, row: Rows, tmp_path: Path
) -> None:
    """Given 30 documents that all succeed, then a summary line and code 0."""
    path = tmp_path / "many.yaml"
    path.write_text("---\n".join([MANIFEST] * 30))

    def all_ended(_: dict[str, Any]) -> Any:
        sent = [UUID(subject.split(".")[3]) for subject, _ in services.said]
        rows = tuple(row("ended", one, outcome="succeeded") for one in sent)
        return Tasks(tasks=rows)

    services.answers["admission.tasks"] = all_ended
    services.answers["placement.tasks"] = lambda _: Tasks(tasks=())
    ran = await orca("submit", str(path))
    assert (ran.code, ran.lines[-1]) == (0, "30 tasks: 30 succeeded")


async def _submitted_ends_as(
    orca: Orca, services: Any, row: Rows, manifest: Path, **changes: Any
) -> Any:
    def ended(_: dict[str, Any]) -> Any:
        sent = [UUID(subject.split(".")[3]) for subject, _ in services.said]
        return Tasks(tasks=tuple(row("ended", one, **changes) for one in sent))

    services.answers["admission.tasks"] = ended
    services.answers["placement.tasks"] = lambda _: Tasks(tasks=())
    services.answers["billing.cost"] = lambda query: Costs(runs=(_cost(query),))
    return await orca("submit", str(manifest))


def _cost(query: dict[str, Any], final: bool = True, unpriced: int = 0) -> CostRow:
    return CostRow(
        run_id=UUID(int=7), task_id=UUID(query["task_id"]), namespace="team-a",
        total_pico_usd=1_300_000_000_000, unpriced=unpriced, final=final,
    )  # fmt: skip


async def test_a_task_that_succeeds_is_followed_to_its_cost(
    orca: Orca, services: Any, row: Rows, manifest: Path
) -> None:
    """Given a task that succeeds, then its lines are plain and stable, with its cost, code 0."""
    ran = await _submitted_ends_as(
        orca, services, row, manifest, outcome="succeeded", node="node-1", attempt=1
    )
    task_id = services.said[0][0].split(".")[3]
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [
        f"{task_id}  team-a/train  succeeded on node-1",
        "team-a/train: cost $1.30",
    ]


async def test_a_task_that_fails_gives_code_1(
    orca: Orca, services: Any, row: Rows, manifest: Path
) -> None:
    """Given a task that fails, then the code is 1."""
    ran = await _submitted_ends_as(orca, services, row, manifest, outcome="failed", attempt=1)
    assert ran.code == 1
    assert "failed" in ran.out


async def test_a_task_that_quota_refuses_gives_code_3_and_the_reason(
    orca: Orca, services: Any, row: Rows, manifest: Path
) -> None:
    """Given a task that admission rejects, then the code is 3 and its reason is printed."""
    ran = await _submitted_ends_as(
        orca, services, row, manifest, outcome="refused", reasons=(BLOCKED,)
    )
    assert ran.code == 3
    assert f"refused: quota_gpu: {BLOCKED.message}" in ran.out


async def test_no_broker_is_one_line_and_code_69(
    orca: Orca, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no broker, then every command says so at once and says what to do."""
    monkeypatch.setenv("ORCA_NATS_URL", "nats://127.0.0.1:1")
    for command in (["submit", str(manifest)], ["get", "tasks"], ["cancel", str(ID)]):
        ran = await orca(*command)
        assert ran.code == 69
        assert ran.err == (
            "orca: no broker at nats://127.0.0.1:1 (Connection refused); "
            "start one with orca up, or set ORCA_NATS_URL\n"
        )


async def test_a_service_that_is_silent_is_named_and_code_69(orca: Orca, services: Any) -> None:
    """Given a broker without placement, then the line names it."""
    ran = await orca("get", "nodes")
    assert (ran.code, ran.err) == (69, "orca: placement does not answer; see orca doctor\n")


async def test_a_broker_without_streams_is_said_to_be_no_orca(
    orca: Orca, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an empty broker, when one or many are submitted, then nothing was sent, code 69."""
    with running_nats(sync="2m") as empty:
        monkeypatch.setenv("ORCA_NATS_URL", empty.url)
        for count in (1, 25):
            ran = await orca("submit", "--no-wait", *[str(manifest)] * count)
            assert ran.code == 69
            assert "is Orca set up?" in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("get", "task"), "No such command 'task'"),
        (("get", "tasks", "--limit", "0"), "--limit"),
        (("submit",), "Missing argument"),
        (("sql", "SELECT 1", "--json", "--csv"), "not both"),
        (("--user", "A B", "get", "tasks"), "ORCA_USER: 'A B'"),
        (("quota", "set", "team-a", "gpu=2"), "limit: 'gpu': use one of"),
        (("quota", "set", "Team_A", "gpus=2"), "namespace: 'Team_A'"),
        (("price", "set", "gpu:A100", "3.0000001"), "at most 6 decimals"),
        (("price", "set", "gpu:X9", "3"), "sku: 'gpu:X9'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_a_command_that_is_wrong_is_one_line_and_code_2(
    orca: Orca, services: Any, arguments: tuple[str, ...], says: str
) -> None:
    """Given a wrong command line, then one line with the remedy, no traceback, nothing sent."""
    ran = await orca(*arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err
    assert services.said == []


async def test_tasks_are_shown_with_why_they_wait(orca: Orca, services: Any, row: Rows) -> None:
    """Given one queued and one running task, then a plain table that a pipe can read."""
    services.tasks(
        row("queued", ID, reasons=(BLOCKED,), gpu_type="A100", gpu_milli=2000, token_quota=1000),
        row("placed", UUID(int=2), name="serve"),
        placement=(row("running", UUID(int=2), name="serve", node="node-1"),),
    )
    ran = await orca("get", "tasks", "-n", "team-a")
    assert ran.code == 0
    head, first, second = (line.split() for line in ran.lines)
    assert head == ["ID", "NAMESPACE", "NAME", "STATE", "NODE", "GPUS", "TOKENS", "AGE", "WHY"]
    assert first[:4] == ["12345678", "team-a", "train", "queued"]
    assert " ".join(first).endswith(f"quota_gpu: {BLOCKED.message}")
    assert second[:5] == ["00000000", "team-a", "serve", "running", "node-1"]
    as_json = json.loads((await orca("get", "tasks", "--json")).out)
    assert as_json["tasks"][0]["reasons"][0]["limit"] == 2000


@pytest.mark.parametrize(
    ("what", "verb", "answer", "next_step"),
    [
        ("tasks", "admission.tasks", None, "orca submit"),
        ("nodes", "placement.nodes", Nodes(nodes=()), "orca up"),
        ("gpus", "placement.gpus", Gpus(gpus=()), "orca up"),
        ("quota", "admission.quota", Quotas(rows=()), "orca quota set"),
        ("prices", "billing.prices", Prices(prices=()), "orca price set"),
    ],
)
async def test_nothing_to_show_says_what_to_do_next(
    orca: Orca, services: Any, what: str, verb: str, answer: Any, next_step: str
) -> None:
    """Given an empty answer, then stdout is empty and stderr names the next step, code 0."""
    services.tasks()
    if answer is not None:
        services.answers[verb] = lambda _: answer
    ran = await orca("get", what)
    assert (ran.code, ran.out) == (0, "")
    assert next_step in ran.err


async def test_simulated_gpus_and_the_process_executor_are_labelled(
    orca: Orca, services: Any
) -> None:
    """Given a development node, then nodes and GPUs say so wherever they show."""
    gpu = Gpu(uuid="SIM-1", type="A100", memory_mib=81920, simulated=True)
    inventory = Inventory(
        gpus=(gpu,), cpu_milli=2000, memory_mib=1024, executor="process", agent_version="0.1.0"
    )
    node = NodeRow(
        node="node-1", status="ready", boot_id=uuid4(), inventory=inventory, cpu_milli_free=1500,
        memory_mib_free=512, attempts=1, last_heard_ms=None,
    )  # fmt: skip
    services.answers["placement.nodes"] = lambda _: Nodes(nodes=(node,))
    sitting = GpuRow(
        node="node-1", gpu=gpu, milli_free=500, memory_mib_free=40960, tasks=("team-a/train",)
    )
    services.answers["placement.gpus"] = lambda _: Gpus(gpus=(sitting,))
    nodes, gpus = await orca("get", "nodes"), await orca("get", "gpus")
    assert "1 x A100 (simulated)" in nodes.out
    assert "process (development)" in nodes.out
    assert gpus.lines[1].split("  ")[-1] == "team-a/train"
    assert "A100 (simulated)" in gpus.out
    assert "50%" in gpus.out


async def test_quota_is_shown_in_the_units_it_is_set_in(orca: Orca, services: Any) -> None:
    """Given a GPU limit of 2000 milli, then it is shown as gpus 2, and unlimited by that word."""
    rows = (
        QuotaRow(account="team-a", dimension="gpu_milli", period="concurrent", limit=2000,
                 held=500, committed=0),
        QuotaRow(account="team-b", dimension="tokens", period="total", limit=None,
                 held=0, committed=7),
    )  # fmt: skip
    services.answers["admission.quota"] = lambda _: Quotas(rows=rows)
    ran = await orca("get", "quota", "-n", "team-a")
    assert [line.split() for line in ran.lines[1:]] == [
        ["team-a", "gpus", "2", "0.5", "0", "1.5", "concurrent"]
    ]
    everything = await orca("get", "quota")
    assert everything.lines[2].split() == [
        "team-b", "tokens", "unlimited", "0", "7", "unlimited", "total",
    ]  # fmt: skip


async def test_of_the_versions_of_a_price_one_is_in_force(orca: Orca, services: Any) -> None:
    """Given a past, a newer and a future price, then the newer one is marked."""
    now_ms = int(time.time() * 1000)
    rows = tuple(
        PriceRow(sku="cpu", price_micro_usd=price, unit="core-hour", effective_at_ms=now_ms + at,
                 version=f"ADMIN@1#{price}")
        for price, at in ((1_000_000, -2000), (2_000_000, -1000), (3_000_000, 600_000))
    )  # fmt: skip
    services.answers["billing.prices"] = lambda _: Prices(prices=rows)
    ran = await orca("get", "prices")
    assert [line.split()[1] for line in ran.lines[1:] if line.endswith("yes")] == ["$2.00"]


async def test_a_new_namespace_is_made_known_before_its_first_limit(
    orca: Orca, services: Any
) -> None:
    """Given an unknown namespace, when limits are set, then NamespaceSet goes first."""
    services.answers["admission.quota"] = lambda _: Quotas(rows=())
    noted = {"about": "set", "fact": {"kind": "limit"}}
    services.decisions = dict.fromkeys(("NamespaceSet", "QuotaSet"), ("admission", "Noted", noted))
    ran = await orca("quota", "set", "team-a", "gpus=2", "tokens=unlimited")
    assert (ran.code, ran.lines) == (0, ["team-a gpus: 2", "team-a tokens: unlimited"])
    assert [body["type"] for _, body in services.said] == [
        "orca.NamespaceSet.v1", "orca.QuotaSet.v1", "orca.QuotaSet.v1",
    ]  # fmt: skip
    assert services.said[2][1]["data"]["limit"] is None


async def test_a_known_namespace_keeps_its_admins(orca: Orca, services: Any) -> None:
    """Given a namespace with a limit, when another is set, then NamespaceSet is not said again."""
    known = QuotaRow(
        account="team-a", dimension="tasks", period="concurrent", limit=1, held=0, committed=0
    )
    services.answers["admission.quota"] = lambda _: Quotas(rows=(known,))
    services.decisions["QuotaSet"] = ("admission", "Noted", {"fact": {"kind": "limit"}})
    assert (await orca("quota", "set", "team-a", "tasks=5")).code == 0
    assert [body["type"] for _, body in services.said] == ["orca.QuotaSet.v1"]


async def test_a_limit_that_admission_refuses_gives_its_reason(orca: Orca, services: Any) -> None:
    """Given a refusal, then its message is the line and the code is 3."""
    services.answers["admission.quota"] = lambda _: Quotas(rows=())
    services.decisions["NamespaceSet"] = ("admission", "Noted", {"fact": {"kind": "namespace"}})
    refusal = {"reason": {"code": "unsupported", "message": "not supported here"}}
    services.decisions["QuotaSet"] = ("admission", "RequestRefused", refusal)
    ran = await orca("quota", "set", "team-a", "cpu=2")
    assert (ran.code, ran.err) == (3, "orca: team-a cpu: not supported here\n")


async def test_a_price_holds_from_now_on_unless_a_time_is_given(orca: Orca, services: Any) -> None:
    """Given a price without and with --at, then the event says nothing, and that time."""
    services.decisions["PriceSet"] = ("billing", "Noted", {"fact": {"kind": "price"}})
    assert (await orca("price", "set", "gpu:A100", "3.60")).lines == ["gpu:A100: $3.60"]
    ran = await orca("price", "set", "cpu", "0.036", "--at", "2030-01-01T00:00Z")
    assert ran.lines == ["cpu: $0.036 from 2030-01-01 00:00:00.000 UTC on"]
    first, second = (body["data"] for _, body in services.said)
    assert first["effective_at_ms"] is None
    assert second["effective_at_ms"] == 1_893_456_000_000
    assert second["tiers"] == [{"from_quantity": 0, "price_micro_usd": 36_000}]


async def test_a_price_that_billing_refuses_gives_its_reason(orca: Orca, services: Any) -> None:
    """Given a price that billing notes as refused, then code 3 and why."""
    noted = {"about": "price refused: it came later", "fact": {"kind": "nothing"}}
    services.decisions["PriceSet"] = ("billing", "Noted", noted)
    ran = await orca("price", "set", "cpu", "1", "--at", "2020-01-01")
    assert (ran.code, ran.err) == (3, "orca: cpu: price refused: it came later\n")


@pytest.mark.parametrize(
    ("event", "data", "code", "says"),
    [
        ("TaskStopRequested", {}, 0, "team-a/train: stopping\n"),
        ("TaskRejected", {}, 0, "team-a/train: cancelled before it began\n"),
        ("RequestRefused", {"reason": {"message": "it belongs to bob"}}, 3, "it belongs to bob"),
    ],
)
async def test_a_cancel_waits_for_what_became_of_it(
    orca: Orca, services: Any, row: Rows, event: str, data: dict[str, Any], code: int, says: str
) -> None:
    """Given a task, when it is cancelled, then the answer event is told."""
    services.tasks(row("placed", ID))
    services.decisions["TaskCancelRequested"] = ("admission", event, data)
    ran = await orca("cancel", "1234", "--reason", "no need")
    assert ran.code == code
    assert says in ran.out + ran.err
    assert services.said[0][1]["data"] == {"reason": "no need"}


@pytest.mark.parametrize(
    ("prefix", "says"), [("9", "no id begins so"), ("123", "2 tasks begin so")]
)
async def test_a_prefix_that_names_no_task_or_several_is_refused(
    orca: Orca, services: Any, row: Rows, prefix: str, says: str
) -> None:
    """Given a prefix of none or of two ids, then code 2 and nothing is sent."""
    services.tasks(row("placed", ID), row("placed", UUID(f"1239{str(ID)[4:]}")))
    ran = await orca("cancel", prefix)
    assert ran.code == 2
    assert says in ran.err
    assert services.said == []


def _event(position: str, event: str, role: str, time_ms: int, **more: Any) -> HistoryEvent:
    return HistoryEvent(
        position=position, time_ms=time_ms, subject=f"orca.team-a.task.{ID}.{role}.-.{event}",
        event=event, cause=more.get("cause"), run=None, traceparent=more.get("traceparent"),
        data=more.get("data", {}),
    )  # fmt: skip


async def test_a_task_that_failed_is_described_with_the_nodes_word_of_it(
    orca: Orca, services: Any, row: Rows
) -> None:
    """Given a failed task without a reason, then what the node said, and where its output is."""
    services.tasks(row("ended", ID, outcome="failed", node="node-1", attempt=1))
    services.answers["admission.history"] = lambda _: History(
        events=(_event("NODE@1#3", "TaskFinished", "node", 9, data={"message": "exit code 3"}),)
    )
    services.answers["billing.cost"] = lambda query: Costs(runs=(_cost(query),))
    ran = await orca("describe", "task", "12345678")
    assert "  failed: exit code 3" in ran.lines
    assert "orca logs 12345678" in ran.out


async def test_a_task_that_failed_is_followed_to_where_it_is_told_why(
    orca: Orca, services: Any, row: Rows, manifest: Path
) -> None:
    """Given a task that fails without a reason, then the commands that tell why, code 1."""
    ran = await _submitted_ends_as(
        orca, services, row, manifest, outcome="failed", node="node-1", attempt=1
    )
    assert ran.code == 1
    assert "why: orca describe task" in ran.err


async def test_a_task_is_described_from_submission_to_cost(
    orca: Orca, services: Any, row: Rows
) -> None:
    """Given a queued task, then why it waits with numbers, its events in order, cost and trace."""
    services.tasks(row("queued", ID, reasons=(BLOCKED,), queue_position=3))
    trace = "0af7651916cd43dd8448eb211c80319c"
    services.answers["admission.history"] = lambda _: History(
        events=(
            _event("ADMISSION@1#5", "TaskQueued", "admission", 1001, cause="CLIENT@1#42",
                   traceparent=f"00-{trace}-b7ad6b7169203331-01"),
            _event("CLIENT@1#42", "TaskSubmitted", "client", 1000),
        )
    )  # fmt: skip
    services.answers["billing.cost"] = lambda query: Costs(
        runs=(_cost(query, final=False, unpriced=2),)
    )
    ran = await orca("describe", "task", "12345678")
    assert ran.code == 0
    assert "asked 2,000, available 0, limit 2,000" in ran.out
    assert "goes on when others of the namespace end" in ran.out
    assert "number 3 in the queue" in ran.out
    assert "$1.30 (so far; 2 lines without a price)" in ran.out
    assert trace in ran.out
    assert [line.split()[2] for line in ran.lines[-2:]] == ["CLIENT#42", "ADMISSION#5"]
    assert ran.lines[-1].split()[-1] == "CLIENT#42"
    plain = json.loads((await orca("describe", "task", str(ID), "--json")).out)
    assert plain["trace_id"] == trace
    assert [event["event"] for event in plain["events"]] == ["TaskSubmitted", "TaskQueued"]


async def test_output_that_a_node_sends_twice_is_printed_once(
    orca: Orca, services: Any, row: Rows
) -> None:
    """Given chunks that overlap, of two attempts, then each byte is written once, in order."""
    services.tasks(row("ended", ID, outcome="succeeded"))
    chunks = [
        LogLine(sequence=1, node="n", attempt=1, offset=0, text="one\ntwö"),
        LogLine(sequence=2, node="n", attempt=1, offset=4, text="twö\nthree\n"),
        LogLine(sequence=5, node="n", attempt=2, offset=0, text="again\n"),
    ]

    def logs(query: dict[str, Any]) -> Logs:
        left = tuple(one for one in chunks if one.sequence > query["after"])[:2]
        return Logs(chunks=left, last=left[-1].sequence if left else query["after"])

    services.answers["admission.logs"] = logs
    assert (await orca("logs", str(ID))).out == "one\ntwö\nthree\nagain\n"
    assert (await orca("logs", "-f", str(ID))).out == "one\ntwö\nthree\nagain\n"


async def test_no_clickhouse_is_one_line_and_code_69(orca: Orca) -> None:
    """Given no ClickHouse, then the line says where and what to do."""
    ran = await orca("sql", "SELECT 1")
    assert (ran.code, ran.err) == (
        69,
        "orca: no ClickHouse at http://127.0.0.1:1 (Connection refused); "
        "start one with orca up, or set ORCA_CLICKHOUSE_URL\n",
    )


async def test_the_doctor_says_of_each_thing_how_it_is(orca: Orca, services: Any) -> None:
    """Given a broker with streams, services well and not, then code 1 and remedies."""
    well = Status(
        service="admission", ready=True, active=True, reason="", sequence=3, digest="d" * 32,
        lag={"CLIENT": 0}, version="0.1.0",
    )  # fmt: skip
    behind = well.model_copy(update={"service": "billing", "lag": {"METERING": 5000}})
    unready = well.model_copy(update={"ready": False, "reason": "METERING has a hole"})
    services.answers["admission.status"] = lambda _: well
    services.answers["billing.status"] = lambda _: behind
    services.answers["metering.status"] = lambda _: unready
    services.answers["placement.nodes"] = lambda _: Nodes(nodes=())
    ran = await orca("doctor", "--json")
    found = {one["what"]: one for one in json.loads(ran.out)}
    assert ran.code == 1
    assert found["broker"]["level"] == "warn"
    assert "open (no authentication)" in found["broker"]["seen"]
    assert all(found[f"stream {name}"]["level"] == "ok" for name in ("CLIENT", "USAGE", "LOGS"))
    assert found["clock"]["level"] == "ok"
    assert found["admission"]["level"] == "ok"
    assert (found["billing"]["level"], "METERING 5000" in found["billing"]["seen"]) == (
        "warn",
        True,
    )
    assert found["metering"]["seen"] == "not ready: METERING has a hole"
    assert (found["placement"]["level"], found["nodes"]["level"]) == ("fail", "fail")
    assert found["clickhouse"]["remedy"]


async def test_ctrl_c_ends_following_and_says_that_tasks_go_on(
    manifest: Path, services: Any, nats_server: NatsServer
) -> None:
    """Given a followed task, when Ctrl-C comes, then code 130 and the tasks are said to go on."""
    services.tasks()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "orca_client.cli",
        "submit",
        str(manifest),
        env=os.environ | {"ORCA_NATS_URL": nats_server.url, "ORCA_USER": "alice"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).endswith(b"team-a/train  submitted\n")
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, b"submitted tasks go on" in err) == (130, True)


async def test_a_broker_that_restarts_does_not_end_a_connection(tmp_path: Path) -> None:
    """Given a connection, when the broker restarts, then the next event is stored."""
    with running_nats(tmp_path, sync="always") as server:
        async with await Connection.open(server.url, "alice") as connection:
            await streams.apply(connection.nc, 2**26)
            before = await submit(connection, load_documents(MANIFEST)[0])
            await asyncio.to_thread(server.restart)
            after = await submit(connection, load_documents(MANIFEST)[0])
            assert (before.sequence, after.sequence) == (1, 2)


@pytest.mark.parametrize("command", ["up", "down", "status"])
async def test_the_embedded_stack_that_is_not_installed_is_one_line(
    orca: Orca, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Given a client without the embedded stack, then the line says what to install."""
    monkeypatch.setattr("orca_client.cli.stack.PACKAGE", "orca_embedded_is_not_here")
    ran = await orca(command, "--data-dir", "/tmp/x")
    assert (ran.code, ran.err) == (
        69, "orca: the embedded stack is not installed; install it: pip install orca-embedded\n",
    )  # fmt: skip


def test_the_embedded_stack_gets_every_argument() -> None:
    """Given orca status with options of its own, then orca_embedded reads them."""
    command = [
        sys.executable,
        "-m",
        "orca_client.cli",
        "status",
        "--data-dir",
        "/nowhere",
        "--json",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 69
    assert ran.stderr == "orca: nothing runs on /nowhere; start it with orca up\n"
