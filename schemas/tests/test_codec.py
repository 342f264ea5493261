"""The codec: bytes become the event that the subject promises, or an error that says why not."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orca_schemas import upcasts
from orca_schemas.codec import (
    MAX_BODY_BYTES,
    MAX_INPUT_BODY_BYTES,
    decode,
    digest,
    encode,
    kind_of,
    may_say,
)
from orca_schemas.envelope import Envelope
from orca_schemas.errors import MalformedError, UnknownVersionError
from orca_schemas.events.client import TaskCancelRequested, TaskSubmitted
from orca_schemas.events.common import Noted, NothingNoted
from orca_schemas.gpu_types import MEMORY_MIB_BY_TYPE
from orca_schemas.manifest import AITask, parse_manifest
from orca_schemas.registry import EVENTS
from orca_schemas.spec import spec_of
from orca_schemas.subjects import Kind, Role, Subject, parse_subject

TASK = "019ad8f0-3c5b-7b1e-9a44-5d2f0c6e1a77"
SUBMITTED = parse_subject(f"orca.team-alpha.task.{TASK}.client.alice.TaskSubmitted")
CANCEL = SUBMITTED._replace(event="TaskCancelRequested")
CANCEL_BODY = b'{"type": "orca.TaskCancelRequested.v1", "data": {"reason": "wrong model"}}'


def body_of(manifest: object) -> bytes:
    """A submission as any client may send it: type and data, and nothing else."""
    body = {"type": "orca.TaskSubmitted.v1", "data": {"manifest": manifest}}
    return json.dumps(body).encode()


def refused(subject: Subject, body: bytes) -> MalformedError:
    """What decoding says of bytes that it does not take."""
    with pytest.raises(MalformedError) as error:
        decode(subject, body)
    assert str(error.value).isprintable()
    assert len(str(error.value)) <= 1000
    return error.value


def test_a_client_need_send_only_type_and_data(manifest) -> None:
    """Given the least body, when decoded, then the event is there and the rest is absent."""
    envelope = decode(SUBMITTED, body_of(manifest))
    assert envelope.data == TaskSubmitted(manifest=parse_manifest(manifest))
    assert (envelope.id, envelope.cause, envelope.cursor) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param(b"", "body", id="empty"),
        pytest.param(b"hello", "body", id="no-json"),
        pytest.param(b"{", "body", id="cut-off"),
        pytest.param(b"[1]", "body", id="array"),
        pytest.param(b"null", "body", id="null"),
        pytest.param(b"5", "body", id="number"),
        pytest.param(b"\xff\xfe{\x00}\x00", "body", id="utf-16"),
        pytest.param(b"\xef\xbb\xbf" + CANCEL_BODY, "body", id="byte-order-mark"),
        pytest.param(CANCEL_BODY.replace(b"wrong", b"\xff"), "body", id="no-utf-8"),
        pytest.param(CANCEL_BODY.replace(b"wrong", b"\\ud800"), "body", id="lone-surrogate"),
        pytest.param(CANCEL_BODY.replace(b"wrong", b"a\x01b"), "body", id="raw-control-character"),
        pytest.param(b"[" * 100_000, "body", id="100000-brackets"),
        pytest.param(b'{"data":' * 10_000, "body", id="10000-braces"),
        pytest.param(
            b'{"type":"orca.TaskCancelRequested.v1","data":' + b"[" * 500 + b"]" * 500 + b"}",
            "body",
            id="deep-but-json",
        ),
        pytest.param(b"x" * 10_000_000, "body", id="10-mb"),
        pytest.param(b'{"type": 1' + b"0" * 5000 + b"}", "body", id="5000-digits"),
        pytest.param(b"{}", "type", id="no-type"),
        pytest.param(b'{"type": null, "data": {}}', "type", id="null-type"),
        pytest.param(b'{"type": ["x"], "data": {}}', "type", id="type-of-another-type"),
        pytest.param(CANCEL_BODY.replace(b".v1", b".v0"), "type", id="version-0"),
        pytest.param(CANCEL_BODY.replace(b".v1", b".v01"), "type", id="version-01"),
        pytest.param(CANCEL_BODY.replace(b".v1", b".v\xd9\xa1"), "type", id="arabic-version"),
        pytest.param(CANCEL_BODY.replace(b"Cancel", b"Start"), "type", id="another-event"),
        pytest.param(b'{"type": "orca.TaskCancelRequested.v1"}', "data", id="no-data"),
        pytest.param(CANCEL_BODY.replace(b'{"reason"', b'{"resaon"'), "data.resaon", id="spelling"),
        pytest.param(CANCEL_BODY.replace(b'"wrong model"', b"5"), "data.reason", id="wrong-type"),
        pytest.param(CANCEL_BODY.replace(b'"type"', b'"more": 1, "type"'), "more", id="extra"),
        pytest.param(CANCEL_BODY.replace(b'"type"', b'"id": "1", "type"'), "id", id="id-no-uuid"),
        pytest.param(
            CANCEL_BODY.replace(b'"type"', b'"subject": "orca.x", "type"'), "subject", id="subject"
        ),
        pytest.param(
            CANCEL_BODY.replace(b'"type"', b'"traceparent": "00-x", "type"'),
            "traceparent",
            id="traceparent",
        ),
    ],
)
def test_bytes_that_break_the_contract_are_refused_by_field(body, field) -> None:
    """Given a broken body, when decoded, then the error names what is wrong."""
    error = refused(CANCEL, body)
    assert error.field == field
    assert not isinstance(error, UnknownVersionError)


@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "1e309", "1.0", "-1", "0", "true", '"5"', f"1{'0' * 400}"],
)
def test_no_number_is_bent_into_an_amount(manifest, number) -> None:
    """Given a number that is no positive bounded integer, when decoded, then it is refused."""
    body = body_of(manifest).replace(b"500000", number.encode())
    assert refused(SUBMITTED, body).field == "data.manifest.spec.resources.tokenQuota"


def test_an_unknown_version_is_told_from_a_malformed_body() -> None:
    """Given a newer version or an unknown event, when decoded, then the error says just that."""
    newer = refused(CANCEL, CANCEL_BODY.replace(b".v1", b".v2"))
    assert isinstance(newer, UnknownVersionError)
    assert (newer.field, newer.remedy) == ("type", "this release reads v1")
    unknown = refused(CANCEL._replace(event="TaskDreamt"), CANCEL_BODY)
    assert isinstance(unknown, UnknownVersionError)
    assert unknown.field == "subject.event"


def test_only_the_role_whose_event_it_is_may_say_it() -> None:
    """Given every event and role, then decode takes it from the roles that may say it alone."""
    for name, event in EVENTS.items():
        for role in Role:
            about = SUBMITTED._replace(role=role, event=name, kind=event.KIND or Kind.TASK)
            error = refused(about, b"{}")
            assert (error.field == "subject.role") != may_say(role, event)
    assert not any(may_say(role, Noted) for role in (Role.CLIENT, Role.ADMIN, Role.NODE))


def test_an_event_is_about_its_own_kind_of_thing() -> None:
    """Given a task's event under an account's subject, when decoded, then it is refused."""
    about = CANCEL._replace(kind=Kind.ACCOUNT, id="team-alpha")
    assert refused(about, CANCEL_BODY).field == "subject.kind"
    assert kind_of(TaskCancelRequested(), Kind.ACCOUNT) is Kind.TASK
    assert kind_of(Noted(about="x", fact=NothingNoted()), Kind.ACCOUNT) is Kind.ACCOUNT


def test_what_users_may_say_fits_into_what_deciders_repeat_of_it(manifest) -> None:
    """Given the largest submission, when its spec is reserved, then that event is read again."""
    spec = manifest["spec"]
    spec["command"] = ["x" * 8000] * 15
    body = body_of(manifest)
    assert 0.9 * MAX_INPUT_BODY_BYTES < len(body) <= MAX_INPUT_BODY_BYTES
    task = spec_of(decode(SUBMITTED, body).data.manifest, "alice")
    assert len(task.model_dump_json()) < MAX_BODY_BYTES / 2
    spec["command"] = ["x" * 8000] * 17
    assert "131072 bytes" in refused(SUBMITTED, body_of(manifest)).remedy


def test_of_two_equal_keys_the_last_stands_in_every_reader(manifest) -> None:
    """Given a key twice, when decoded, then it is read as Python's own JSON reader does."""
    body = body_of(manifest).replace(b'"count": 1', b'"count": 1, "count": 2')
    assert decode(SUBMITTED, body).data.manifest.spec.resources.gpu.count == 2
    assert json.loads(body)["data"]["manifest"]["spec"]["resources"]["gpu"]["count"] == 2


def test_an_older_version_is_brought_to_the_newest(monkeypatch) -> None:
    """Given v1 of an event whose newest is v2, when decoded, then its upcast made it v2."""
    monkeypatch.setattr(TaskCancelRequested, "VERSION", 2)
    error = refused(CANCEL, CANCEL_BODY)
    assert isinstance(error, UnknownVersionError)
    assert error.remedy == "send v2"
    monkeypatch.setitem(
        upcasts.UPCASTS,
        ("TaskCancelRequested", 1),
        lambda data: {"reason": f"{data['reason']} (v1)"},
    )
    envelope = decode(CANCEL, CANCEL_BODY)
    assert (envelope.type, envelope.data.reason) == (
        "orca.TaskCancelRequested.v2",
        "wrong model (v1)",
    )
    for data in (b"[]", b"null", b'"x"'):
        body = b'{"type": "orca.TaskCancelRequested.v1", "data": ' + data + b"}"
        assert refused(CANCEL, body).field == "data"


def test_a_digest_is_of_the_bytes() -> None:
    """Given the same meaning in other bytes, then the digest differs; its form is fixed."""
    assert digest(b"{}") == digest(b"{}") != digest(b"{ }")
    assert len(digest(b"")) == 32


@given(st.binary(max_size=400) | st.text().map(str.encode))
def test_no_bytes_make_the_reader_fail_otherwise(body) -> None:
    """Given any bytes, when decoded, then it is an event or a MalformedError."""
    with suppress(MalformedError):
        decode(CANCEL, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["metadata", "spec", "spec.resources.gpu", "spec.command", "spec.env"]), JSON
)
def test_no_json_in_a_manifest_makes_the_reader_fail_otherwise(path, value) -> None:
    """Given a manifest with any JSON at some place, then both readers agree on what it is."""
    document: dict[str, Any] = {
        "apiVersion": "orca.ai/v1",
        "kind": "AITask",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"taskType": "batch", "image": "i", "command": ["c"], "resources": {"gpu": None}},
    }
    *outer, last = path.split(".")
    place = document
    for part in outer:
        place = place[part]
    place[last] = value
    with pytest.raises(MalformedError) if not _taken(document) else nullcontext():
        decode(SUBMITTED, body_of(document))


def _taken(document: object) -> bool:
    try:
        parse_manifest(document)
    except MalformedError:
        return False
    return True


LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
PRINTABLE = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30
)
ARGUMENTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=30)
DURATIONS = st.integers(1, 2**53 - 1).map(lambda ms: f"{ms}ms")
MEMORY = st.integers(1, 8 * 1024).map(lambda mib: f"{mib}Mi")
SHARED = st.fixed_dictionaries(
    {
        "type": st.sampled_from(sorted(MEMORY_MIB_BY_TYPE)),
        "sharing": st.just("shared"),
        "memoryLimit": MEMORY,
    },
    optional={"computePercent": st.integers(1, 100), "count": st.integers(1, 16)},
)
WHOLE = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(MEMORY_MIB_BY_TYPE))},
    optional={"memoryLimit": MEMORY, "count": st.integers(1, 16), "sharing": st.just("exclusive")},
)
ENV = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z_][A-Za-z0-9_]{0,20}", fullmatch=True),
        "value": ARGUMENTS,
    }
)
MANIFESTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("orca.ai/v1"),
        "kind": st.just("AITask"),
        "metadata": st.fixed_dictionaries(
            {"name": LABELS, "namespace": LABELS},
            optional={"labels": st.dictionaries(LABELS, PRINTABLE, max_size=3)},
        ),
        "spec": st.fixed_dictionaries(
            {
                "taskType": st.sampled_from(["training", "inference", "batch", "interactive"]),
                "image": st.from_regex(r"[a-z][a-z0-9./:@-]{0,30}", fullmatch=True),
                "command": st.lists(ARGUMENTS, min_size=1, max_size=4),
            },
            optional={
                "resources": st.fixed_dictionaries(
                    {},
                    optional={
                        "gpu": SHARED | WHOLE | st.none(),
                        "cpu": st.integers(1, 512) | st.integers(1, 10**6).map("{}m".format),
                        "memory": st.integers(1, 10**7).map("{}Mi".format),
                        "tokenQuota": st.integers(1, 2**53 - 1) | st.none(),
                    },
                ),
                "env": st.lists(ENV, max_size=3),
                "retries": st.fixed_dictionaries(
                    {},
                    optional={
                        "backoffLimit": st.integers(0, 100),
                        "onNodeLoss": st.sampled_from(["wait", "requeue"]),
                    },
                ),
                "activeDeadline": DURATIONS | st.none(),
                "schedulerHints": st.fixed_dictionaries(
                    {},
                    optional={
                        "priority": st.sampled_from(["low", "normal", "high", "urgent"]),
                        "queue": LABELS,
                        "estimatedDuration": DURATIONS,
                    },
                ),
                "metricsCollection": st.fixed_dictionaries(
                    {},
                    optional={
                        "enableGpuMonitoring": st.booleans(),
                        "trackTokenUsage": st.booleans(),
                        "reportInterval": DURATIONS,
                    },
                ),
            },
        ),
    }
)


@settings(max_examples=200)
@given(MANIFESTS)
def test_every_valid_manifest_survives_the_log(document) -> None:
    """Given any valid manifest, when submitted and read back, then nothing of it changed."""
    manifest = parse_manifest(document)
    assert decode(SUBMITTED, body_of(document)).data.manifest == manifest
    sent = Envelope[TaskSubmitted](type=TaskSubmitted.type_name(), data={"manifest": manifest})
    received = decode(SUBMITTED, encode(sent))
    assert received == sent
    assert encode(received) == encode(sent)


@settings(max_examples=200)
@given(MANIFESTS)
def test_a_manifest_written_again_asks_for_the_same(document) -> None:
    """Given any valid manifest, when written and read again, then its spec is the same."""
    manifest = parse_manifest(document)
    again = AITask.model_validate_json(manifest.model_dump_json())
    assert spec_of(again, "alice") == spec_of(manifest, "alice")
    assert again.model_dump_json() == manifest.model_dump_json()
