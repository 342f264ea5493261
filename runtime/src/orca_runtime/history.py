"""What the log holds about one task: its events and its output.

Who asks from a namespace sees that namespace only: what its events say of a task, whoever else
uses the same task id.
"""

from __future__ import annotations

from typing import Any

from orca_schemas.asks import History, HistoryEvent, LogLine, LogQuery, Logs, TaskQuery
from orca_schemas.errors import MalformedError
from orca_schemas.identifiers import CLUSTER
from orca_schemas.subjects import Stream, logs_subject, task_filter
from pydantic_core import from_json

from orca_runtime.asks import Ask
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Stored
from orca_runtime.streams import LOGS


async def history(log: JetStreamLog, query: TaskQuery, ask: Ask) -> History:
    """Every event about the task, by time; of each stream the first ``limit``."""
    if query.task_id is None:
        raise MalformedError("task_id", "(missing)", "say which task")
    subject_filter = task_filter(str(query.task_id), _seen(ask))
    found: list[Stored] = []
    for stream in Stream:
        if stream is not Stream.ADMIN:
            found.extend(await log.find(stream, subject_filter, 0, query.limit))
    return History(events=tuple(map(_event, sorted(found, key=lambda one: one.time_ns))))


def _seen(ask: Ask) -> str:
    return "*" if ask.namespace == CLUSTER else ask.namespace


def _event(stored: Stored) -> HistoryEvent:
    """Clients write what they like under a task's id: none of it may hide the rest."""
    body = _object(stored.body)
    return HistoryEvent(
        position=str(stored.position),
        time_ms=stored.time_ms,
        subject=stored.subject,
        event=stored.subject.rpartition(".")[2],
        cause=_text(body.get("cause")),
        run=_text(body.get("correlationid")),
        traceparent=_text(body.get("traceparent")),
        data=_data(body.get("data", {})),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _data(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"unreadable": repr(value)[:200]}


def _object(body: bytes) -> dict[str, Any]:
    """What stands in the log may be no event at all: it is shown as far as it can be."""
    try:
        found = from_json(body)  # refuses what an answer could not carry: half a surrogate pair
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"data": {"unreadable": repr(body[:200])}}


async def logs(log: JetStreamLog, query: LogQuery, ask: Ask) -> Logs:
    """The next pieces of the task's output."""
    subject_filter = logs_subject(_seen(ask), "*", str(query.task_id), "*")
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
