"""Quantities as people write them, read into integers whose names say their unit."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

MAX_AMOUNT = 2**53 - 1
"""No amount is larger: JavaScript clients must read every integer exactly."""

_QUANTITY = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?([A-Za-z]{0,2})")
_CPU_MILLI = {"": 1000, "m": 1}
_MEMORY_BYTES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_DURATION = re.compile(
    r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?(?:([0-9]{1,16})ms)?"
)
_DURATION_MS = (86_400_000, 3_600_000, 60_000, 1000, 1)
MIB = 2**20
_KEPT = 1024
"""Readings remembered per unit: people write the same few sizes over and over. Only what is in
order is kept, so no key is longer than the patterns allow."""

_CPU_REMEDY = 'write CPU as cores or milli-cores, "4", "0.5" or "500m", and at least "1m"'
_MEMORY_REMEDY = 'write memory as a whole number of MiB, such as "16Gi" or "512Mi"'
_DURATION_REMEDY = 'write a positive duration such as "30s", "30m", "1h30m" or "2d"'


def parse_cpu_milli(value: object) -> int:
    """Read a Kubernetes CPU quantity, ``"4"``, ``"0.5"`` or ``"500m"``, into milli-CPU (>= 1).

    Whole cores may stand without quotes. Raises ValueError.
    """
    if type(value) is int and 0 < value <= MAX_AMOUNT:
        value = str(value)
    if isinstance(value, str):
        return _cpu_milli(value)
    raise ValueError(_CPU_REMEDY)


def parse_memory_mib(value: object) -> int:
    """Read a memory quantity, ``"16Gi"`` or ``"512Mi"``, into MiB (>= 1).

    Raises ValueError, for a fraction of a MiB too.
    """
    if isinstance(value, str):
        return _memory_mib(value)
    raise ValueError(_MEMORY_REMEDY)


def parse_duration_ms(value: object) -> int:
    """Read a duration, ``"30m"``, ``"1h30m"`` or ``"500ms"``, into milliseconds (>= 1).

    Raises ValueError.
    """
    if isinstance(value, str):
        return _duration_ms(value)
    raise ValueError(_DURATION_REMEDY)


@lru_cache(_KEPT)
def _cpu_milli(text: str) -> int:
    return _quantity(text, _CPU_MILLI, 1, _CPU_REMEDY)


@lru_cache(_KEPT)
def _memory_mib(text: str) -> int:
    return _quantity(text, _MEMORY_BYTES, MIB, _MEMORY_REMEDY)


def _quantity(text: str, units: dict[str, int], divisor: int, remedy: str) -> int:
    found = _QUANTITY.fullmatch(text)
    if found is None or found[3] not in units:
        raise ValueError(remedy)
    decimals = found[2] or ""
    scale: int = 10 ** len(decimals)
    whole, rest = divmod(int(found[1] + decimals) * units[found[3]], scale * divisor)
    if rest or not 1 <= whole <= MAX_AMOUNT:
        raise ValueError(remedy)
    return whole


@lru_cache(_KEPT)
def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(_DURATION_REMEDY)
    total = sum(int(part or 0) * ms for part, ms in zip(found.groups(), _DURATION_MS, strict=True))
    if not 1 <= total <= MAX_AMOUNT:
        raise ValueError(_DURATION_REMEDY)
    return total


_QuantityText = Annotated[str, Field(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?[A-Za-z]{0,2}$")]
_DurationText = Annotated[
    str, Field(pattern=r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$", min_length=2)
]

CpuQuantity = Annotated[
    int,
    BeforeValidator(parse_cpu_milli, json_schema_input_type=_QuantityText | int),
    PlainSerializer(lambda milli: f"{milli}m", return_type=str),
]
MemoryQuantity = Annotated[
    int,
    BeforeValidator(parse_memory_mib, json_schema_input_type=_QuantityText),
    PlainSerializer(lambda mib: f"{mib}Mi", return_type=str),
]
DurationQuantity = Annotated[
    int,
    BeforeValidator(parse_duration_ms, json_schema_input_type=_DurationText),
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
