"""Events to bytes and back. Bytes that break the contract give an error that names the field."""

from __future__ import annotations

import json
import re
from functools import cache
from hashlib import blake2b
from typing import Any

from pydantic import ValidationError

from orca_schemas.envelope import Envelope
from orca_schemas.errors import MalformedError, UnknownVersionError, from_validation
from orca_schemas.model import EventData
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import Kind, Role, Subject
from orca_schemas.upcasts import upcast

MAX_BODY_BYTES = 256 * 1024
"""An event larger than this is refused; the broker's own limit is 1 MiB."""
MAX_INPUT_BODY_BYTES = 128 * 1024
"""The bound for what users, operators, nodes and probes say. A decider repeats much of it in its
own event (a task's spec), so that must fit where its cause did."""

DIGEST_BYTES = 16
_TYPE = re.compile(r"orca\.([A-Za-z]+)\.v([1-9][0-9]{0,3})")
_DECIDERS = frozenset({Role.ADMISSION, Role.PLACEMENT, Role.METERING, Role.BILLING})


def encode(envelope: Envelope[Any]) -> bytes:
    """Write an envelope as JSON, absent attributes left out."""
    return envelope.model_dump_json().encode()


def digest(body: bytes) -> str:
    """The digest of an event's bytes, as the next event's ``previous`` carries it."""
    return blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


@cache
def envelope_type(event: type[EventData]) -> type[Envelope[Any]]:
    """The envelope whose data is this event's."""
    return Envelope[event]  # type: ignore[valid-type]


def decode(subject: Subject, body: bytes) -> Envelope[Any]:
    """Read and check an event that stands under ``subject``.

    Raises UnknownVersionError for an event or version of another release, MalformedError else.
    """
    event = _event_of(subject)
    limit = MAX_BODY_BYTES if subject.role in _DECIDERS else MAX_INPUT_BODY_BYTES
    if len(body) > limit:
        raise MalformedError("body", f"{len(body)} bytes", f"send at most {limit} bytes")
    try:
        envelope = envelope_type(event).model_validate_json(body)
    except ValidationError as error:
        envelope = _decode_slowly(event, body, error)
    if envelope.type != event.type_name():
        envelope = _decode_slowly(event, body, None)
    if envelope.subject is not None and envelope.subject != str(subject):
        raise MalformedError("subject", envelope.subject, f"it stands under {subject}; leave out")
    return envelope


def may_say(role: Role, event: type[EventData]) -> bool:
    """Whether this event is this role's to say."""
    return role in _DECIDERS if event.ROLE is None else role is event.ROLE


def _event_of(subject: Subject) -> type[EventData]:
    event = EVENTS.get(subject.event)
    if event is None:
        raise UnknownVersionError("subject.event", subject.event, "no such event in this release")
    if not may_say(subject.role, event):
        raise MalformedError("subject.role", subject.role, f"{subject.event} is not theirs to say")
    if event.KIND is not None and subject.kind is not event.KIND:
        raise MalformedError(
            "subject.kind", subject.kind, f"{subject.event} is about a {event.KIND}"
        )
    return event


def _decode_slowly(
    event: type[EventData], body: bytes, error: ValidationError | None
) -> Envelope[Any]:
    """Explain what is wrong, or read an older version."""
    raw = _json_object(body)
    name, version = _name_and_version(raw.get("type"))
    if name != event.__name__:
        raise MalformedError(
            "type", raw["type"], f"the subject says {event.__name__}; make them agree"
        )
    if version == event.VERSION:
        if error is None:
            raise MalformedError("type", raw["type"], f"write {event.type_name()}")
        raise from_validation(error, model=envelope_type(event)) from None
    data = upcast(name, version, event.VERSION, _data_of(raw))
    newest = json.dumps(raw | {"type": event.type_name(), "data": data})
    try:
        return envelope_type(event).model_validate_json(newest)
    except ValidationError as again:
        raise from_validation(again, model=envelope_type(event)) from None


def _data_of(raw: dict[str, Any]) -> dict[str, Any]:
    data = raw.get("data")
    if not isinstance(data, dict):
        raise MalformedError("data", "(missing)" if data is None else data, "write a JSON object")
    return data


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            "body", body, f"not JSON ({_why(error)}); send a JSON object"
        ) from None
    if not isinstance(raw, dict):
        raise MalformedError("body", raw, "send a JSON object with type and data")
    return raw


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno} column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"


def _name_and_version(type_: object) -> tuple[str, int]:
    found = _TYPE.fullmatch(type_) if isinstance(type_, str) else None
    if found is None:
        raise MalformedError(
            "type", "(missing)" if type_ is None else type_, "write orca.<Event>.v<N>"
        )
    return found[1], int(found[2])


def kind_of(event: EventData, cause_kind: Kind) -> Kind:
    """What an own event is about: its own kind, or its cause's."""
    return event.KIND or cause_kind
