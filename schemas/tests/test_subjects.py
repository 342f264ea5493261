"""Subjects: what is written is read back, and nothing else is read."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_schemas.errors import MalformedError
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import (
    Kind,
    Role,
    Stream,
    ask_subject,
    hint_subject,
    logs_subject,
    parse_subject,
    stream_filter,
    subject,
    task_filter,
    telemetry_subject,
)

TASK = "019ad8f0-3c5b-7b1e-9a44-5d2f0c6e1a77"
TEXT = f"orca.team-alpha.task.{TASK}.client.alice.TaskSubmitted"
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
KINDS_NAMED_BY_UUID = (Kind.TASK, Kind.PRICE)


@given(
    namespace=LABELS | st.just("_cluster"),
    kind=st.sampled_from(Kind),
    label=LABELS,
    uuid=st.uuids().map(str),
    role=st.sampled_from(Role),
    party=LABELS | st.just("-"),
    event=st.sampled_from(sorted(EVENTS)),
)
def test_a_subject_is_read_back_as_it_was_written(
    namespace, kind, label, uuid, role, party, event
) -> None:
    """Given any lawful parts, when written and read, then the parts are the same."""
    id_ = uuid if kind in KINDS_NAMED_BY_UUID else label
    written = subject(namespace, kind, id_, role, party, event)
    assert parse_subject(str(written)) == written
    assert len(str(written).split(".")) == 7


def test_a_subject_says_in_which_stream_it_stands() -> None:
    """Given each role, then its stream; probes speak in USAGE."""
    assert parse_subject(TEXT).stream is Stream.CLIENT
    assert parse_subject(TEXT.replace("client", "probe")).stream is Stream.USAGE


@pytest.mark.parametrize(
    ("text", "field"),
    [
        pytest.param("", "subject", id="nothing"),
        pytest.param(TEXT.removesuffix(".TaskSubmitted"), "subject", id="six-tokens"),
        pytest.param(f"{TEXT}.v1", "subject", id="eight-tokens"),
        pytest.param(TEXT.replace("team-alpha", "team.alpha"), "subject", id="dot-in-name"),
        pytest.param(TEXT.replace("orca", "other"), "subject", id="other-root"),
        pytest.param(TEXT.replace("team-alpha", ""), "namespace", id="empty-namespace"),
        pytest.param(TEXT.replace("team-alpha", "team alpha"), "namespace", id="space"),
        pytest.param(TEXT.replace("team-alpha", "*"), "namespace", id="star"),
        pytest.param(TEXT.replace("team-alpha", ">"), "namespace", id="greater"),
        pytest.param(TEXT.replace("team-alpha", "Team"), "namespace", id="upper-case"),
        pytest.param(TEXT.replace("team-alpha", "-team"), "namespace", id="leading-hyphen"),
        pytest.param(TEXT.replace("team-alpha", "team\n"), "namespace", id="line-break"),
        pytest.param(TEXT.replace("team-alpha", "te\x00am"), "namespace", id="nul"),
        pytest.param(TEXT.replace("team-alpha", "t" * 64), "namespace", id="64-characters"),
        pytest.param(TEXT.replace("team-alpha", "té"), "namespace", id="no-ascii"),
        pytest.param(TEXT.replace("team-alpha", "٣"), "namespace", id="arabic-digit"),
        pytest.param(TEXT.replace("team-alpha", "_other"), "namespace", id="underscore"),
        pytest.param(TEXT.replace(".task.", ".job."), "kind", id="unknown-kind"),
        pytest.param(TEXT.replace(TASK, "job-1"), "id", id="no-uuid"),
        pytest.param(TEXT.replace(TASK, TASK.upper()), "id", id="upper-case-uuid"),
        pytest.param(TEXT.replace(TASK, TASK.replace("-", "")), "id", id="uuid-without-hyphens"),
        pytest.param(TEXT.replace(".client.", ".root."), "role", id="unknown-role"),
        pytest.param(TEXT.replace("alice", "al ice"), "party", id="space-in-party"),
        pytest.param(TEXT.replace("alice", ""), "party", id="empty-party"),
        pytest.param(
            TEXT.replace("TaskSubmitted", "taskSubmitted"), "event", id="lower-case-event"
        ),
        pytest.param(TEXT.replace("TaskSubmitted", "Task_"), "event", id="odd-event"),
        pytest.param(TEXT.replace("TaskSubmitted", ""), "event", id="empty-event"),
        pytest.param(TEXT.replace("TaskSubmitted", ">"), "event", id="greater-as-event"),
    ],
)
def test_a_subject_that_breaks_the_rules_is_refused_by_the_part_that_is_wrong(text, field) -> None:
    """Given a subject with one wrong part, when read, then the error names that part."""
    with pytest.raises(MalformedError) as refused:
        parse_subject(text)
    assert refused.value.field == field
    assert str(refused.value).isprintable()


@given(st.text())
def test_no_text_makes_the_reader_fail_otherwise(text) -> None:
    """Given any text, when read, then it is a subject or a MalformedError."""
    with suppress(MalformedError):
        assert str(parse_subject(text)) == text


def test_filters_name_one_stream_or_one_task() -> None:
    """Given a stream or a task, then the filter leaves just the rest open."""
    assert stream_filter(Stream.USAGE) == "orca.*.*.*.probe.*.*"
    assert task_filter(TASK) == f"orca.*.task.{TASK}.*.*.*"
    assert task_filter(TASK, "team-alpha") == f"orca.team-alpha.task.{TASK}.*.*.*"
    with pytest.raises(MalformedError):
        task_filter(">")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(
            lambda part: ask_subject(part, "alice", "admission", "tasks"),
            "orca.ask.{}.alice.admission.tasks",
            id="ask",
        ),
        pytest.param(
            lambda part: telemetry_subject(part, "heartbeat"),
            "orca.telemetry.{}.heartbeat",
            id="telemetry",
        ),
        pytest.param(
            lambda part: logs_subject("team-alpha", part, TASK, "node-1"),
            f"orca.logs.team-alpha.{{}}.{TASK}.node-1",
            id="logs",
        ),
        pytest.param(hint_subject, "orca.hint.{}", id="hint"),
    ],
)
def test_what_stands_beside_the_log_takes_one_token_per_part(build, expected) -> None:
    """Given a part with a dot or a wildcard tail, when built, then it is refused."""
    assert build("a-1") == expected.format("a-1")
    assert build("*") == expected.format("*")
    for part in ("", "a.b", ">", "a b", "A", "a\n", "a\x00", "*a"):
        with pytest.raises(MalformedError):
            build(part)
