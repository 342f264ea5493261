"""From an attempt to a container and back, without an engine."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from orca_node_agent.docker_spec import (
    DockerOptions,
    NetworkMode,
    container_config,
    observed_of,
    unix_ms,
)
from orca_node_agent.docker_stream import Demultiplexer
from orca_node_agent.executor import AttemptSpec

SPEC = AttemptSpec(
    key=f"{UUID(int=1)}-2",
    run_id=UUID(int=1),
    task_id=UUID(int=2),
    namespace="team-alpha",
    attempt=2,
    fence="PLACEMENT:e1:7",
    image="busybox:1",
    command=("train", "--fast"),
    env=(("A", "b=c"),),
    cpu_milli=1_500,
    memory_mib=64,
    gpu_uuids=("GPU-1", "MIG-2"),
)


def host_config(**options: Any) -> dict[str, Any]:
    made = DockerOptions(node_id="node-1", **options)
    config: dict[str, Any] = container_config(SPEC, made, boot_id="b1")["HostConfig"]
    return config


def inspected(**state: object) -> dict[str, Any]:
    labels = container_config(SPEC, DockerOptions(node_id="node-1"), boot_id="b1")["Labels"]
    return {
        "Name": f"/orca-{SPEC.key}",
        "Config": {"Labels": labels},
        "State": {
            "Status": "exited",
            "ExitCode": 0,
            "OOMKilled": False,
            "StartedAt": "1970-01-01T00:00:01.5Z",
            "FinishedAt": "1970-01-01T00:00:02.000999999Z",
            **state,
        },
    }


def test_limits_are_whole_and_swap_is_off() -> None:
    config = host_config()
    assert config["NanoCpus"] == 1_500_000_000
    assert config["Memory"] == config["MemorySwap"] == 64 * 1024 * 1024
    assert (config["CapDrop"], config["PidsLimit"]) == (["ALL"], 4_096)


def test_gpus_are_handed_over_only_where_there_are_real_ones() -> None:
    assert host_config()["DeviceRequests"] == []
    assert host_config(gpu_runtime=True)["DeviceRequests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-1", "MIG-2"], "Capabilities": [["gpu"]]}
    ]


@pytest.mark.parametrize("mode", list(NetworkMode))
def test_the_network_is_the_operators_choice(mode: NetworkMode) -> None:
    assert host_config(network=mode)["NetworkMode"] == mode.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T06:53:37.828999725Z", 1796108017828),
        ("2026-12-01T08:53:37+02:00", 1796108017000),
        ("0001-01-01T00:00:00Z", None),
    ],
    ids=["nanoseconds", "offset", "never"],
)
def test_times_become_unix_milliseconds(text: str, expected: int | None) -> None:
    assert unix_ms(text) == expected


def test_an_exit_carries_its_code_and_times() -> None:
    seen = observed_of(inspected(ExitCode=3), boot_id="b1")
    assert seen is not None
    assert (seen.key, seen.attempt, seen.fence) == (SPEC.key, 2, SPEC.fence)
    assert (seen.exit_code, seen.started_at_ms, seen.finished_at_ms) == (3, 1500, 2000)


def test_an_end_is_never_before_its_start() -> None:
    """Given an engine that noted the start a moment after the end, the life has no length."""
    seen = observed_of(inspected(FinishedAt="1970-01-01T00:00:01.499Z"), boot_id="b1")
    assert seen is not None
    assert (seen.started_at_ms, seen.finished_at_ms) == (1500, 1500)


def test_a_success_that_outlived_a_killed_child_is_not_out_of_memory() -> None:
    seen = observed_of(inspected(OOMKilled=True), boot_id="b1")
    assert seen is not None
    assert not seen.out_of_memory


def test_an_end_without_a_time_is_lost() -> None:
    seen = observed_of(inspected(FinishedAt="0001-01-01T00:00:00Z"), boot_id="b1")
    assert seen is not None
    assert (seen.lost, seen.exit_code) == (True, None)


@pytest.mark.parametrize("status", ["created", "removing"])
def test_what_never_ran_or_is_going_is_not_observed(status: str) -> None:
    assert observed_of(inspected(Status=status), boot_id="b1") is None


@pytest.mark.parametrize("step", [1, 3, 8, 1_000])
@pytest.mark.parametrize("limit", [1, 5, 1_000])
def test_frames_may_be_cut_anywhere(step: int, limit: int) -> None:
    payloads = [(1, b"out\n"), (2, b""), (2, b"error\n"), (1, bytes(300))]
    raw = b"".join(bytes([n, 0, 0, 0]) + len(p).to_bytes(4, "big") + p for n, p in payloads)
    demux, got = Demultiplexer(), b""
    for start in range(0, len(raw), step):
        demux.feed(raw[start : start + step])
        while part := demux.take(limit):
            assert len(part) <= limit
            got += part
    assert got == b"out\nerror\n" + bytes(300)
