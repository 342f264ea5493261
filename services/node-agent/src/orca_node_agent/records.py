"""What the agent remembers of an attempt until placement has forgotten it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orca_schemas.asks import DesiredAttempt
from orca_schemas.values import Meter, Outcome

MAX_MESSAGE_CHARS = 1000


class Phase(StrEnum):
    """How far the attempt's story is told.

    ``accepted``: written down before the executor is asked, so that a crash in between leaves a
    trace. ``started``: TaskStarted is in the spool. ``ended``: its TaskFinished or OrderRefused
    is; nothing about it is started or counted any more.
    """

    ACCEPTED = "accepted"
    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class StopRecord:
    """An order to end the attempt, as first acted on. ``asked_at_ms`` is on the node's clock."""

    outcome: Outcome
    message: str
    grace_ms: int
    asked_at_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The part of a record that changes.

    ``reported_through_ms``: GPU and CPU time is recorded up to here. ``topped_up_grant``: the
    grant for which more was asked. ``log_offset``: output is published up to this byte.
    """

    phase: Phase
    granted_tokens: int | None
    lease_base_tokens: int
    stop: StopRecord | None = None
    started_at_ms: int | None = None
    reported_through_ms: int | None = None
    topped_up_grant: int | None = None
    ended_at_ms: int | None = None
    log_offset: int = 0
    logs_done: bool = False

    @property
    def spendable_tokens(self) -> int | None:
        """What this attempt's probe may spend in all; None is unlimited."""
        if self.granted_tokens is None:
            return None
        return max(0, self.granted_tokens - self.lease_base_tokens)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt as it was assigned, and how far it came. ``key`` is ``<run id>-<attempt>``."""

    key: str
    assigned: DesiredAttempt
    progress: Progress

    @property
    def fence(self) -> str:
        """The position of the Placed that began it."""
        return self.assigned.fence


@dataclass(frozen=True, slots=True)
class MeterState:
    """One meter of an attempt: records so far, and their sum in tokens or milli-milliseconds."""

    last_number: int = 0
    used: int = 0


def key_of(attempt: DesiredAttempt) -> str:
    """The name of an attempt on this host."""
    return f"{attempt.run_id}-{attempt.attempt}"


def meters_of(record: AttemptRecord) -> tuple[Meter, ...]:
    """The meters that an attempt has: GPU only where it holds one."""
    return (Meter.TOKENS, Meter.GPU, Meter.CPU) if record.assigned.slots else METERS_WITHOUT_GPU


METERS_WITHOUT_GPU = (Meter.TOKENS, Meter.CPU)
