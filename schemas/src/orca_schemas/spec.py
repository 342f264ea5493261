"""The task as events carry it: the manifest with defaults filled in and every unit an integer."""

from __future__ import annotations

from pydantic import Field

from orca_schemas.identifiers import Label
from orca_schemas.manifest import AITask, GpuRequest, OnNodeLoss, Priority, Sharing, TaskType
from orca_schemas.model import Value
from orca_schemas.units import Amount, Positive

MILLI = 1000
FULL_PERCENT = 100


class GpuSpec(Value):
    """GPUs asked for. ``memory_mib`` is per GPU; None means the whole card."""

    type: str
    count: Positive
    memory_mib: Positive | None
    compute_percent: Positive
    sharing: Sharing

    @property
    def gpu_milli(self) -> int:
        """Milli-GPUs held: 1000 per whole card."""
        return self.count * MILLI * self.compute_percent // FULL_PERCENT


class TaskSpec(Value):
    """All that admission, placement and the node need to know of a task."""

    namespace: Label
    name: Label
    user: str
    task_type: TaskType
    gpu: GpuSpec | None
    cpu_milli: Positive
    memory_mib: Positive
    token_quota: Positive | None
    image: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    backoff_limit: Amount
    on_node_loss: OnNodeLoss
    active_deadline_ms: Positive | None
    priority: Priority
    queue: Label
    estimated_duration_ms: Positive | None
    report_interval_ms: Positive
    track_token_usage: bool = Field(default=True)
    enable_gpu_monitoring: bool = Field(default=True)


def _gpu_spec_of(gpu: GpuRequest | None) -> GpuSpec | None:
    if gpu is None:
        return None
    return GpuSpec(
        type=gpu.type,
        count=gpu.count,
        memory_mib=gpu.memory_limit,
        compute_percent=gpu.compute_percent,
        sharing=gpu.sharing,
    )


def spec_of(manifest: AITask, user: str) -> TaskSpec:
    """Flatten a manifest into the spec that ``user`` asked for."""
    spec = manifest.spec
    hints, metrics = spec.scheduler_hints, spec.metrics_collection
    return TaskSpec(
        namespace=manifest.metadata.namespace,
        name=manifest.metadata.name,
        user=user,
        task_type=spec.task_type,
        gpu=_gpu_spec_of(spec.resources.gpu),
        cpu_milli=spec.resources.cpu,
        memory_mib=spec.resources.memory,
        token_quota=spec.resources.token_quota,
        image=spec.image,
        command=spec.command,
        env=tuple((var.name, var.value) for var in spec.env),
        backoff_limit=spec.retries.backoff_limit,
        on_node_loss=spec.retries.on_node_loss,
        active_deadline_ms=spec.active_deadline,
        priority=hints.priority,
        queue=hints.queue,
        estimated_duration_ms=hints.estimated_duration,
        report_interval_ms=metrics.report_interval,
        track_token_usage=metrics.track_token_usage,
        enable_gpu_monitoring=metrics.enable_gpu_monitoring,
    )
