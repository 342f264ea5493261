"""Errors of the edge: each names the field, the value and the remedy."""

from __future__ import annotations

from reprlib import Repr

from pydantic import BaseModel, ValidationError

from orca_schemas.explain import explain

SHOWN_VALUE_CHARS = 80
SHOWN_FIELD_CHARS = 160
SHOWN_REMEDY_CHARS = 600
"""Field, value and remedy together stay below what an event's text may hold (1,000)."""

_REPR = Repr()
_REPR.maxlevel = 3


class OrcaError(Exception):
    """Root of every error that Orca raises on purpose."""


class MalformedError(OrcaError):
    """Bytes or values from outside that break the contract.

    ``field`` is a dotted path, ``value`` what stood there, ``remedy`` what to do. All three are
    shortened and printable, whatever the sender wrote.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = printable(field, SHOWN_FIELD_CHARS)
        self.value = shown(value)
        self.remedy = printable(remedy, SHOWN_REMEDY_CHARS)
        super().__init__(f"{self.field}: {self.value}: {self.remedy}")


class UnknownVersionError(MalformedError):
    """An event name or version that this release does not know."""


def printable(text: str, max_chars: int) -> str:
    """Escape what does not print (control characters, lone surrogates) and cut to ``max_chars``."""
    clean = "".join(c if c.isprintable() else _escaped(c) for c in text[: max_chars + 1])
    return clean if len(clean) <= max_chars else f"{clean[: max_chars - 1]}…"


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown(value: object) -> str:
    """Render a value for a person: printable, text in quotes, at most SHOWN_VALUE_CHARS of it."""
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN_VALUE_CHARS].decode(errors="replace")
    if isinstance(value, str):
        return f"'{printable(value, SHOWN_VALUE_CHARS)}'"
    try:
        text = _REPR.repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python will print
        text = f"({type(value).__name__})"
    return printable(text, SHOWN_VALUE_CHARS)


def from_validation(
    error: ValidationError, prefix: str = "", model: type[BaseModel] | None = None
) -> MalformedError:
    """Turn pydantic's report into one error that names the first field and lists the others.

    ``model`` is what was validated: it lets a misspelled field be told from an unknown one.
    """
    return MalformedError(*explain(error, prefix, model))
