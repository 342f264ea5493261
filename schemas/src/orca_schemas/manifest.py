"""The manifest: what a person writes. ``apiVersion: orca.ai/v1, kind: AITask``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from orca_schemas import patterns
from orca_schemas.errors import from_validation
from orca_schemas.gpu_types import MAX_GPUS_PER_NODE, MEMORY_MIB_BY_TYPE
from orca_schemas.identifiers import Label
from orca_schemas.units import CpuQuantity, DurationQuantity, MemoryQuantity, Positive

MAX_COMMAND_ARGS = 256
MAX_ENV = 256
MAX_ARG_CHARS = 8192
MAX_IMAGE_CHARS = 512
"""A registry's name, a tag and a digest together are shorter."""
MAX_LABELS = 32
RESERVED_ENV = ("NVIDIA_", "CUDA_MPS_", "LD_PRELOAD", "LD_LIBRARY_PATH", "ORCA_")


def _no_reserved_env(name: str) -> str:
    if name.startswith(RESERVED_ENV):
        raise ValueError("the node sets this, not the task; remove it")
    return name


Name = Label
# One comparison in Rust: this stands on the path of every submission.
GpuType = Annotated[
    str, GetPydanticSchema(lambda _, __: core_schema.literal_schema(list(MEMORY_MIB_BY_TYPE)))
]
Printable = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_ARG_CHARS, pattern=patterns.PRINTABLE)
]
Image = Annotated[str, StringConstraints(max_length=MAX_IMAGE_CHARS, pattern=patterns.IMAGE)]
Argument = Annotated[str, StringConstraints(max_length=MAX_ARG_CHARS, pattern=patterns.ARGUMENT)]
EnvName = Annotated[
    str,
    StringConstraints(max_length=128, pattern=patterns.ENV_NAME),
    AfterValidator(_no_reserved_env),
]


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
        allow_inf_nan=False, use_attribute_docstrings=True,
    )  # fmt: skip


class Metadata(_Section):
    """Who the task is."""

    name: Name
    """The task's name, for people; a DNS label."""
    namespace: Name
    """The account that pays; a DNS label."""
    labels: dict[Name, Printable] = Field(default={}, max_length=MAX_LABELS)
    """Marks of one's own."""


class GpuRequest(_Section):
    """``count`` GPUs of ``type``; when shared, ``memory_limit`` MiB and a share of each."""

    type: GpuType
    """The GPU's type, such as A100."""
    count: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)] = 1
    """How many GPUs of one node."""
    memory_limit: MemoryQuantity | None = None
    """Memory of each GPU; without it the whole card's. Required when shared."""
    compute_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Share of each GPU's compute; below 100 only when shared."""
    sharing: Sharing = Field(default=Sharing.EXCLUSIVE, strict=False)
    """Whether other tasks may run on the same GPUs."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        largest = MEMORY_MIB_BY_TYPE[self.type]
        if self.memory_limit is not None and self.memory_limit > largest:
            raise _at(
                "memoryLimit",
                f"{self.memory_limit}Mi",
                f"larger than any {self.type}; write at most {largest}Mi",
            )
        if self.sharing is Sharing.SHARED and self.memory_limit is None:
            raise _at("memoryLimit", None, "a shared GPU needs it; say how much, such as 20Gi")
        if self.sharing is Sharing.EXCLUSIVE and self.compute_percent != 100:
            raise _at(
                "computePercent",
                self.compute_percent,
                "an exclusive GPU is a whole one; add sharing: shared, or leave this out",
            )
        return self


def _at(field: str, value: object, remedy: str) -> ValidationError:
    # Braces would be read as places to fill in.
    kind = PydanticCustomError("value_error", "{remedy}", {"remedy": remedy})
    detail = InitErrorDetails(type=kind, loc=(field,), input=value)
    return ValidationError.from_exception_data("GpuRequest", [detail])


class Resources(_Section):
    """What the task holds while it runs. Without ``gpu`` it is a CPU task."""

    gpu: GpuRequest | None = None
    """GPUs; a task without them is a CPU task."""
    cpu: CpuQuantity = 1000
    """CPU cores, such as "4" or "500m"."""
    memory: MemoryQuantity = 1024
    """Main memory, such as 16Gi."""
    token_quota: Positive | None = None
    """Tokens held for the task; it ends when they are used up."""


class EnvVar(_Section):
    """One environment variable of the task."""

    name: EnvName
    """The variable's name; those the node sets are refused."""
    value: Argument
    """Its value: text. Secrets are references, never values."""


class Retries(_Section):
    """How often a failed attempt is repeated, and what a lost node means."""

    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 0
    """How often a failed attempt is repeated."""
    on_node_loss: OnNodeLoss = Field(default=OnNodeLoss.WAIT, strict=False)
    """Wait for a lost node, or start anew elsewhere."""


class SchedulerHints(_Section):
    """Wishes that order the queue; they never change what is held."""

    priority: Priority = Field(default=Priority.NORMAL, strict=False)
    """Order in the queue."""
    queue: Name = "default"
    """Which queue; a DNS label."""
    estimated_duration: DurationQuantity | None = None
    """How long the task is likely to run."""


class MetricsCollection(_Section):
    """What is counted while the task runs."""

    enable_gpu_monitoring: bool = True
    """Sample the GPUs' load."""
    track_token_usage: bool = True
    """Count tokens."""
    report_interval: DurationQuantity = 30_000
    """How often usage is reported."""


class Spec(_Section):
    """What runs, on what, and how."""

    task_type: TaskType = Field(strict=False)
    """What sort of work it is."""
    resources: Resources = Resources()
    """What the task holds while it runs."""
    image: Image
    """The container image."""
    command: Annotated[
        tuple[Argument, ...], Field(min_length=1, max_length=MAX_COMMAND_ARGS, strict=False)
    ]
    """The program and its arguments, as a list."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=MAX_ENV, strict=False)] = ()
    """Environment variables."""
    retries: Retries = Retries()
    """What happens after a failure."""
    active_deadline: DurationQuantity | None = None
    """The task is ended when it has run this long."""
    scheduler_hints: SchedulerHints = SchedulerHints()
    """Wishes that order the queue."""
    metrics_collection: MetricsCollection = MetricsCollection()
    """What is counted while the task runs."""


class AITask(_Section):
    """One task's manifest."""

    api_version: Literal["orca.ai/v1"]
    """Always orca.ai/v1."""
    kind: Literal["AITask"]
    """Always AITask."""
    metadata: Metadata
    """Who the task is."""
    spec: Spec
    """What runs, on what, and how."""


def parse_manifest(document: Any) -> AITask:
    """Validate a manifest read from YAML or JSON; raises MalformedError naming the field."""
    try:
        return AITask.model_validate(document)
    except ValidationError as error:
        raise from_validation(error, model=AITask) from None
