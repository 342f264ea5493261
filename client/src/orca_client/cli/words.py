"""Numbers as people read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from orca_schemas.values import Gpu, Reason

from orca_client.view import TaskView

SHORT_ID_CHARS = 8
MILLI = 1000
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
SIMULATED = "simulated"
EXECUTOR_NOTES = {"process": "process (development)"}


def duration(ms: float) -> str:
    """Two units at most: ``0.4s``, ``12s``, ``3m05s``, ``2d4h``."""
    if ms < 10 * MILLI:
        return f"{max(0, ms) / MILLI:.1f}s"
    rest = int(ms // MILLI)
    for index, (size, unit) in enumerate(_UNITS[:-1]):
        if rest >= size:
            whole, left = divmod(rest, size)
            smaller_size, smaller_unit = _UNITS[index + 1]
            return f"{whole}{unit}{left // smaller_size:02d}{smaller_unit}"
    return f"{rest}s"


def ago(at_ms: int) -> str:
    """How long ago a time was (Unix ms)."""
    return duration(time.time() * MILLI - at_ms)


def clock(at_ms: int) -> str:
    """A time (Unix ms) in UTC, to the millisecond."""
    return f"{datetime.fromtimestamp(at_ms / MILLI, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def short(task_id: UUID) -> str:
    """The beginning of an id, which the commands take for the whole of it."""
    return str(task_id)[:SHORT_ID_CHARS]


def cores(milli: int) -> str:
    """CPU: ``4``, ``0.5``."""
    return f"{milli / MILLI:g}"


def memory(mib: int) -> str:
    """Memory: ``512Mi``, ``16Gi``, ``1.5Gi``."""
    return f"{mib}Mi" if mib < 1024 else f"{round(mib / 1024, 1):g}Gi"


def gpus(gpu_type: str | None, milli: int) -> str:
    """GPUs of a task: ``2 x A100``, ``0.5 x H100``."""
    return f"{milli / MILLI:g} x {gpu_type}" if gpu_type and milli else "-"


def tokens(used: int, quota: int | None) -> str:
    """Tokens used, of how many."""
    if quota is None:
        return f"{used:,}" if used else "-"
    return f"{used:,}/{quota:,}"


def why(reasons: Sequence[Reason]) -> str:
    """The first reason, and how many more there are."""
    if not reasons:
        return ""
    more = f" (+{len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0].code}: {reasons[0].message}{more}"


def gpu_kinds(found: Sequence[Gpu]) -> str:
    """The GPUs of a node: ``2 x A100 (simulated)``."""
    kinds: dict[str, int] = {}
    for gpu in found:
        kind = f"{gpu.type} ({SIMULATED})" if gpu.simulated else gpu.type
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"


def executor(name: str) -> str:
    """An executor's name; one that is for development says so."""
    return EXECUTOR_NOTES.get(name, name)


def amount(dimension: str, value: int | None) -> str:
    """A quantity of a quota dimension, in the unit people use for it."""
    if value is None:
        return "unlimited"
    kind = dimension.partition(":")[0]
    if kind in ("gpu_milli", "cpu_milli"):
        return f"{value / MILLI:g}"
    if kind in ("memory_mib", "gpu_memory_mib"):
        return memory(value) if value else "0"
    return f"{value:,}"


def dimension(name: str) -> str:
    """A dimension by the name that goes with the unit of ``amount``."""
    kind, colon, rest = name.partition(":")
    return {
        "gpu_milli": "gpus", "cpu_milli": "cpu",
        "memory_mib": "memory", "gpu_memory_mib": "gpu_memory",
    }.get(kind, kind) + colon + rest  # fmt: skip


def unpriced(lines: int) -> str:
    """How many lines of a bill have no price."""
    return f"{lines} {'line' if lines == 1 else 'lines'} without a price"


def label(view: TaskView) -> str:
    """A task's namespace and name; a refused one may have none."""
    return f"{view.namespace}/{view.name or '?'}"
