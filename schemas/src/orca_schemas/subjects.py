"""Subjects: the only place where one is written or read. The subject says who speaks.

``orca.<namespace>.<kind>.<id>.<role>.<party>.<Event>``, seven tokens always.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from orca_schemas import patterns
from orca_schemas.errors import MalformedError
from orca_schemas.identifiers import CLUSTER, check_label, check_uuid

ROOT = "orca"
NOBODY = "-"
TOKENS = 7
_EVENT = re.compile(r"[A-Z][A-Za-z]{2,63}")
_TOKEN = re.compile(r"\*|[a-z0-9_-]{1,63}")


class Role(StrEnum):
    """Who speaks; one stream per role."""

    CLIENT = "client"
    ADMIN = "admin"
    ADMISSION = "admission"
    PLACEMENT = "placement"
    NODE = "node"
    PROBE = "probe"
    METERING = "metering"
    BILLING = "billing"


class Kind(StrEnum):
    """What an event is about."""

    TASK = "task"
    ACCOUNT = "account"
    NODE = "node"
    PRICE = "price"


class Stream(StrEnum):
    """The streams of the log."""

    CLIENT = "CLIENT"
    ADMIN = "ADMIN"
    ADMISSION = "ADMISSION"
    PLACEMENT = "PLACEMENT"
    NODE = "NODE"
    USAGE = "USAGE"
    METERING = "METERING"
    BILLING = "BILLING"


_KINDS = frozenset(Kind)
_ROLES = frozenset(Role)
STREAM_OF_ROLE = {role: Stream(role.value.upper()) for role in Role if role is not Role.PROBE} | {
    Role.PROBE: Stream.USAGE
}
ROLE_OF_STREAM = {stream: role for role, stream in STREAM_OF_ROLE.items()}


class Subject(NamedTuple):
    """An event's subject, in parts. ``id`` is a UUID (task, price) or a label (account, node)."""

    namespace: str
    kind: Kind
    id: str
    role: Role
    party: str
    event: str

    def __str__(self) -> str:
        return ".".join((ROOT, *self))

    @property
    def stream(self) -> Stream:
        """The stream that holds events of this role."""
        return STREAM_OF_ROLE[self.role]


def subject(namespace: str, kind: Kind, id_: str, role: Role, party: str, event: str) -> Subject:
    """Build a subject from checked parts; raises MalformedError naming the part that is wrong."""
    if namespace != CLUSTER:
        check_label("namespace", namespace)
    if kind in (Kind.TASK, Kind.PRICE):
        check_uuid("id", id_)
    else:
        check_label("id", id_)
    if party != NOBODY:
        check_label("party", party)
    if _EVENT.fullmatch(event) is None:
        raise MalformedError("event", event, "use an event name in CamelCase such as TaskSubmitted")
    return Subject(namespace, kind, id_, role, party, event)


def parse_subject(text: str) -> Subject:
    """Read a subject; raises MalformedError."""
    tokens = text.split(".")
    if len(tokens) != TOKENS or tokens[0] != ROOT:
        raise MalformedError(
            "subject", text, "use orca.<namespace>.<kind>.<id>.<role>.<party>.<Event>"
        )
    _, namespace, kind, id_, role, party, event = tokens
    if kind not in _KINDS:
        raise MalformedError("kind", kind, f"use one of {', '.join(Kind)}")
    if role not in _ROLES:
        raise MalformedError("role", role, f"use one of {', '.join(Role)}")
    return subject(namespace, Kind(kind), id_, Role(role), party, event)


def stream_filter(stream: Stream) -> str:
    """Return the subject filter that the stream captures."""
    return f"{ROOT}.*.*.*.{ROLE_OF_STREAM[stream]}.*.*"


def task_filter(task_id: str, namespace: str = "*") -> str:
    """Return the filter for every event about one task, in whichever stream."""
    where = _beside(namespace=namespace)
    return f"{ROOT}.{where}.{Kind.TASK}.{check_uuid('task', task_id)}.*.*.*"


LOGS_FILTER = f"{ROOT}.logs.*.*.*.*"
TELEMETRY_FILTER = f"{ROOT}.telemetry.*.*"


def _beside(**parts: str) -> str:
    for field, part in parts.items():
        if _TOKEN.fullmatch(part) is None:
            raise MalformedError(field, part, patterns.LABEL_REMEDY)
    return ".".join(parts.values())


def ask_subject(namespace: str, user: str, service: str, verb: str) -> str:
    """Return where a question is asked; each part may be ``*`` (to listen).

    Raises MalformedError naming the part that is no single subject token.
    """
    return f"{ROOT}.ask.{_beside(namespace=namespace, user=user, service=service, verb=verb)}"


def telemetry_subject(node: str, kind: str) -> str:
    """Return where a node's heartbeats and samples go; each part may be ``*`` (to listen)."""
    return f"{ROOT}.telemetry.{_beside(node=node, kind=kind)}"


def logs_subject(namespace: str, user: str, task_id: str, node: str) -> str:
    """Return where a task's output goes; each part may be ``*`` (to listen)."""
    return f"{ROOT}.logs.{_beside(namespace=namespace, user=user, task=task_id, node=node)}"


def inbox_prefix(user: str | None) -> str:
    """Return what every inbox of a broker's user begins with: permissions tell users apart by it.

    A broker without users has one for all. What is no letter, digit, ``-`` or ``_`` in a user's
    name becomes ``_``.
    """
    return "_INBOX" if user is None else "_INBOX_" + re.sub(r"[^A-Za-z0-9_-]", "_", user)


def hint_subject(node: str) -> str:
    """Return where a node is told to ask again."""
    return f"{ROOT}.hint.{_beside(node=node)}"
