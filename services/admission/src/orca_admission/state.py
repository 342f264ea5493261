"""What admission knows: accounts, runs, who waits. All of it is a fold of its own events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.events.admission import Part
from orca_schemas.identifiers import id_time_ms
from orca_schemas.spec import TaskSpec
from orca_schemas.values import Reason
from pydantic import TypeAdapter

from orca_admission.ledger import (
    GPU_MILLI,
    GPU_TYPE_PREFIX,
    NO_BALANCES,
    Asked,
    Balances,
    concurrent,
    tokens_in,
)
from orca_admission.queue import EMPTY, Mark, Place, Queue

REMEMBER_MS = 36 * 86_400_000
"""A finished run stays known for 36 days: usage may be reported up to 35 days late."""


class Phase(StrEnum):
    """Where a task stands, as far as admission knows."""

    QUEUED = "queued"
    RESERVED = "reserved"
    PLACED = "placed"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Account:
    """A namespace's account. ``admins`` None: known by its limits alone."""

    admins: tuple[str, ...] | None = None
    has_quota: bool = False
    balances: Balances = NO_BALANCES


@dataclass(frozen=True, slots=True)
class Run:
    """A submitted task. ``spec`` stands only while it waits; later only placement needs it.

    ``open_parts`` are the holds not yet released; ``used_tokens`` is cumulative. ``finished`` is
    set once nothing more is expected.
    """

    run_id: UUID
    task_id: str
    namespace: str
    number: int
    name: str
    user: str
    since_ms: int
    asked: Asked = ()
    rank: int = 0
    spec: TaskSpec | None = None
    granted_tokens: int | None = None
    used_tokens: int = 0
    open_parts: tuple[Part, ...] = ()
    reserved: bool = False
    stopping: bool = False
    ended: bool = False
    attempt: int = 0
    node: str | None = None
    fence: str | None = None
    outcome: str | None = None
    reasons: tuple[Reason, ...] = ()
    finished: Mark | None = None

    @property
    def phase(self) -> Phase:
        """Where the task stands."""
        if self.ended:
            return Phase.ENDED
        if self.spec is not None:
            return Phase.QUEUED
        if self.stopping:
            return Phase.STOPPING
        return Phase.RESERVED if self.node is None else Phase.PLACED

    @property
    def live(self) -> bool:
        """Whether it holds what a running task holds."""
        return Part.CONCURRENT in self.open_parts

    @property
    def place(self) -> Place:
        """Its place in the queue."""
        return Place(self.rank, self.number, self.run_id)

    @property
    def submitted_at_ms(self) -> int:
        """The broker's time of the submission."""
        return id_time_ms(self.run_id)

    @property
    def held_tokens(self) -> int:
        """The tokens held at reservation, used or not."""
        return tokens_in(self.asked)

    @property
    def gpu_milli(self) -> int:
        """The GPU share asked for, 0 for a CPU task."""
        return dict(self.asked).get(GPU_MILLI, 0)

    @property
    def gpu_type(self) -> str | None:
        """The GPU type asked for."""
        types = (name for name, _ in self.asked if name.startswith(GPU_TYPE_PREFIX))
        return next((name.removeprefix(GPU_TYPE_PREFIX) for name in types), None)

    def tokens_left(self, used_tokens: int) -> int:
        """The token hold that remains once ``used_tokens`` in all are used."""
        return max(0, self.held_tokens - used_tokens) if Part.CONSUMABLE in self.open_parts else 0

    def still_held(self, part: Part) -> Asked:
        """What the run holds of this part now."""
        if part not in self.open_parts:
            return ()
        if part is Part.CONCURRENT:
            return concurrent(self.asked)
        left = self.tokens_left(self.used_tokens)
        return tuple((name, left) for name, _ in self.asked if name == "tokens" and left)


@dataclass(frozen=True, slots=True)
class Shelf:
    """The runs of a namespace by their number, so that the newest are found without sorting."""

    count: int = 0
    runs: Table[int, UUID] = field(default_factory=Map)

    def newest(self) -> Iterator[UUID]:
        """The runs from the newest to the oldest that is remembered."""
        number, left = self.count, len(self.runs)
        while left:
            found = self.runs.get(number)
            if found is not None:
                left -= 1
                yield found
            number -= 1


@dataclass(frozen=True, slots=True)
class State:
    """Accounts, queues and shelves by namespace, runs by id, run ids by task id."""

    accounts: Table[str, Account] = field(default_factory=Map)
    queues: Table[str, Queue] = field(default_factory=Map)
    shelves: Table[str, Shelf] = field(default_factory=Map)
    runs: Table[UUID, Run] = field(default_factory=Map)
    tasks: Table[str, UUID] = field(default_factory=Map)

    def account(self, namespace: str) -> Account:
        """The account, an empty one if nothing was said of it."""
        return self.accounts.get(namespace, _NO_ACCOUNT)

    def queue(self, namespace: str) -> Queue:
        """The queue, an empty one if nobody ever waited."""
        return self.queues.get(namespace, EMPTY)

    def run_of(self, task_id: str) -> Run | None:
        """The run that this task id began."""
        run_id = self.tasks.get(task_id)
        return None if run_id is None else self.runs[run_id]

    def next_number(self, namespace: str) -> int:
        """The number of the namespace's next submission."""
        return self.shelves.get(namespace, _NO_SHELF).count + 1


_NO_ACCOUNT = Account()
_NO_SHELF = Shelf()
INITIAL = State()
STATE_TYPE = TypeAdapter(State)


def with_run(state: State, run: Run) -> State:
    """Keep the newer version of a run."""
    return replace(state, runs=state.runs.set(run.run_id, run))


def with_new_run(state: State, run: Run) -> State:
    """Begin to know a run, under its task id and its number."""
    shelf = state.shelves.get(run.namespace, _NO_SHELF)
    shelf = Shelf(run.number, shelf.runs.set(run.number, run.run_id))
    return replace(
        state,
        shelves=state.shelves.set(run.namespace, shelf),
        runs=state.runs.set(run.run_id, run),
        tasks=state.tasks.set(run.task_id, run.run_id),
    )


def without_run(state: State, run: Run) -> State:
    """Forget a run."""
    shelf = state.shelves[run.namespace]
    shelf = replace(shelf, runs=shelf.runs.delete(run.number))
    return replace(
        state,
        shelves=state.shelves.set(run.namespace, shelf),
        runs=state.runs.delete(run.run_id),
        tasks=state.tasks.delete(run.task_id),
    )


def with_balances(state: State, namespace: str, balances: Balances) -> State:
    """Keep the newer balances of an account."""
    account = replace(state.account(namespace), balances=balances)
    return replace(state, accounts=state.accounts.set(namespace, account))


def with_queue(state: State, namespace: str, queue: Queue) -> State:
    """Keep the newer queue of a namespace; an empty one is dropped."""
    if queue == EMPTY:
        queues = state.queues.delete(namespace) if namespace in state.queues else state.queues
    else:
        queues = state.queues.set(namespace, queue)
    return replace(state, queues=queues)
