"""The manifest: what people write is taken as meant, or refused by field, value and remedy."""

from __future__ import annotations

import math
from typing import Any

import pytest
from orca_schemas.errors import MalformedError
from orca_schemas.manifest import Sharing, parse_manifest
from orca_schemas.spec import GpuSpec, TaskSpec, spec_of

GPU = "spec.resources.gpu"
ABSENT = object()


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Put ``value`` at a dotted path (ABSENT removes what is there)."""
    *outer, last = path.split(".")
    place: Any = document
    for part in outer:
        place = place[int(part) if part.isdecimal() else part]
    if value is ABSENT:
        del place[last]
    else:
        place[int(last) if last.isdecimal() else last] = value
    return document


def test_the_documented_manifest_means_what_it_says(manifest) -> None:
    """Given the documented manifest, when flattened, then every unit is the integer meant."""
    spec = spec_of(parse_manifest(manifest), "alice")
    assert spec == TaskSpec.model_validate_json(
        """{"namespace": "team-alpha", "name": "llm-inference-job-001", "user": "alice",
        "task_type": "inference", "gpu": {"type": "A100", "count": 1, "memory_mib": 40960,
        "compute_percent": 50, "sharing": "shared"}, "cpu_milli": 4000, "memory_mib": 16384,
        "token_quota": 500000, "image": "pytorch-cuda:v2.8", "command": ["python", "inference.py"],
        "env": [["MODEL_NAME", "llama-3.1-8b"]], "backoff_limit": 3, "on_node_loss": "wait",
        "active_deadline_ms": 7200000, "priority": "high", "queue": "default",
        "estimated_duration_ms": 1800000, "report_interval_ms": 30000,
        "track_token_usage": true, "enable_gpu_monitoring": true}"""
    )
    assert spec.gpu is not None
    assert spec.gpu.gpu_milli == 500


def test_the_shortest_manifest_is_a_cpu_task_with_the_documented_defaults(manifest) -> None:
    """Given only what is required, when read, then the defaults of the reference stand."""
    manifest["spec"] = {"taskType": "batch", "image": "busybox:1", "command": ["true"]}
    spec = spec_of(parse_manifest(manifest), "alice")
    assert (spec.gpu, spec.cpu_milli, spec.memory_mib) == (None, 1000, 1024)
    assert (spec.token_quota, spec.active_deadline_ms) == (None, None)
    assert (spec.queue, spec.priority, spec.backoff_limit) == ("default", "normal", 0)


@pytest.mark.parametrize(
    ("request_", "milli", "memory_mib"),
    [
        ({"type": "H100"}, 1000, None),
        ({"type": "H100", "count": 8}, 8000, None),
        ({"type": "H100", "memoryLimit": "40Gi"}, 1000, 40960),
        ({"type": "T4", "sharing": "shared", "memoryLimit": "4Gi"}, 1000, 4096),
        ({"type": "T4", "sharing": "shared", "memoryLimit": "4Gi", "computePercent": 1}, 10, 4096),
    ],
)
def test_gpus_are_asked_for_whole_or_in_shares(manifest, request_, milli, memory_mib) -> None:
    """Given a GPU request, when flattened, then the milli-GPUs and MiB are as asked."""
    gpu = spec_of(parse_manifest(changed(manifest, GPU, request_)), "alice").gpu
    assert isinstance(gpu, GpuSpec)
    assert (gpu.gpu_milli, gpu.memory_mib) == (milli, memory_mib)
    assert isinstance(gpu.sharing, Sharing)


NAMES_REFUSED = [
    "", "-a", "a-", "A", "a.b", "a b", "*", ">", "a\x07", "a\n", "a\x00", "é", "x" * 64,
    "\u202ea", "٣", 5, True, None, ["a"],
]  # fmt: skip
AMOUNTS_REFUSED = [
    -1, 0, 0.5, 1.0, math.nan, math.inf, -math.inf, 1e309, True, "1", "", None, 10**400, 2**53, [1]
]  # fmt: skip
TABLE: list[tuple[str, object, str | None]] = [
    ("apiVersion", "orca.ai/v2", None),
    ("apiVersion", ABSENT, None),
    ("kind", "Job", None),
    ("kind", ABSENT, None),
    ("metadata", [], None),
    ("metadata.labels", {"Bad Key": "x"}, "metadata.labels.Bad Key.[key]"),
    ("metadata.labels", {"app": "x\x1b[31m"}, "metadata.labels.app"),
    ("metadata.labels", {"app": "x\x1f"}, "metadata.labels.app"),
    ("metadata.labels", {"app": "x\x85"}, "metadata.labels.app"),
    ("metadata.labels", {f"l{n}": "x" for n in range(33)}, None),
    ("spec", None, None),
    ("spec", ABSENT, None),
    ("spec.taskType", "dreaming", None),
    ("spec.taskType", 5, None),
    ("spec.image", "", None),
    ("spec.image", "a b", None),
    ("spec.image", "a\n", None),
    ("spec.image", "--privileged", None),
    ("spec.image", "i" * 513, None),
    ("spec.image", False, None),
    ("spec.command", "python inference.py", None),
    ("spec.command", [], None),
    ("spec.command", ["x"] * 257, None),
    ("spec.command", ["x", 5], "spec.command.1"),
    ("spec.command", ["x", "a\x00b"], "spec.command.1"),
    ("spec.command", ["x", "\x1b[2J"], "spec.command.1"),
    ("spec.command", ["x" * 8193], "spec.command.0"),
    ("spec.env", {"MODEL_NAME": "x"}, None),
    ("spec.env", [{"name": "A", "value": "x"}] * 257, None),
    ("spec.env.0.name", "NVIDIA_VISIBLE_DEVICES", None),
    ("spec.env.0.name", "CUDA_MPS_PIPE_DIRECTORY", None),
    ("spec.env.0.name", "LD_PRELOAD", None),
    ("spec.env.0.name", "LD_LIBRARY_PATH", None),
    ("spec.env.0.name", "ORCA_TASK_ID", None),
    ("spec.env.0.name", "A=B", None),
    ("spec.env.0.name", "1A", None),
    ("spec.env.0.name", "A" * 129, None),
    ("spec.env.0.value", 5, None),
    ("spec.env.0.value", "a\x00", None),
    ("spec.env.0.value", "\ud800", None),
    ("spec.resources.cpu", "0", None),
    ("spec.resources.cpu", "-4", None),
    ("spec.resources.cpu", math.nan, None),
    ("spec.resources.cpu", 1e309, None),
    ("spec.resources.cpu", True, None),
    ("spec.resources.cpu", "٤", None),
    ("spec.resources.memory", 16, None),
    ("spec.resources.memory", "16GB", None),
    ("spec.resources.memory", "-16Gi", None),
    ("spec.resources.memory", None, None),
    ("spec.resources", "4", None),
    (f"{GPU}.type", "A1000", None),
    (f"{GPU}.type", "a100", None),
    (f"{GPU}.type", 100, None),
    (f"{GPU}.type", ABSENT, None),
    (f"{GPU}.count", 0, None),
    (f"{GPU}.count", -1, None),
    (f"{GPU}.count", 17, None),
    (f"{GPU}.count", 1.0, None),
    (f"{GPU}.memoryLimit", "81Gi", None),
    (f"{GPU}.memoryLimit", "0Gi", None),
    (f"{GPU}.memoryLimit", ABSENT, None),
    (f"{GPU}.computePercent", 0, None),
    (f"{GPU}.computePercent", 101, None),
    (f"{GPU}.computePercent", -50, None),
    (f"{GPU}.computePercent", 50.5, None),
    (f"{GPU}.computePercent", "50%", None),
    (f"{GPU}.sharing", "mps", None),
    (f"{GPU}.sharing", "exclusive", f"{GPU}.computePercent"),
    ("spec.retries.backoffLimit", -1, None),
    ("spec.retries.backoffLimit", 101, None),
    ("spec.retries", {"onNodeLoss": "restart"}, "spec.retries.onNodeLoss"),
    ("spec.activeDeadline", "0s", None),
    ("spec.activeDeadline", 7200, None),
    ("spec.schedulerHints.priority", "highest", None),
    ("spec.schedulerHints.estimatedDuration", "-30m", None),
    ("spec.metricsCollection.trackTokenUsage", "yes", None),
    ("spec.metricsCollection.trackTokenUsage", 1, None),
    ("spec.metricsCollection.reportInterval", "30", None),
    ("status", {}, None),
    ("spec.gpu", {"type": "A100"}, None),
    *[(f"{name}", value, None) for name in ("metadata.name", "metadata.namespace",
      "spec.schedulerHints.queue") for value in NAMES_REFUSED],
    *[("spec.resources.tokenQuota", v, None) for v in AMOUNTS_REFUSED if v is not None],
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [pytest.param(*row, id=f"{row[0]}-{number}") for number, row in enumerate(TABLE)],
)
def test_a_malformed_manifest_is_refused_by_its_field(manifest, path, value, field) -> None:
    """Given one wrong field, when read, then the error names field and remedy, in print."""
    with pytest.raises(MalformedError) as refused:
        parse_manifest(changed(manifest, path, value))
    assert refused.value.field == (field or path)
    assert refused.value.remedy
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) <= 1000


@pytest.mark.parametrize("document", [None, 5, "text", [], [{}], {}, {"apiVersion": {}}])
def test_what_is_no_manifest_at_all_is_refused(document) -> None:
    """Given another document, when read, then it is a MalformedError too."""
    with pytest.raises(MalformedError):
        parse_manifest(document)


@pytest.mark.parametrize(
    ("path", "misspelled", "meant"),
    [
        ("spec", "imgae", "image"),
        ("spec", "active_deadline", "activeDeadline"),
        ("spec.resources", "tokensQuota", "tokenQuota"),
        (GPU, "memory_limit", "memoryLimit"),
        ("spec.env.0", "vlaue", "value"),
        ("metadata", "nmae", "name"),
    ],
)
def test_a_misspelled_field_is_told_from_the_known_ones(manifest, path, misspelled, meant) -> None:
    """Given a field that is nearly a known one, when read, then the known one is offered."""
    place: Any = manifest
    for part in path.split("."):
        place = place[int(part) if part.isdecimal() else part]
    place[misspelled] = place.pop(meant)
    with pytest.raises(MalformedError, match=f"did you mean {meant}") as refused:
        parse_manifest(manifest)
    assert refused.value.field == f"{path}.{misspelled}"


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        (f"{GPU}.computePercent", 101, "write at most 100"),
        (f"{GPU}.count", 0, "write at least 1"),
        (f"{GPU}.count", 1.5, "whole number"),
        (f"{GPU}.count", math.nan, "whole number"),
        (f"{GPU}.memoryLimit", "100Gi", "larger than any A100; write at most 81920Mi"),
        (f"{GPU}.memoryLimit", ABSENT, "a shared GPU needs it"),
        (f"{GPU}.sharing", "mps", "use 'exclusive' or 'shared'"),
        (f"{GPU}.sharing", "exclusive", "add sharing: shared"),
        (f"{GPU}.type", "A1000", "'A100'"),
        ("apiVersion", "v1", "use 'orca.ai/v1'"),
        ("spec.image", ABSENT, "required; add it"),
        ("spec.image", False, "put it in quotes"),
        ("spec.command", "python", "write a list"),
        ("spec.command", ["x"] * 257, "at most 256"),
        ("spec.env.0.name", "NVIDIA_X", "the node sets this"),
        ("spec.env.0.name", "a-b", "letters, digits and '_'"),
        ("spec.retries", 3, "mapping"),
        ("spec.metricsCollection.trackTokenUsage", "no", "true or false"),
        ("metadata.name", "Job.1", "a-z, 0-9"),
        ("spec.resources.memory", "16GB", '"16Gi"'),
        ("spec.activeDeadline", "2 hours", '"1h30m"'),
    ],
)
def test_the_remedy_says_what_to_write(manifest, path, value, remedy) -> None:
    """Given a common mistake, when refused, then plain words say what to write instead."""
    with pytest.raises(MalformedError) as refused:
        parse_manifest(changed(manifest, path, value))
    assert remedy in refused.value.remedy


def test_several_mistakes_are_named_at_once(manifest) -> None:
    """Given two wrong fields, when refused, then one error names both."""
    changed(manifest, "spec.image", "")
    changed(manifest, f"{GPU}.count", 0)
    with pytest.raises(MalformedError, match=r"also wrong: spec\.image"):
        parse_manifest(manifest)
