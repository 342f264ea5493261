"""Names and ids: which are allowed, and how ids are derived instead of drawn."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Annotated
from uuid import UUID

from pydantic import StringConstraints

from orca_schemas import patterns
from orca_schemas.errors import MalformedError
from orca_schemas.positions import Position

LABEL_PATTERN = patterns.LABEL
_LABEL = re.compile(LABEL_PATTERN)
CLUSTER = "_cluster"
MS_PER_S = 1000

Label = Annotated[str, StringConstraints(pattern=LABEL_PATTERN)]
"""A lower-case DNS label (RFC 1123): 1 to 63 of a-z, 0-9 and inner hyphens."""


def check_label(field: str, value: str) -> str:
    """Return ``value`` if it is a DNS label; raises MalformedError naming ``field``."""
    if _LABEL.fullmatch(value) is None:
        raise MalformedError(field, value, patterns.LABEL_REMEDY)
    return value


def check_uuid(field: str, value: str) -> UUID:
    """Read a UUID in its canonical lower-case form; raises MalformedError naming ``field``."""
    try:
        found = UUID(value)
    except ValueError:
        raise MalformedError(field, value, "use a UUID such as uuidgen prints") from None
    if str(found) != value:
        raise MalformedError(field, value, f"write the UUID in lower case with hyphens: {found}")
    return found


def derived_id(time_ms: int, *parts: object) -> UUID:
    """Derive a UUIDv7 (RFC 9562): time bits ``time_ms`` (Unix ms), the rest a hash of parts.

    The same parts give the same id in every process and on every replay.
    """
    digest = blake2b("\x1f".join(str(part) for part in parts).encode(), digest_size=10).digest()
    value = (time_ms & ((1 << 48) - 1)) << 80 | int.from_bytes(digest, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)


def id_time_ms(identifier: UUID) -> int:
    """Return the Unix milliseconds in the time bits of a UUIDv7."""
    return identifier.int >> 80


def run_id(submission: Position, time_ms: int) -> UUID:
    """Return R, the id of the run that the submission at this CLIENT position began."""
    return derived_id(time_ms, "run", submission)


def name_id(kind: str, name: str) -> UUID:
    """Return the id of a thing whose name is no DNS label (a price's sku), from that name alone."""
    return derived_id(0, kind, name)
