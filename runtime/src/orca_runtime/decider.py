"""A decider: pure functions that the shell drives. One per service that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from orca_schemas.positions import Position
from orca_schemas.subjects import STREAM_OF_ROLE, Role, Stream
from pydantic import TypeAdapter

from orca_runtime.recorded import Decided, Due, Recorded, Unreadable

S = TypeVar("S")
C = TypeVar("C")

MAX_DECISION_EVENTS = 100
"""One decision is at most this many events and is never split."""


def _no_needs(_: Recorded) -> Iterable[Position]:
    return ()


@dataclass(frozen=True)
class Decider(Generic[S, C]):
    """The functions of one service. All are pure: no await, clock, random, environment or log.

    ``react`` turns an input into a command, None by type alone; ``react_unreadable`` and
    ``react_due`` do so for a message that is no event and for a timer. ``decide`` is the only
    place that refuses, and answers every command with at least one event. ``evolve`` is total.
    ``timers`` are those of one entity; ``touched`` names the entities whose timers an own event
    may have changed; ``entities`` all that may have timers. ``needs`` are positions in other
    streams that must be read before the input; ``read_first`` streams that are read to their
    ends before an input of the key's stream is decided.
    """

    role: Role
    inputs: tuple[Stream, ...]
    initial: S
    state_type: TypeAdapter[S]
    react: Callable[[Recorded], C | None]
    react_unreadable: Callable[[Unreadable], C]
    react_due: Callable[[Due], C]
    decide: Callable[[S, C, int], list[Decided]]
    evolve: Callable[[S, Recorded], S]
    timers: Callable[[S, str], tuple[Due, ...]]
    entities: Callable[[S], Iterable[str]]
    touched: Callable[[Recorded], Iterable[str]]
    needs: Callable[[Recorded], Iterable[Position]] = _no_needs
    read_first: Mapping[Stream, tuple[Stream, ...]] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        """The service's own stream, of which it is the only writer."""
        return STREAM_OF_ROLE[self.role]

    @property
    def reads(self) -> tuple[Stream, ...]:
        """What its shell reads: the inputs, and ADMIN, where every service is told of its letters.

        Of a stream that is none of its inputs, ``react`` is shown nothing.
        """
        return self.inputs if Stream.ADMIN in self.inputs else (*self.inputs, Stream.ADMIN)


AnyDecider = Decider[Any, Any]
