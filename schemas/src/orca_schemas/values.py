"""Values that events share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from orca_schemas import patterns
from orca_schemas.identifiers import Label
from orca_schemas.model import Value, omitted
from orca_schemas.positions import PositionText
from orca_schemas.units import Amount, Positive, UnixMs

MAX_REASON_CHARS = 1000
MAX_NAME_CHARS = 200

Text = Annotated[str, StringConstraints(max_length=MAX_REASON_CHARS)]
ModelName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_NAME_CHARS, pattern=patterns.MODEL_NAME),
]
DIMENSION_PATTERN = patterns.DIMENSION
Dimension = Annotated[str, StringConstraints(pattern=DIMENSION_PATTERN)]
"""What a limit counts: ``gpu_milli`` (of all types), ``gpu_milli:A100``, ``cpu_milli`` …"""


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    GPU_MEMORY_EXCEEDED = "gpu_memory_exceeded"
    QUOTA_EXHAUSTED = "quota_exhausted"
    BUDGET_EXHAUSTED = "budget_exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    IMAGE_ERROR = "image_error"
    START_TIMEOUT = "start_timeout"
    NEVER_STARTED = "never_started"


class ReasonCode(StrEnum):
    """Why something waits or is refused: a closed vocabulary."""

    MALFORMED = "malformed"
    UNKNOWN_NAMESPACE = "unknown_namespace"
    NO_QUOTA = "no_quota"
    QUOTA_GPU = "quota_gpu"
    QUOTA_CPU = "quota_cpu"
    QUOTA_MEMORY = "quota_memory"
    QUOTA_TASKS = "quota_tasks"
    QUOTA_TOKENS = "quota_tokens"
    NO_NODES = "no_nodes"
    GPU_TYPE_ABSENT = "gpu_type_absent"
    CAPACITY_GPU = "capacity_gpu"
    CAPACITY_GPU_MEMORY = "capacity_gpu_memory"
    CAPACITY_CPU = "capacity_cpu"
    CAPACITY_MEMORY = "capacity_memory"
    NODE_HEALTH = "node_health"
    NEVER_FITS = "never_fits"
    STOP_UNCONFIRMED = "stop_unconfirmed"
    PRIORITY = "priority"
    REPEATED = "repeated"
    NOT_FOUND = "not_found"
    NOT_ALLOWED = "not_allowed"
    ENDED = "ended"
    UNSUPPORTED = "unsupported"
    CANCELLED = "cancelled"


class Reason(Value):
    """One reason with its numbers: what was asked, what is free, what the limit is."""

    code: ReasonCode
    message: Text
    field: str | None = omitted()
    account: str | None = omitted()
    dimension: str | None = omitted()
    asked: int | None = omitted()
    available: int | None = omitted()
    limit: int | None = omitted()


class Period(StrEnum):
    """Over what a limit counts: what is held now, or everything ever used."""

    CONCURRENT = "concurrent"
    TOTAL = "total"


class Hold(Value):
    """An amount held of one dimension of one account."""

    account: Label
    dimension: Dimension
    period: Period
    amount: Amount


class Gpu(Value):
    """One GPU of a node. ``memory_mib`` is the usable memory."""

    uuid: ModelName
    type: ModelName
    memory_mib: Positive
    simulated: bool


class Inventory(Value):
    """What a node has to give."""

    gpus: tuple[Gpu, ...]
    cpu_milli: Positive
    memory_mib: Positive
    executor: ModelName
    agent_version: ModelName


class Slot(Value):
    """A share of one GPU: ``gpu_milli`` 1000 and all its memory when exclusive."""

    gpu_uuid: ModelName
    gpu_type: ModelName
    gpu_milli: Positive
    memory_mib: Positive
    exclusive: bool


class Meter(StrEnum):
    """What is counted of an attempt."""

    TOKENS = "tokens"
    GPU = "gpu"
    CPU = "cpu"


class MeterEnd(Value):
    """Where one meter of an attempt stood at its end; ``last_number`` 0 means no record.

    ``used`` is in tokens, GPU milliseconds or CPU milliseconds.
    """

    meter: Meter
    epoch: Amount
    used: Amount
    last_number: Amount


class TokenClasses(Value):
    """Tokens in disjoint classes: their sum is the total."""

    input_uncached: Amount = 0
    input_cache_read: Amount = 0
    input_cache_write: Amount = 0
    input_audio: Amount = 0
    input_image: Amount = 0
    output_text: Amount = 0
    output_reasoning: Amount = 0
    output_audio: Amount = 0
    output_image: Amount = 0

    @property
    def total(self) -> int:
        """All tokens of all classes."""
        return sum(amount for _, amount in self.items())

    def items(self) -> list[tuple[str, int]]:
        """``(class, tokens)`` for every class."""
        return [(name, getattr(self, name)) for name in TokenClasses.model_fields]


class RecordHead(Value):
    """What every usage record says of itself.

    ``record_id`` is a UUIDv7 whose time bits are the record's event time. ``number`` counts from
    1 without a hole per (run, attempt, node, meter, epoch).
    """

    record_id: UUID
    run_id: UUID
    attempt: Positive
    fence: PositionText
    epoch: Amount
    number: Positive


class AcceptedRecord(Value):
    """A usage record that metering accepted; the permanent form.

    For tokens ``model`` and ``classes`` stand; for gpu ``model`` is the GPU type, ``milli`` the
    share and ``duration_ms`` the time; for cpu ``milli`` and ``duration_ms``.
    """

    record_id: UUID
    meter: Meter
    attempt: Positive
    node: Label
    epoch: Amount
    number: Positive
    model: str
    classes: TokenClasses | None = None
    milli: Amount = 0
    duration_ms: Amount = 0
    at_ms: UnixMs


class BucketTotal(Value):
    """Cumulative total of a run for a meter, a model and a 15-minute UTC bucket.

    ``used`` is in tokens, or in milli-GPU (or milli-CPU) milliseconds.
    """

    meter: Meter
    model: str
    bucket_start_ms: UnixMs
    used: Amount


class MissingRange(Value):
    """Record numbers that a meter's end promises and that never came."""

    meter: Meter
    attempt: Positive
    epoch: Amount
    first: Positive
    last: Positive


class ChargeLine(Value):
    """One record, or one class of one record, priced.

    ``amount_pico_usd`` is ``quantity x price`` in 1e-12 USD. ``price`` is the position of the
    PriceSet in force at the record's own time; None where no price was (then the amount is 0).
    """

    record_id: UUID
    meter: Meter
    at_ms: UnixMs
    sku: str
    quantity: Amount
    unit: str
    price: PositionText | None
    price_micro_usd: Amount
    amount_pico_usd: int


class Fault(Value):
    """An input that could not be handled, and why."""

    position: PositionText
    subject: Annotated[str, StringConstraints(max_length=MAX_REASON_CHARS)]
    error: Text
    body_sha256: str = Field(pattern=patterns.SHA256)
