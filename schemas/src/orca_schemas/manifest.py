"""The manifest: what a person writes. ``apiVersion: orca.ai/v1, kind: AITask``."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from orca_schemas.errors import from_validation
from orca_schemas.gpu_types import MAX_GPUS_PER_NODE, MEMORY_MIB_BY_TYPE
from orca_schemas.identifiers import LABEL_PATTERN
from orca_schemas.units import CpuQuantity, DurationQuantity, MemoryQuantity, Positive

MAX_COMMAND_ARGS = 256
MAX_ENV = 256
MAX_ARG_CHARS = 8192
MAX_LABELS = 32
RESERVED_ENV = ("NVIDIA_", "CUDA_MPS_", "LD_PRELOAD", "LD_LIBRARY_PATH", "ORCA_")
_HINT = (
    "use lower-case letters, digits and '-' (1 to 63), beginning and ending in a letter or digit"
)


def _label(value: object) -> object:
    if not isinstance(value, str) or re.fullmatch(LABEL_PATTERN, value) is None:
        raise ValueError(_HINT)
    return value


def _gpu_type(value: object) -> object:
    if not isinstance(value, str) or value not in MEMORY_MIB_BY_TYPE:
        raise ValueError(f"no such GPU type; use one of {', '.join(MEMORY_MIB_BY_TYPE)}")
    return value


Name = Annotated[str, BeforeValidator(_label, json_schema_input_type=str)]
GpuType = Annotated[str, BeforeValidator(_gpu_type, json_schema_input_type=str)]
Printable = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_ARG_CHARS, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Argument = Annotated[str, StringConstraints(max_length=MAX_ARG_CHARS, pattern=r"^[^\x00]*$")]


class TaskType(StrEnum):
    """What sort of work a task is."""

    TRAINING = "training"
    INFERENCE = "inference"
    BATCH = "batch"
    INTERACTIVE = "interactive"


class Sharing(StrEnum):
    """Whether a task has its GPUs to itself."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class Priority(StrEnum):
    """Order in the queue; see PRIORITY_RANK."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


PRIORITY_RANK = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2, Priority.URGENT: 3}


class OnNodeLoss(StrEnum):
    """Whether a lost node's task may be started anew elsewhere (it accepts a watchdog's stop)."""

    WAIT = "wait"
    REQUEUE = "requeue"


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel,
        validate_by_name=False, validate_by_alias=True, serialize_by_alias=True,
        allow_inf_nan=False,
    )  # fmt: skip


class Metadata(_Section):
    """Who the task is."""

    name: Name
    namespace: Name
    labels: dict[Name, Printable] = Field(default={}, max_length=MAX_LABELS)


class GpuRequest(_Section):
    """``count`` GPUs of ``type``; when shared, ``memory_limit`` MiB and a share of each."""

    type: GpuType
    count: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)] = 1
    memory_limit: MemoryQuantity | None = None
    compute_percent: Annotated[int, Field(ge=1, le=100)] = 100
    sharing: Sharing = Field(default=Sharing.EXCLUSIVE, strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        largest = MEMORY_MIB_BY_TYPE[self.type]
        if self.memory_limit is not None and self.memory_limit > largest:
            raise ValueError(
                f"memoryLimit is larger than any {self.type} ({largest} MiB); lower it"
            )
        if self.sharing is Sharing.SHARED and self.memory_limit is None:
            raise ValueError("a shared GPU needs memoryLimit; say how much memory, such as 20Gi")
        if self.sharing is Sharing.EXCLUSIVE and self.compute_percent != 100:
            raise ValueError("computePercent below 100 needs sharing: shared")
        return self


class Resources(_Section):
    """What the task holds while it runs. Without ``gpu`` it is a CPU task."""

    gpu: GpuRequest | None = None
    cpu: CpuQuantity = 1000
    memory: MemoryQuantity = 1024
    token_quota: Positive | None = None


class EnvVar(_Section):
    """One environment variable of the task."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
    value: Argument

    @model_validator(mode="after")
    def _allowed(self) -> Self:
        if self.name.startswith(RESERVED_ENV):
            raise ValueError(f"{self.name} is set by the node, not by a task; remove it")
        return self


class Retries(_Section):
    """How often a failed attempt is repeated, and what a lost node means."""

    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 0
    on_node_loss: OnNodeLoss = Field(default=OnNodeLoss.WAIT, strict=False)


class SchedulerHints(_Section):
    """Wishes that order the queue; they never change what is held."""

    priority: Priority = Field(default=Priority.NORMAL, strict=False)
    queue: Name = "default"
    estimated_duration: DurationQuantity | None = None


class MetricsCollection(_Section):
    """What is counted while the task runs."""

    enable_gpu_monitoring: bool = True
    track_token_usage: bool = True
    report_interval: DurationQuantity = 30_000


class Spec(_Section):
    """What runs, on what, and how."""

    task_type: TaskType = Field(strict=False)
    resources: Resources = Resources()
    image: Printable
    command: Annotated[
        tuple[Argument, ...], Field(min_length=1, max_length=MAX_COMMAND_ARGS, strict=False)
    ]
    env: Annotated[tuple[EnvVar, ...], Field(max_length=MAX_ENV, strict=False)] = ()
    retries: Retries = Retries()
    active_deadline: DurationQuantity | None = None
    scheduler_hints: SchedulerHints = SchedulerHints()
    metrics_collection: MetricsCollection = MetricsCollection()


class AITask(_Section):
    """One task's manifest."""

    api_version: Literal["orca.ai/v1"]
    kind: Literal["AITask"]
    metadata: Metadata
    spec: Spec


def parse_manifest(document: Any) -> AITask:
    """Validate a manifest read from YAML or JSON; raises MalformedError naming the field."""
    try:
        return AITask.model_validate(document)
    except ValidationError as error:
        raise from_validation(error) from None
