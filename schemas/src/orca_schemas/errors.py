"""Errors of the edge: each names the field, the value and the remedy."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

SHOWN_VALUE_CHARS = 80
SHOWN_ERRORS = 5


class OrcaError(Exception):
    """Root of every error that Orca raises on purpose."""


class MalformedError(OrcaError):
    """Bytes or values from outside that break the contract.

    ``field`` is a dotted path, ``value`` what stood there (shortened), ``remedy`` what to do.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = shown(value)
        self.remedy = remedy
        super().__init__(f"{field}: {self.value}: {remedy}")


class UnknownVersionError(MalformedError):
    """An event name or version that this release does not know."""


def shown(value: object) -> str:
    """Render a value for a person: printable, quoted, at most SHOWN_VALUE_CHARS characters."""
    text = value if isinstance(value, str) else repr(value)
    clean = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:SHOWN_VALUE_CHARS])
    dots = "…" if len(text) > SHOWN_VALUE_CHARS else ""
    return f"'{clean}{dots}'" if isinstance(value, str) else f"{clean}{dots}"


def from_validation(error: ValidationError, prefix: str = "") -> MalformedError:
    """Turn pydantic's report into one error that names the first field and lists the others."""
    details = error.errors(include_url=False, include_context=False)
    first = details[0]
    others = [_path(d, prefix) for d in details[1:SHOWN_ERRORS]]
    more = f"; also wrong: {', '.join(others)}" if others else ""
    return MalformedError(_path(first, prefix), _input(first), f"{_message(first)}{more}")


def _path(detail: Any, prefix: str) -> str:
    parts = [prefix, *(str(part) for part in detail["loc"])]
    return ".".join(part for part in parts if part) or "body"


def _input(detail: Any) -> object:
    return "(missing)" if detail["type"] == "missing" else detail["input"]


def _message(detail: Any) -> str:
    if detail["type"] == "missing":
        return "this field is required; add it"
    if detail["type"] == "extra_forbidden":
        return "this field is not known here; remove it or check its spelling"
    message: str = detail["msg"]
    return message.removeprefix("Value error, ")
