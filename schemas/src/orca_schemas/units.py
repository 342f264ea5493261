"""Quantities as people write them, read into integers whose names say their unit."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

MAX_AMOUNT = 2**53 - 1
"""No amount is larger: JavaScript clients must read every integer exactly."""

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([A-Za-z]{0,2})")
_MEMORY_BYTES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_DURATION = re.compile(
    r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?"
)
_DURATION_MS = (86_400_000, 3_600_000, 60_000, 1000, 1)
MIB = 2**20


def _split(value: object, example: str) -> tuple[Fraction, str]:
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"write a positive quantity such as {example}")
    return Fraction(found[1]), found[2]


def parse_cpu_milli(value: object) -> int:
    """Read a Kubernetes CPU quantity, ``"4"``, ``"0.5"`` or ``"500m"``, into milli-CPU (>= 1)."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    number, unit = _split(value, '"4" or "500m"')
    if unit not in ("", "m"):
        raise ValueError('write CPU as cores or milli-cores, such as "4" or "500m"')
    return _whole(number if unit == "m" else number * 1000, "one milli-core (1m)")


def parse_memory_mib(value: object) -> int:
    """Read a memory quantity, ``"16Gi"`` or ``"512Mi"``, into MiB (>= 1); fractions are refused."""
    number, unit = _split(value, '"16Gi" or "512Mi"')
    if unit not in _MEMORY_BYTES:
        raise ValueError('write memory with a unit of k, M, G, T, Ki, Mi, Gi or Ti, such as "16Gi"')
    return _whole(number * _MEMORY_BYTES[unit] / MIB, "one MiB (1Mi)")


def _whole(number: Fraction, smallest: str) -> int:
    if number.denominator != 1 or number < 1:
        raise ValueError(f"must be a whole multiple of {smallest}, and at least that")
    if number > MAX_AMOUNT:
        raise ValueError(f"must be at most {MAX_AMOUNT} of {smallest}")
    return int(number)


def parse_duration_ms(value: object) -> int:
    """Read a duration, ``"30m"``, ``"1h30m"`` or ``"500ms"``, into milliseconds (>= 1)."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not any(found.groups()):
        raise ValueError('write a positive duration such as "30s", "30m" or "1h30m"')
    total = sum(int(part or 0) * ms for part, ms in zip(found.groups(), _DURATION_MS, strict=True))
    if not 1 <= total <= MAX_AMOUNT:
        raise ValueError(f"must be between 1 and {MAX_AMOUNT} milliseconds")
    return total


CpuQuantity = Annotated[
    int,
    BeforeValidator(parse_cpu_milli, json_schema_input_type=str | int),
    PlainSerializer(lambda milli: f"{milli}m", return_type=str),
]
MemoryQuantity = Annotated[
    int,
    BeforeValidator(parse_memory_mib, json_schema_input_type=str),
    PlainSerializer(lambda mib: f"{mib}Mi", return_type=str),
]
DurationQuantity = Annotated[
    int,
    BeforeValidator(parse_duration_ms, json_schema_input_type=str),
    PlainSerializer(lambda ms: f"{ms}ms", return_type=str),
]

Amount = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
"""A count or measure: 0 to 2**53 - 1."""
Positive = Annotated[int, Field(ge=1, le=MAX_AMOUNT)]
"""Like Amount, but at least 1."""
UnixMs = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
"""A time as Unix milliseconds, UTC."""
PicoUsd = Annotated[int, Field(ge=-(10**30), le=10**30)]
"""Money in 1e-12 US dollars: a token count times micro-USD per million tokens, without rounding."""

PICO_PER_MICRO = 10**6
PICO_PER_USD = 10**12
