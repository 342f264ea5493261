"""Why a task is where it is: every event about it, each with who, when and why."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from orca_runtime import text
from orca_runtime.authors import Author, Authors
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Stored
from orca_runtime.past import Moment
from orca_runtime.service import Explain
from orca_schemas.errors import MalformedError
from orca_schemas.positions import Position
from orca_schemas.subjects import Stream, parse_subject, task_filter

PAGE = 500
LAST = 200
"""Events shown of each stream: a task that runs for months settles usage for ever."""
ORDER = tuple(Stream)


async def events_of(log: JetStreamLog, task_id: str, until: Moment) -> list[Stored]:
    """The task's events in the order in which they came, up to a time; of each stream the last."""
    found: list[Stored] = []
    for stream in Stream:
        kept: deque[Stored] = deque(maxlen=LAST)
        after = 0
        while page := await log.find(stream, task_filter(task_id), after, PAGE):
            after = page[-1].sequence
            kept.extend(
                one for one in page if until.time_ms is None or one.time_ms <= until.time_ms
            )
        found.extend(kept)
    return sorted(found, key=lambda one: (one.time_ns, ORDER.index(Stream(one.stream))))


def data_of(stored: Stored) -> dict[str, Any]:
    """The event's data; what is no event has none."""
    try:
        data = json.loads(stored.body)["data"]
    except (ValueError, KeyError, TypeError):
        return {}
    return data if isinstance(data, dict) else {}


def why(stored: Stored) -> str:
    """What the event says of its reason, in its own words and numbers."""
    data = data_of(stored)
    said = [words for field, say in _SAYS.items() if field in data and (words := say(data[field]))]
    return "; ".join(said)


def _reasons(reasons: Any) -> str:
    return ", ".join(f"{one.get('code')}: {one.get('message')}" for one in reasons or ())


def _text(name: str) -> Callable[[Any], str]:
    return lambda value: "" if value in (None, "") else f"{name}{value}"


_SAYS: Mapping[str, Callable[[Any], str]] = {
    "reasons": _reasons,
    "blockers": _reasons,
    "reason": lambda one: _reasons([one]) if isinstance(one, dict) else str(one),
    "outcome": _text(""),
    "exit_code": _text("exit code "),
    "message": _text(""),
    "node": _text("on "),
    "part": _text("part "),
    "used_tokens": lambda used: f"{used:,} tokens in all" if used else "",
    "granted_tokens": lambda tokens: "" if tokens is None else f"may use {tokens:,} tokens",
    "total_pico_usd": lambda pico: f"{pico:,} pico-USD in all",
    "final": lambda final: "final" if final else "",
    "about": _text(""),
    "fault": lambda fault: str(fault.get("error", "")),
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", help="the task's id")
    parser.add_argument("--at", help="a time; default: now")
    parser.add_argument("--json", action="store_true", help="one JSON document")


async def _run(log: JetStreamLog, options: Namespace) -> int:
    until = Moment.parse(options.at) if options.at else Moment()
    if until.sequence is not None:
        raise MalformedError("at", options.at, "a task's events stand in many streams; give a time")
    found = await events_of(log, options.task, until)
    if not found:
        raise MalformedError("task", options.task, "no event is about it")
    authors = Authors(log)
    named = [(stored, await authors.of(stored)) for stored in found]
    print(json.dumps([_as_json(*one) for one in named]) if options.json else _shown(named))
    return 0


TASK = Explain(_arguments, _run)


def _shown(named: list[tuple[Stored, Author]]) -> str:
    last = named[-1][0]
    where = parse_subject(last.subject)
    head = (
        f"{where.namespace} task {where.id}: {len(named)} events, "
        f"the last at {text.clock(last.time_ms)} UTC"
    )
    columns = ("TIME (UTC)", "POSITION", "EVENT", "CAUSE", "BY", "WHY")
    return f"{head}\n\n{text.table(columns, [_row(*one) for one in named])}"


def _row(stored: Stored, author: Author) -> tuple[str, ...]:
    return (
        text.clock(stored.time_ms),
        f"{stored.stream}#{stored.sequence}",
        parse_subject(stored.subject).event,
        _cause(stored),
        author.words(),
        why(stored),
    )


def _cause(stored: Stored) -> str:
    try:
        position = Position.parse(json.loads(stored.body)["cause"])
    except (ValueError, KeyError, TypeError, MalformedError):
        return "-"
    return f"{position.stream}#{position.sequence}"


def _as_json(stored: Stored, author: Author) -> dict[str, Any]:
    return {
        "position": str(stored.position),
        "time_ms": stored.time_ms,
        "subject": stored.subject,
        "event": parse_subject(stored.subject).event,
        "cause": _cause(stored),
        "by": author.words(),
        "first_cause": author.position,
        "why": why(stored),
        "data": data_of(stored),
    }
