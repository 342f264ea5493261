"""Wrong inputs on the running stack: each is answered once, by name, and nobody else is held up."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bad_inputs import KIB, LETTER, NAMESPACE, RESERVED, Bad, all_bad, manifest, submitted
from checks import event_of
from nats.errors import MaxPayloadError, NoRespondersError
from orca_client.connection import Connection
from orca_client.submit import submit
from orca_runtime.log import Stored
from orca_schemas.asks import TaskRow
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, ended, eventually, make_namespace

ALL_BAD = all_bad()
OF_PEOPLE = (Stream.CLIENT, Stream.ADMIN)
UNPLACEABLE_S = 25.0
YAML_MIB = 10


@dataclass(frozen=True)
class Aftermath:
    """The log once every wrong input was sent, and a good task after them ran to its end."""

    sent: dict[str, str]
    events: dict[str, list[Stored]]
    good: TaskRow

    def answers(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """What admission said to an input."""
        return self.by_cause(Stream.ADMISSION)[self.sent[name]]

    def by_cause(self, stream: Stream) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Events of a stream by the position of the input that they answer."""
        found = defaultdict(list)
        for stored in self.events[stream]:
            found[json.loads(stored.body).get("cause")].append(event_of(stored))
        return found


@pytest.fixture(scope="module")
def after(stack: RunningStack) -> Aftermath:
    """Send everything, then a good task; wait for its end."""
    return asyncio.run(_send_all(stack))


async def _send_all(stack: RunningStack) -> Aftermath:
    limits = {"tasks": 100, "tokens": 10**9, "gpu_milli": 4000}
    async with await Connection.open(stack.nats_url, "alice") as alice:
        await make_namespace(alice, NAMESPACE, limits)
        sent = {bad.name: await _send(alice, bad) for bad in ALL_BAD}
        made = await submit(alice, manifest())
        good = await ended(alice, made.task_id)
    events = await stack.events()
    epochs = {stream: events[stream][0].position.epoch for stream in OF_PEOPLE}
    positions = {
        name: f"{stream}@{epochs[Stream(stream)]}#{sequence}"
        for name, (stream, sequence) in sent.items()
    }
    return Aftermath(positions, events, good)


async def _send(connection: Connection, bad: Bad) -> tuple[str, int]:
    """Publish; returns where the broker put it."""
    reply = await connection.nc.request(bad.where, bad.body, timeout=5, headers=bad.headers)
    stored = json.loads(reply.data)
    assert "error" not in stored, (bad.name, stored)
    return stored["stream"], stored["seq"]


def reason_of(name: str, data: dict[str, Any]) -> tuple[str, str]:
    """The field that an answer names, and all that it says."""
    if name == LETTER:
        error = data["fault"]["error"]
        return error.partition(":")[0], error
    reason = data["reasons"][0] if "reasons" in data else data["reason"]
    return reason.get("field", ""), reason["message"]


@pytest.mark.parametrize("bad", ALL_BAD, ids=[bad.name for bad in ALL_BAD])
def test_each_input_is_answered_once_by_name(after: Aftermath, bad: Bad) -> None:
    """Given an input that is wrong, admission says so in one event that names the field.

    Where only the headers are odd, the task is let in.
    """
    answers = after.answers(bad.name)
    assert [name for name, _ in answers] == [bad.answer]
    if bad.answer != RESERVED:
        field, message = reason_of(*answers[0])
        assert field == bad.field
        assert len(message) > len(field) + 10, "says what stood there and what to do"


def test_a_good_task_after_them_runs_to_its_end(after: Aftermath) -> None:
    """Given all of that, the next good task succeeds."""
    assert after.good.outcome == "succeeded"


def test_nothing_that_people_said_is_left_without_an_answer(after: Aftermath) -> None:
    """I8: every message in CLIENT and ADMIN is the cause of an event of admission."""
    answered = after.by_cause(Stream.ADMISSION)
    positions = [str(one.position) for stream in OF_PEOPLE for one in after.events[stream]]
    assert [position for position in positions if position not in answered] == []
    assert len(positions) >= len(ALL_BAD)


def test_nobody_else_puts_it_aside(after: Aftermath) -> None:
    """No other service dead-letters anything, and admission only what it cannot address."""
    letters = {
        stream: [one.subject for one in stored if one.subject.endswith(LETTER)]
        for stream, stored in after.events.items()
    }
    assert len(letters.pop(Stream.ADMISSION)) == sum(bad.answer == LETTER for bad in ALL_BAD)
    assert not any(letters.values()), letters


async def test_what_fits_no_node_is_released_and_says_which_amount(
    stack: RunningStack, after: Aftermath
) -> None:
    """Given 4000 cores, or GPUs that no node has, the task ends as never_started, with numbers."""
    too_large, absent = manifest(), manifest()
    too_large["spec"]["resources"]["cpu"] = "4000"
    absent["spec"]["resources"]["gpu"]["type"] = "H200"
    async with await Connection.open(stack.nats_url, "alice") as alice:
        began = time.monotonic()
        made = [(await submit(alice, document)).task_id for document in (too_large, absent)]
        rows = [await ended(alice, task_id, UNPLACEABLE_S) for task_id in made]
        assert time.monotonic() - began < UNPLACEABLE_S
    assert [row.outcome for row in rows] == ["never_started", "never_started"]
    assert [row.reasons[0].code for row in rows] == ["never_fits", "gpu_type_absent"]
    assert [row.reasons[0].field for row in rows] == [
        "spec.resources.cpu", "spec.resources.gpu.type",
    ]  # fmt: skip
    assert rows[0].reasons[0].asked == 4_000_000


async def test_a_repeated_submission_is_refused_and_the_task_runs_once(
    stack: RunningStack, after: Aftermath
) -> None:
    """Given the same task id twice, the second is refused; one run."""
    async with await Connection.open(stack.nats_url, "alice") as alice:
        task_id = uuid.uuid4()
        for _ in range(2):
            await submit(alice, manifest(), task_id)
        assert (await ended(alice, task_id)).outcome == "succeeded"

        async def names() -> list[str]:
            events = await stack.events(Stream.ADMISSION)
            mine = [one for one in events[Stream.ADMISSION] if str(task_id) in one.subject]
            found = [event_of(one)[0] for one in mine]
            return found if "RequestRefused" in found else []

        found = await eventually("the repeat is refused", names)
    assert (found.count("QuotaReserved"), found.count("RequestRefused")) == (1, 1)


class TestTheBrokerRefuses:
    """What never reaches the log: whoever publishes is told so at once."""

    @pytest.mark.parametrize(
        "subject",
        [
            "orca.team.alpha.task.{id}.client.alice.TaskSubmitted",
            "orca.team-alpha.task.{id}.client.TaskSubmitted",
            "orca.team-alpha.task.{id}.root.alice.TaskSubmitted",
        ],
        ids=["a name with a dot", "six tokens", "an unknown role"],
    )
    async def test_a_subject_that_no_stream_takes(self, alice: Connection, subject: str) -> None:
        """Given a subject of another shape, nobody responds: nothing was stored."""
        with pytest.raises(NoRespondersError):
            await alice.nc.request(subject.format(id=uuid.uuid4()), submitted(manifest()))

    @pytest.mark.parametrize(
        "headers",
        [
            {"Nats-Expected-Last-Sequence": "999999"},
            {"Nats-Expected-Stream": "ADMIN"},
            {"Nats-Rollup": "all"},
            {"Nats-TTL": "1s"},
            {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
            {"Nats-Schedule": "@at 2030-01-01T00:00:00Z"},
            {"Nats-Incr": "+1"},
        ],
        ids=lambda headers: next(iter(headers)),
    )
    async def test_headers_that_command_the_broker(
        self, alice: Connection, stack: RunningStack, headers: dict[str, str]
    ) -> None:
        """Given a header that would purge, expire, batch or fence, the broker says no."""
        task_id = uuid.uuid4()
        subject = f"orca.{NAMESPACE}.task.{task_id}.client.alice.TaskSubmitted"
        reply = await alice.nc.request(subject, submitted(manifest()), headers=headers)
        assert json.loads(reply.data)["error"]["description"]
        stored = (await stack.events(Stream.CLIENT))[Stream.CLIENT]
        assert not any(str(task_id) in one.subject for one in stored)

    async def test_a_body_of_two_mebibytes(self, alice: Connection) -> None:
        """Given more than the broker takes, the client library refuses to send."""
        subject = f"orca.{NAMESPACE}.task.{uuid.uuid4()}.client.alice.TaskSubmitted"
        with pytest.raises(MaxPayloadError):
            await alice.nc.request(subject, b"x" * 2048 * KIB)


YAML_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)
)


class TestSubmitCommand:
    """``orca submit`` checks before it sends: exit code 2, one line with field, value, remedy."""

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ("spec: [" + "x, " * (YAML_MIB * KIB * KIB // 3) + "x]", "1048576 bytes': make it"),
            (YAML_BOMB, "'&a0': line 1, column 5: remove the anchor"),
            ("a: b: c", "YAML"),
            ("\t- x", "YAML"),
            ("[" * 100_000, "nesting depth; correct the YAML"),
            ("", "empty"),
            ("just text", "mapping"),
            ("kind: !!python/object/apply:os.system ['id']", "tag"),
            (json.dumps(manifest() | {"kind": "Pod"}), "kind: 'Pod': use 'AITask'"),
            (json.dumps(manifest()).replace('"100m"', "-1"), "spec.resources.cpu: -1: write CPU"),
            (json.dumps(manifest()).replace('"A100"', '"Z9"'), "resources.gpu.type: 'Z9': use"),
        ],
        ids=["10 MB", "a YAML bomb", "no YAML", "a tab", "100,000 brackets", "nothing",
             "just text", "a Python tag", "another kind", "a negative CPU", "no such GPU"],
    )  # fmt: skip
    def test_a_wrong_manifest_is_not_sent(
        self, stack: RunningStack, tmp_path: Path, given: str, problem: str
    ) -> None:
        """Given a manifest that is wrong, the command says where and why, quickly."""
        file = tmp_path / "task.yaml"
        file.write_text(given)
        began = time.monotonic()
        done = stack.orca("submit", str(file))
        assert time.monotonic() - began < 10
        assert (done.returncode, done.stdout) == (2, ""), done.stderr[:2000]
        assert problem in done.stderr
        assert str(file) in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr[:2000]

    async def test_one_wrong_document_among_many_stops_them_all(
        self, stack: RunningStack, after: Aftermath
    ) -> None:
        """Given a good and a wrong document, nothing is sent and the wrong one is named."""
        wrong = json.dumps(manifest() | {"kind": "Pod"})
        before = len((await stack.events(Stream.CLIENT))[Stream.CLIENT])
        given = f"{json.dumps(manifest())}\n---\n{wrong}\n"
        done = await asyncio.to_thread(stack.orca, "submit", "-", given=given)
        assert done.returncode == 2
        assert "- document 2: kind: 'Pod'" in done.stderr
        assert len((await stack.events(Stream.CLIENT))[Stream.CLIENT]) == before

    def test_a_file_that_is_not_there(self, stack: RunningStack) -> None:
        """Given no such file, the command names it."""
        done = stack.orca("submit", "/nowhere.yaml")
        assert done.returncode == 2
        assert "/nowhere.yaml" in done.stderr
