"""Asks the NVIDIA driver once and prints what it says: run as a process of its own.

A call into a failing driver may never return; then only this process hangs. Identity is the UUID:
NVML's indices change with boots. Prints ``[{"uuid", "name", "memory_mib"}, …]``.
"""

from __future__ import annotations

import json
import sys

import pynvml

BYTES_PER_MIB = 1 << 20


def main() -> int:
    """Print the GPUs as JSON; exit 1 with the driver's words where it does not answer."""
    try:
        pynvml.nvmlInit()
        try:
            found = [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        sys.stderr.write(f"NVML: {error}\n")
        return 1
    sys.stdout.write(json.dumps(found))
    return 0


def _gpu(index: int) -> dict[str, object]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    # Version 2 says what the driver keeps for itself: a task cannot have that.
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return {
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "memory_mib": (memory.total - memory.reserved) // BYTES_PER_MIB,
    }


if __name__ == "__main__":
    sys.exit(main())
