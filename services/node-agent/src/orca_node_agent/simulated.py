"""GPUs that are not there, always labelled as simulated: for development without a card."""

from __future__ import annotations

import re

from orca_schemas.errors import MalformedError
from orca_schemas.gpu_types import MAX_GPUS_PER_NODE, MEMORY_MIB_BY_TYPE
from orca_schemas.identifiers import name_id
from orca_schemas.values import Gpu

_PART = re.compile(r"([A-Za-z0-9]+):([0-9]{1,2})")


class SimulatedGpus:
    """A fixed inventory such as ``A100:4,H100:2`` for the node of this name."""

    name = "simulated"

    def __init__(self, text: str, node: str) -> None:
        self._gpus = parse_simulated(text, node)

    async def inventory(self) -> tuple[Gpu, ...]:
        """The GPUs of the setting."""
        return self._gpus


def parse_simulated(text: str, node: str) -> tuple[Gpu, ...]:
    """Read ``TYPE:COUNT,…``; raises MalformedError. UUIDs are the same at every start."""
    counts = [_part(part.strip()) for part in text.split(",")]
    if len({type_ for type_, _ in counts}) != len(counts):
        raise _malformed(text, "name each type once")
    if not 1 <= sum(count for _, count in counts) <= MAX_GPUS_PER_NODE:
        raise _malformed(text, f"simulate 1 to {MAX_GPUS_PER_NODE} GPUs")
    return tuple(_gpu(type_, index, node) for type_, count in counts for index in range(count))


def _part(text: str) -> tuple[str, int]:
    found = _PART.fullmatch(text)
    if found is None:
        raise _malformed(text, "write TYPE:COUNT,… such as A100:4,H100:2")
    if found[1] not in MEMORY_MIB_BY_TYPE:
        raise _malformed(text, f"use one of the types {', '.join(MEMORY_MIB_BY_TYPE)}")
    return found[1], int(found[2])


def _malformed(text: str, remedy: str) -> MalformedError:
    return MalformedError("simulated_gpus", text, remedy)


def _gpu(type_: str, index: int, node: str) -> Gpu:
    return Gpu(
        uuid=f"SIM-{name_id('gpu', f'{node}/{type_}/{index}')}",
        type=type_,
        memory_mib=MEMORY_MIB_BY_TYPE[type_],
        simulated=True,
    )
