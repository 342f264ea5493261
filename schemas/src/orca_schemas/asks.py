"""Questions and answers on ``orca.ask.<namespace>.<user>.<service>.<verb>``.

Every answer reflects committed state and names the position it reflects.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from orca_schemas.spec import TaskSpec
from orca_schemas.units import Amount, UnixMs
from orca_schemas.values import Gpu, Hold, Inventory, Meter, MissingRange, Outcome, Reason, Slot

MAX_ROWS = 1000


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskError(_Body):
    """Why a question was not answered: the field, what stood there, what to do."""

    field: str
    value: str
    remedy: str


class Reply(_Body):
    """What comes back. ``position`` is the service's own-stream position that ``data`` reflects."""

    ok: bool
    position: str | None = None
    data: Any = None
    error: AskError | None = None


class TaskQuery(_Body):
    """Which tasks: of one task id, of one namespace, or all, newest first."""

    task_id: UUID | None = None
    namespace: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class TaskRow(_Body):
    """A task as admission or placement sees it. ``phase`` is that service's word for its state."""

    task_id: UUID
    run_id: UUID
    namespace: str
    name: str
    user: str
    phase: str
    since_ms: UnixMs
    submitted_at_ms: UnixMs
    outcome: str | None = None
    node: str | None = None
    attempt: int = 0
    used_tokens: int = 0
    token_quota: int | None = None
    gpu_type: str | None = None
    gpu_milli: int = 0
    queue_position: int | None = None
    reasons: tuple[Reason, ...] = ()


class Tasks(_Body):
    """The answer of ``admission.tasks`` and ``placement.tasks``."""

    tasks: tuple[TaskRow, ...]
    more: bool = False


class QuotaRow(_Body):
    """One limit and how much of it is taken. ``limit`` None is unlimited."""

    account: str
    dimension: str
    period: str
    limit: int | None
    held: Amount
    committed: Amount


class Quotas(_Body):
    """The answer of ``admission.quota``."""

    rows: tuple[QuotaRow, ...]


class RunHolds(_Body):
    """The answer of ``admission.holds``: what each live run still holds."""

    holds: dict[str, tuple[Hold, ...]]


class NodeRow(_Body):
    """A node as placement sees it; free amounts are what no slot takes."""

    node: str
    status: str
    boot_id: UUID
    inventory: Inventory
    cpu_milli_free: int
    memory_mib_free: int
    attempts: int
    last_heard_ms: int | None = None


class Nodes(_Body):
    """The answer of ``placement.nodes``."""

    nodes: tuple[NodeRow, ...]


class GpuRow(_Body):
    """A GPU and who sits on it."""

    node: str
    gpu: Gpu
    milli_free: int
    memory_mib_free: int
    tasks: tuple[str, ...]


class Gpus(_Body):
    """The answer of ``placement.gpus``."""

    gpus: tuple[GpuRow, ...]


class StopAsked(_Body):
    """An order to end an attempt."""

    outcome: Outcome
    message: str
    grace_ms: int


class DesiredAttempt(_Body):
    """An attempt that belongs on the asking node. ``fence`` is the position of its Placed."""

    run_id: UUID
    task_id: UUID
    spec: TaskSpec
    attempt: int
    fence: str
    slots: tuple[Slot, ...]
    granted_tokens: int | None
    lease_base_tokens: int
    stop: StopAsked | None = None
    traceparent: str | None = None


class DesiredQuery(_Body):
    """Which part of what belongs on the node: the attempts of runs whose id is above ``after``.

    A node says its ``boot_id``: until placement knows that boot, nothing belongs on it.
    """

    after: UUID | None = None
    boot_id: UUID | None = None


class Desired(_Body):
    """The answer of ``placement.desired``: everything that belongs on the node, by run id.

    An attempt that is not listed is over for placement: the node may remove its remains. Where
    ``more`` is true this is a part, and that holds only of all parts together.
    ``sequence`` orders answers: a node ignores one lower than the highest it acted on.
    """

    sequence: int
    known: bool
    attempts: tuple[DesiredAttempt, ...]
    more: bool = False


class PriceRow(_Body):
    """A price version of the book."""

    sku: str
    price_micro_usd: int
    unit: str
    effective_at_ms: UnixMs
    version: str


class PriceQuery(_Body):
    """Which prices: those of one sku, or all."""

    sku: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class Prices(_Body):
    """The answer of ``billing.prices``."""

    prices: tuple[PriceRow, ...]


class RunQuery(_Body):
    """Which runs: one, those of a task, those of a namespace, or all; newest first."""

    run_id: UUID | None = None
    task_id: UUID | None = None
    namespace: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class CostRow(_Body):
    """What one run costs so far, in 1e-12 USD; ``unpriced`` lines found no price in force."""

    run_id: UUID
    task_id: UUID
    namespace: str
    total_pico_usd: int
    unpriced: int
    final: bool


class Costs(_Body):
    """The answer of ``billing.cost``."""

    runs: tuple[CostRow, ...]


class UsedRow(_Body):
    """One meter of a run: ``used`` in tokens, or in milli-GPU (milli-core) milliseconds."""

    meter: Meter
    model: str
    used: int


class UsageRow(_Body):
    """What one run used so far. ``waiting_for`` is promised and has not come."""

    run_id: UUID
    task_id: UUID
    namespace: str
    used: tuple[UsedRow, ...]
    used_tokens: int
    released_at_ms: UnixMs | None
    final: bool
    waiting_for: tuple[MissingRange, ...]


class Usages(_Body):
    """The answer of ``metering.usage``."""

    runs: tuple[UsageRow, ...]


class HistoryEvent(_Body):
    """One event of a task's life, as ``orca describe task`` shows it."""

    position: str
    time_ms: UnixMs
    subject: str
    event: str
    cause: str | None
    run: str | None
    traceparent: str | None
    data: dict[str, Any]


class History(_Body):
    """The answer of ``<service>.history``: every event about one task, by stream and sequence."""

    events: tuple[HistoryEvent, ...]


class LogQuery(_Body):
    """Which output: of one task, after a sequence of the stream LOGS."""

    task_id: UUID
    after: int = Field(default=0, ge=0)
    limit: int = Field(default=200, ge=1, le=MAX_ROWS)


class LogLine(_Body):
    """A piece of a task's output: ``text`` from byte ``offset`` of the attempt's output on."""

    sequence: int
    node: str
    attempt: int
    offset: int
    text: str


class Logs(_Body):
    """The answer of ``admission.logs``; ask again after ``last`` for more."""

    chunks: tuple[LogLine, ...]
    last: int


class Status(_Body):
    """The answer of ``<service>.status``."""

    service: str
    ready: bool
    active: bool
    reason: str
    sequence: int
    digest: str
    lag: dict[str, int]
    version: str


class DeadLetterQuery(_Body):
    """Which dead letters: the one of an input's position, or all that are open."""

    position: str | None = None
    limit: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS)


class DeadLetterRow(_Body):
    """An input that a service could not handle and that nobody settled yet.

    ``position`` is the input's, ``letter`` the own event's that says so. ``body`` is the input as
    far as it can be shown; None where the log no longer holds it, or where it is a timer.
    """

    service: str
    position: str
    letter: str
    at_ms: UnixMs
    subject: str
    error: str
    body: str | None = None


class DeadLetters(_Body):
    """The answer of ``<service>.deadletters``, oldest first; ``total`` counts all that are open."""

    letters: tuple[DeadLetterRow, ...]
    total: int


class StreamQuery(_Body):
    """Which stream of the log."""

    stream: str


class StreamInfo(_Body):
    """The answer of ``<service>.stream``, as the broker says it. ``max_bytes`` None: no limit."""

    stream: str
    messages: int
    bytes: int
    last_sequence: int
    max_bytes: int | None
    broker_time: str


class RebuildQuery(_Body):
    """Whether to begin a rebuild where none runs, or only to ask how far one is."""

    start: bool = False


class RebuildPart(_Body):
    """How far one stream is written anew by one projector."""

    projector: str
    stream: str
    at: int
    end: int


class Rebuild(_Body):
    """The answer of ``<service>.rebuild``: idle, running, done or failed (then ``reason``)."""

    state: str
    id: str = ""
    parts: tuple[RebuildPart, ...] = ()
    reason: str = ""
