"""Limits as people write them: ``gpus=2``, ``tokens=1000000``, ``memory=64Gi``, ``cpu=unlimited``.

Dimensions: gpus[:TYPE] (whole GPUs, as decimals), gpu_milli[:TYPE], cpu (cores), cpu_milli,
memory (16Gi), memory_mib, gpu_memory (per namespace), gpu_memory_mib, tasks, tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from orca_schemas.errors import MalformedError
from orca_schemas.events.admin import QuotaSet
from orca_schemas.gpu_types import MEMORY_MIB_BY_TYPE
from orca_schemas.units import MAX_AMOUNT, parse_cpu_milli, parse_memory_mib
from orca_schemas.values import Period

UNLIMITED = "unlimited"
MILLI = 1000

_WHOLE = re.compile(r"[0-9]{1,16}")
_GPUS = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,3}))?")


def parse_limit(text: str) -> QuotaSet:
    """Read ``DIM=LIMIT``; raises MalformedError naming the dimension, what stood there, the remedy.

    0 blocks the dimension; ``unlimited`` lifts the limit.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise MalformedError("limit", text, "write DIMENSION=LIMIT such as gpus=2 or tokens=100000")
    dimension, gpu_type = _dimension(name)
    read, _ = _DIMENSIONS[dimension]
    limit = None if value.lower() == UNLIMITED else _read(name, value, read)
    full = _DIMENSIONS[dimension][1] + (f":{gpu_type}" if gpu_type else "")
    period = Period.TOTAL if full == "tokens" else Period.CONCURRENT
    return QuotaSet(dimension=full, limit=limit, period=period)


def _dimension(name: str) -> tuple[str, str]:
    dimension, colon, gpu_type = name.partition(":")
    if dimension not in _DIMENSIONS:
        raise MalformedError("limit", name, f"use one of {', '.join(_DIMENSIONS)}")
    if not colon:
        return dimension, ""
    if dimension not in ("gpus", "gpu_milli"):
        raise MalformedError("limit", name, f"only GPUs have types; write {dimension}")
    if gpu_type not in MEMORY_MIB_BY_TYPE:
        raise MalformedError("limit", name, f"use a type of {', '.join(MEMORY_MIB_BY_TYPE)}")
    return dimension, gpu_type


def _read(name: str, value: str, read: Callable[[str], int]) -> int:
    try:
        amount = 0 if value == "0" else read(value)
    except ValueError as error:
        raise MalformedError(f"limit.{name}", value, f"{error}, 0 or unlimited") from None
    if amount > MAX_AMOUNT:
        raise MalformedError(f"limit.{name}", value, f"at most {MAX_AMOUNT}; or write unlimited")
    return amount


def _whole(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    if _WHOLE.fullmatch(plain) is None:
        raise ValueError("write a whole number such as 100000")
    return int(plain)


def _gpus(text: str) -> int:
    found = _GPUS.fullmatch(text)
    if found is None:
        raise ValueError("write GPUs such as 2 or 0.5")
    return int(found[1]) * MILLI + int((found[2] or "0").ljust(3, "0"))


_DIMENSIONS: dict[str, tuple[Callable[[str], int], str]] = {
    "gpus": (_gpus, "gpu_milli"),
    "gpu_milli": (_whole, "gpu_milli"),
    "gpu_memory": (parse_memory_mib, "gpu_memory_mib"),
    "gpu_memory_mib": (_whole, "gpu_memory_mib"),
    "cpu": (parse_cpu_milli, "cpu_milli"),
    "cpu_milli": (_whole, "cpu_milli"),
    "memory": (parse_memory_mib, "memory_mib"),
    "memory_mib": (_whole, "memory_mib"),
    "tasks": (_whole, "tasks"),
    "tokens": (_whole, "tokens"),
}
