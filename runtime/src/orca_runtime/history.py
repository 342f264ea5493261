"""What the log holds about one task: its events and its output."""

from __future__ import annotations

import json
from typing import Any

from orca_schemas.asks import MAX_ROWS, History, HistoryEvent, LogLine, LogQuery, Logs, TaskQuery
from orca_schemas.errors import MalformedError
from orca_schemas.subjects import Stream, logs_subject, parse_subject, task_filter

from orca_runtime.asks import Ask
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Stored
from orca_runtime.streams import LOGS


async def history(log: JetStreamLog, query: TaskQuery, _: Ask) -> History:
    """Every event about the task, by time; at most MAX_ROWS of each stream."""
    if query.task_id is None:
        raise MalformedError("task_id", "(missing)", "say which task")
    subject_filter = task_filter(str(query.task_id))
    found: list[Stored] = []
    for stream in Stream:
        if stream is not Stream.ADMIN:
            found.extend(await log.find(stream, subject_filter, 0, MAX_ROWS))
    return History(events=tuple(map(_event, sorted(found, key=lambda one: one.time_ns))))


def _event(stored: Stored) -> HistoryEvent:
    body = _object(stored.body)
    return HistoryEvent(
        position=str(stored.position),
        time_ms=stored.time_ms,
        subject=stored.subject,
        event=parse_subject(stored.subject).event,
        cause=body.get("cause"),
        run=body.get("correlationid"),
        traceparent=body.get("traceparent"),
        data=body.get("data", {}),
    )


def _object(body: bytes) -> dict[str, Any]:
    """What stands in the log may be no event at all: it is shown as far as it can be."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"data": {"unreadable": repr(body[:200])}}


async def logs(log: JetStreamLog, query: LogQuery, ask: Ask) -> Logs:
    """The next pieces of the task's output."""
    subject_filter = logs_subject("*", "*", str(query.task_id), "*")
    found = await log.find(LOGS, subject_filter, query.after, query.limit)
    last = found[-1].sequence if found else query.after
    return Logs(chunks=tuple(map(_chunk, found)), last=last)


def _chunk(stored: Stored) -> LogLine:
    body = _object(stored.body)
    return LogLine(
        sequence=stored.sequence,
        node=stored.subject.split(".")[-1],
        attempt=body.get("attempt", 0),
        offset=body.get("offset", 0),
        text=body.get("text", ""),
    )
