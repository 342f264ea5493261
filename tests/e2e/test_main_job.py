"""The main job: the documented manifest from submission to the charge."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from decimal import Decimal

import pytest
from orca_client.connection import Connection
from orca_client.submit import submit
from orca_schemas.codec import digest
from orca_schemas.identifiers import derived_id, id_time_ms, run_id
from orca_schemas.subjects import Stream
from stack_kit import (
    REPORT_TOKENS,
    RunningStack,
    ended,
    eventually,
    make_namespace,
    set_prices,
)

PRICES = {
    "gpu:A100": 3_000_000,
    "cpu": 40_000,
    "tokens:llama-3-8b:input_uncached": 150_000,
    "tokens:llama-3-8b:output_text": 600_000,
}
PROGRAM = REPORT_TOKENS + (
    "print(report('r1', 'llama-3-8b', {'prompt_tokens': 1020, 'completion_tokens': 129,"
    " 'total_tokens': 1149}))\n"
)


def documented() -> dict[str, object]:
    """The manifest of the README, with a program that is on this machine."""
    return {
        "apiVersion": "orca.ai/v1",
        "kind": "AITask",
        "metadata": {"name": "llm-inference-job-001", "namespace": "team-alpha"},
        "spec": {
            "taskType": "inference",
            "resources": {
                "gpu": {
                    "type": "A100", "count": 1, "memoryLimit": "40Gi",
                    "computePercent": 50, "sharing": "shared",
                },
                "cpu": "4",
                "memory": "16Gi",
                "tokenQuota": 500000,
            },
            "image": "pytorch-cuda:v2.8",
            "command": [sys.executable, "-c", PROGRAM],
            "env": [{"name": "MODEL_NAME", "value": "Llama-3-8B-Instruct"}],
            "retries": {"backoffLimit": 2, "onNodeLoss": "requeue"},
            "activeDeadline": "2h",
            "schedulerHints": {
                "priority": "high", "queue": "inference", "estimatedDuration": "30m",
            },
            "metricsCollection": {
                "enableGpuMonitoring": True, "trackTokenUsage": True, "reportInterval": "30s",
            },
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def task_id(stack: RunningStack) -> uuid.UUID:
    """The documented task, run to its end and charged in full."""
    return asyncio.run(_run_documented(stack))


async def _run_documented(stack: RunningStack) -> uuid.UUID:
    async with await Connection.open(stack.nats_url, "alice") as alice:
        await make_namespace(alice, "team-alpha", {"tokens": 1_000_000, "gpu_milli": 2000})
        await set_prices(alice, PRICES)
        made = await submit(alice, documented())
        found = await ended(alice, made.task_id)
        assert found.outcome == "succeeded", found
    await eventually("the final charge is projected", lambda: _final_charge(stack, made.task_id))
    return made.task_id


def _final_charge(stack: RunningStack, task_id: uuid.UUID) -> bool:
    counted = stack.sql(f"SELECT count() FROM charges FINAL WHERE task_id = '{task_id}'")
    return int(counted[0][0]) >= 4


async def bodies(stack: RunningStack, task_id: uuid.UUID) -> dict[str, dict[str, object]]:
    """Every event about the task, by position."""
    events = await stack.events()
    return {
        str(stored.position): json.loads(stored.body) | {"subject": stored.subject}
        for stream in events.values()
        for stored in stream
        if stored.subject.split(".")[3] == str(task_id)
    }


class TestMainJob:
    """What must hold once the documented task is done."""

    async def test_it_is_released_and_every_part_is_given_back(
        self, stack: RunningStack, task_id: uuid.UUID
    ) -> None:
        """One Released, one QuotaReleased per part, one final Charged."""
        found = list((await bodies(stack, task_id)).values())
        names = [str(b["type"]).split(".")[1] for b in found]
        assert names.count("Released") == 1
        assert names.count("QuotaReleased") == 2
        finals = [b for b in found if "Charged" in str(b["type"]) and b["data"]["final"]]  # type: ignore[index]
        assert len(finals) == 1

    async def test_every_cause_leads_back_to_the_submission(
        self, stack: RunningStack, task_id: uuid.UUID
    ) -> None:
        """From any event, following cause ends at TaskSubmitted, without a loop."""
        found = await bodies(stack, task_id)
        for start in found:
            position, seen = start, set[str]()
            while found[position].get("cause"):
                assert position not in seen
                seen.add(position)
                position = str(found[position]["cause"])
            assert found[position]["type"] == "orca.TaskSubmitted.v1"

    async def test_ids_are_derived(self, stack: RunningStack, task_id: uuid.UUID) -> None:
        """R is a function of the submission's position; event ids of their causes."""
        events = await stack.events()
        submitted = next(
            one for one in events[Stream.CLIENT] if one.subject.split(".")[3] == str(task_id)
        )
        run = run_id(submitted.position, submitted.time_ms)
        found = await bodies(stack, task_id)
        runs = {b["correlationid"] for b in found.values() if b.get("correlationid")}
        assert runs == {str(run)}
        reserved = next(b for b in found.values() if "QuotaReserved" in str(b["type"]))
        expected = derived_id(submitted.time_ms, Stream.ADMISSION, submitted.position, 0)
        assert reserved["id"] == str(expected)
        assert id_time_ms(run) == submitted.time_ms

    async def test_one_trace_spans_it(self, stack: RunningStack, task_id: uuid.UUID) -> None:
        """Every event after the submission carries the same trace id."""
        found = await bodies(stack, task_id)
        traces = {str(b["traceparent"]).split("-")[1] for b in found.values() if b.get("cause")}
        assert len(traces) == 1

    async def test_the_bill_is_price_times_usage_to_the_last_digit(
        self, stack: RunningStack, task_id: uuid.UUID
    ) -> None:
        """ClickHouse's sum equals the arithmetic done here on the usage records of the log."""
        events = await stack.events(Stream.USAGE)
        pico = 0
        for stored in events[Stream.USAGE]:
            if stored.subject.split(".")[3] != str(task_id):
                continue
            data = json.loads(stored.body)["data"]
            if "classes" in data:
                pico += data["classes"]["input_uncached"] * 150_000
                pico += data["classes"]["output_text"] * 600_000
                assert data["classes"]["input_uncached"] == 1020
            elif "gpu_milli" in data:
                assert data["gpu_milli"] == 500
                pico += half_even(3_000_000 * data["gpu_milli"] * data["duration_ms"], 3600)
            else:
                pico += half_even(40_000 * data["cpu_milli"] * data["duration_ms"], 3600)
        query = f"SELECT sum(amount_usd) FROM charges FINAL WHERE task_id = '{task_id}'"
        assert stack.sql(query) == [(Decimal(pico).scaleb(-12),)]

    async def test_the_chain_of_digests_holds(self, stack: RunningStack) -> None:
        """Each own event names the digest of the one before it."""
        events = await stack.events(Stream.ADMISSION, Stream.PLACEMENT, Stream.METERING)
        for stream in events.values():
            previous = "0" * 32
            for stored in stream:
                assert json.loads(stored.body)["previous"] == previous
                previous = digest(stored.body)


def half_even(numerator: int, denominator: int) -> int:
    """Round a quotient to the nearest integer, ties to even."""
    whole, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return whole + (twice > denominator or (twice == denominator and whole % 2 == 1))
