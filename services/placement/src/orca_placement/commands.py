"""What placement can be told to decide."""

from __future__ import annotations

from dataclasses import dataclass

from orca_runtime.recorded import Due, Recorded, Unreadable


@dataclass(frozen=True, slots=True)
class AnswerInput:
    """Answer an event of another stream."""

    event: Recorded


@dataclass(frozen=True, slots=True)
class AnswerTimer:
    """Answer a timer that fell due."""

    due: Due


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Set a message aside that is no event."""

    message: Unreadable


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """The shell has heard nothing of the node for ``silent_ms``."""

    node: str
    silent_ms: int


@dataclass(frozen=True, slots=True)
class NodeHeard:
    """The shell hears the node."""

    node: str


Command = AnswerInput | AnswerTimer | DeadLetter | NodeSilent | NodeHeard


def observe_silence(node: str, silent_ms: int) -> Command:
    """Tell that a node is silent; count from the last of heartbeat, take-over, reconnect."""
    return NodeSilent(node, silent_ms)


def observe_beat(node: str) -> Command:
    """Tell that a node speaks; only of interest for one that is lost."""
    return NodeHeard(node)
