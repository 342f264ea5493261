"""How an attempt ended: from what was seen and what was ordered to one outcome."""

from __future__ import annotations

from dataclasses import dataclass

from orca_schemas.values import Outcome

from orca_node_agent.executor import AttemptObserved
from orca_node_agent.records import MAX_MESSAGE_CHARS, StopRecord

CLOCK_GRAIN_MS = 20
"""An exit this little before a stop counts as after it: file times lag by one kernel tick."""

SIGNAL_BASE = 128
LOST_MESSAGE = "the attempt's end was not witnessed: its body is gone from this host"
LAPSED = "no contact with placement for the lease's time: stopped, as onNodeLoss: requeue allows"
FORGOTTEN = "placement no longer lists this attempt here"


@dataclass(frozen=True, slots=True)
class Ending:
    """What TaskFinished is to say. ``started_at_ms`` None: the attempt never ran."""

    outcome: Outcome
    exit_code: int | None
    message: str
    started_at_ms: int | None
    finished_at_ms: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", self.message[:MAX_MESSAGE_CHARS])


def ending_of(observed: AttemptObserved, stop: StopRecord | None) -> Ending:
    """The end of an exited attempt. Its own exit wins over an order that came later."""
    outcome, message = _judge(observed, stop)
    return Ending(
        outcome, observed.exit_code, message, observed.started_at_ms, observed.finished_at_ms
    )


def _judge(observed: AttemptObserved, stop: StopRecord | None) -> tuple[Outcome, str]:
    if observed.out_of_memory:
        return Outcome.OUT_OF_MEMORY, "killed: it used more memory than it asked for"
    if stop is not None and _ended_after(observed, stop):
        return stop.outcome, stop.message
    if observed.exit_code == 0:
        return Outcome.SUCCEEDED, ""
    if observed.lost or observed.exit_code is None:
        return Outcome.NODE_LOST, LOST_MESSAGE
    return Outcome.FAILED, exit_text(observed.exit_code)


def _ended_after(observed: AttemptObserved, stop: StopRecord) -> bool:
    """Whether the stop came first. Who is told to end and ends well was still told to end; but a
    clean exit is taken for the stop's only where it is surely later."""
    finished_at_ms = observed.finished_at_ms
    grain_ms = 0 if observed.exit_code == 0 else CLOCK_GRAIN_MS
    return finished_at_ms is None or finished_at_ms + grain_ms >= stop.asked_at_ms


def exit_text(code: int) -> str:
    """A shell's exit code in words."""
    if code > SIGNAL_BASE:
        return f"killed by signal {code - SIGNAL_BASE}"
    return f"exit code {code}"


def never_started(outcome: Outcome, message: str) -> Ending:
    """The end of an attempt whose body never ran; ``finished_at_ms`` is when it is said."""
    return Ending(outcome, None, message, None, None)


def vanished(started_at_ms: int | None) -> Ending:
    """The end of an attempt that ran and is no longer to be found."""
    return Ending(Outcome.NODE_LOST, None, LOST_MESSAGE, started_at_ms, None)
