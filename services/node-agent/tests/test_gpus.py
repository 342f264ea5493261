"""Where the GPUs come from."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from orca_node_agent.gpus import GpuProbeError, NoGpus
from orca_node_agent.host import host_capacity, total_memory_mib
from orca_node_agent.nvml import NvmlGpus, gpu_type
from orca_node_agent.simulated import SimulatedGpus
from orca_schemas.errors import MalformedError
from orca_schemas.gpu_types import MEMORY_MIB_BY_TYPE
from orca_schemas.values import Gpu


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H20-3e", "H20"),
        ("NVIDIA H800", "H800"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA B300 SXM6", "B300"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A16", "A16"),
        ("NVIDIA A2", "A2"),
        ("NVIDIA A30", "A30"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla P4", "P4"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000ADA"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
    ],
)
def test_products_of_the_catalogue(product: str, expected: str) -> None:
    """Given NVML's name of a card, then the catalogue's type."""
    assert gpu_type(product) == expected
    assert expected in MEMORY_MIB_BY_TYPE


@pytest.mark.parametrize(
    "product",
    [
        "NVIDIA A10G",
        "NVIDIA A800-SXM4-80GB",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA TITAN V",
        "",
        "?",
    ],
)
def test_other_products_are_not_taken_for_something_else(product: str) -> None:
    """Given a card that the catalogue does not know, then its type is none of the catalogue's."""
    found = gpu_type(product)
    assert found not in MEMORY_MIB_BY_TYPE
    assert found.isalnum()


async def test_simulated_gpus_say_so() -> None:
    """Given a setting, then its GPUs, each labelled, with the same UUIDs at every start."""
    gpus = await SimulatedGpus("A100:2, H100:1", "node-1").inventory()
    assert [(gpu.type, gpu.memory_mib, gpu.simulated) for gpu in gpus] == [
        ("A100", 81_920, True), ("A100", 81_920, True), ("H100", 98_304, True),
    ]  # fmt: skip
    assert len({gpu.uuid for gpu in gpus}) == 3
    assert all(gpu.uuid.startswith("SIM-") for gpu in gpus)
    assert await SimulatedGpus("A100:2,H100:1", "node-1").inventory() == gpus
    other = await SimulatedGpus("A100:2,H100:1", "node-2").inventory()
    assert {gpu.uuid for gpu in other}.isdisjoint({gpu.uuid for gpu in gpus})


@pytest.mark.parametrize("text", ["A100", "A100:0", "A100:x", "A999:1", "A100:17", "A100:1,A100:1"])
def test_a_wrong_simulation_is_refused(text: str) -> None:
    """Given a setting that means nothing, then the error names it and the remedy."""
    with pytest.raises(MalformedError, match="simulated_gpus"):
        SimulatedGpus(text, "node-1")


def nvml_that(code: str, timeout_s: float = 10.0) -> NvmlGpus:
    return NvmlGpus((sys.executable, "-c", code), timeout_s)


async def test_the_drivers_answer_is_read() -> None:
    """Given what the probe prints, then GPUs by UUID with their usable memory."""
    answer = json.dumps([{"uuid": "GPU-1", "name": "NVIDIA H200", "memory_mib": 143_000}])
    assert await nvml_that(f"print('''{answer}''')").inventory() == (
        Gpu(uuid="GPU-1", type="H200", memory_mib=143_000, simulated=False),
    )


async def test_a_hanging_driver_hangs_only_its_probe() -> None:
    """Given a driver that never answers, then the deadline holds and the next probe is free."""
    gpus = nvml_that("import time; time.sleep(60)", timeout_s=0.3)
    for _ in range(2):
        asked = time.monotonic()
        with pytest.raises(GpuProbeError):
            await gpus.inventory()
        assert time.monotonic() - asked < 5.0


@pytest.mark.parametrize(
    "code",
    ["print('no json')", "print('[{}]')", "import sys; sys.exit(3)",
     "print('[{\"uuid\": \"\", \"name\": \"H200\", \"memory_mib\": -1}]')"],
)  # fmt: skip
async def test_nonsense_from_the_driver_is_an_error(code: str) -> None:
    """Given an unreadable answer, then nothing is known: never an empty inventory."""
    with pytest.raises(GpuProbeError):
        await nvml_that(code).inventory()


def has_driver() -> bool:
    return Path("/dev/nvidiactl").exists()


async def test_the_real_probe_answers_or_says_why() -> None:
    """Given this machine, then its GPUs, or the driver's reason why there are none."""
    if not has_driver():
        with pytest.raises(GpuProbeError, match="NVML"):
            await NvmlGpus().inventory()
        return
    found = await NvmlGpus().inventory()
    assert all(gpu.uuid.startswith("GPU-") and not gpu.simulated for gpu in found)


async def test_no_gpus() -> None:
    """Given a host without GPUs, then an empty inventory."""
    assert await NoGpus().inventory() == ()


def test_capacity(tmp_path: Path) -> None:
    """Given settings, then they hold; else what the host has."""
    assert host_capacity(2_000, 512).memory_mib == 512
    assert host_capacity(None, None).cpu_milli >= 1_000
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1 kB\nMemTotal:       2097152 kB\n")
    assert total_memory_mib(meminfo) == 2_048
