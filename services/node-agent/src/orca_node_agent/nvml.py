"""Real GPUs, by NVML in a child process with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Sequence

from orca_schemas.values import Gpu

from orca_node_agent.gpus import GpuProbeError

PROBE_TIMEOUT_S = 20.0
"""Without persistence mode the driver initialises every card on the first call: seconds each."""
KILL_WAIT_S = 1.0

_PROBE = (sys.executable, "-m", "orca_node_agent.nvml_probe")
_VENDOR = frozenset(("NVIDIA", "TESLA", "GEFORCE", "QUADRO"))
_FORM = re.compile(
    r"SXM\d?|PCIE?|HBM\d?E?|NVL|\d+GB|GENERATION|EDITION|SERVER|WORKSTATION|BLACKWELL|3E", re.A
)
MAX_TYPE_CHARS = 32


def gpu_type(product_name: str) -> str:
    """The catalogue's type of a product: ``NVIDIA A100-SXM4-80GB`` is ``A100``.

    Vendor, form factor and memory size are left out. A product that the catalogue does not know
    keeps what is left of its name: it can be seen, but no manifest asks for it.
    """
    words = re.split(r"[^A-Za-z0-9]+", product_name.upper())
    kept = [word for word in words if word not in _VENDOR and not _FORM.fullmatch(word)]
    return "".join(kept)[:MAX_TYPE_CHARS] or "UNKNOWN"


class NvmlGpus:
    """The host's GPUs as the driver lists them. One probe at a time."""

    name = "nvml"

    def __init__(self, probe: Sequence[str] = _PROBE, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._probe, self._timeout_s = tuple(probe), timeout_s
        self._stuck: asyncio.subprocess.Process | None = None

    async def inventory(self) -> tuple[Gpu, ...]:
        """Ask the driver. Raises GpuProbeError after at most ``timeout_s``."""
        if self._stuck is not None and self._stuck.returncode is None:
            # A process inside a hung driver call cannot even be killed: do not pile them up.
            raise GpuProbeError(f"NVML: probe {self._stuck.pid} still hangs in the driver")
        process = await asyncio.create_subprocess_exec(
            *self._probe, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await process.communicate()
        except TimeoutError:
            await self._kill(process)
            raise GpuProbeError(f"NVML: no answer in {self._timeout_s:.0f} s") from None
        if process.returncode != 0:
            raise GpuProbeError(err.decode(errors="replace").strip()[-500:] or "NVML: no answer")
        return _gpus(out)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        process.kill()
        self._stuck = process
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_WAIT_S):
                await process.wait()


def _gpus(out: bytes) -> tuple[Gpu, ...]:
    try:
        return tuple(
            Gpu(
                uuid=found["uuid"],
                type=gpu_type(found["name"]),
                memory_mib=found["memory_mib"],
                simulated=False,
            )
            for found in json.loads(out)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise GpuProbeError(f"NVML: unreadable answer: {error}") from error
