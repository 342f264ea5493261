"""given / when / then for deciders: plain functions, no broker, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import NOBODY, ROLE_OF_STREAM, Kind, Stream, Subject

from orca_runtime.decider import Decider
from orca_runtime.recorded import Decided, Due, Recorded

S = TypeVar("S")
C = TypeVar("C")

EPOCH = 1_700_000_000_000_000_000
START_MS = 1_764_547_200_000


def an_input(
    stream: Stream,
    sequence: int,
    data: EventData,
    *,
    id_: str,
    namespace: str = "team-alpha",
    kind: Kind | None = None,
    party: str = NOBODY,
    time_ms: int = START_MS,
    run: str | None = None,
) -> Recorded:
    """An event as it would be read from ``stream`` at ``sequence``."""
    chosen = kind or data.KIND or Kind.TASK
    subject = Subject(namespace, chosen, id_, ROLE_OF_STREAM[stream], party, type(data).__name__)
    return Recorded(Position(stream, EPOCH, sequence), subject, time_ms, data, run)


def own_event(role_stream: Stream, sequence: int, decided: Decided, now_ms: int) -> Recorded:
    """A decided event as the shell would record it at ``sequence`` of the own stream."""
    subject = Subject(
        decided.namespace,
        Kind(decided.kind),
        decided.id,
        ROLE_OF_STREAM[role_stream],
        decided.party,
        type(decided.data).__name__,
    )
    position = Position(role_stream, EPOCH, sequence)
    return Recorded(position, subject, now_ms, decided.data, str(decided.run or "") or None)


@dataclass(frozen=True)
class Scenario(Generic[S, C]):
    """A decider with a state, fed one thing at a time; each step returns a new scenario."""

    decider: Decider[S, C]
    state: S
    now_ms: int = START_MS
    last_sequence: int = 0
    events: tuple[EventData, ...] = ()
    """What the last step decided, in order."""
    log: tuple[Recorded, ...] = ()
    """Every own event so far."""

    def given(self, *inputs: Recorded) -> Scenario[S, C]:
        """Feed inputs that set the scene."""
        scenario = self
        for one in inputs:
            scenario = scenario.when(one)
        return scenario

    def at(self, now_ms: int) -> Scenario[S, C]:
        """Move the clock."""
        return replace(self, now_ms=now_ms)

    def when(self, given: Recorded | Due | C) -> Scenario[S, C]:
        """Feed an input, a timer or a command, and fold what is decided."""
        command = self._command(given)
        if command is None:
            return replace(self, events=())
        return self._fold(self.decider.decide(self.state, command, self.now_ms))

    def _command(self, given: Any) -> C | None:
        if isinstance(given, Recorded):
            return self.decider.react(given)
        if isinstance(given, Due):
            return self.decider.react_due(given)
        command: C = given
        return command

    def _fold(self, decided: Iterable[Decided]) -> Scenario[S, C]:
        state, sequence, log = self.state, self.last_sequence, list(self.log)
        events = []
        for one in decided:
            sequence += 1
            event = own_event(self.decider.stream, sequence, one, self.now_ms)
            state = self.decider.evolve(state, event)
            log.append(event)
            events.append(one.data)
        return replace(
            self, state=state, last_sequence=sequence, events=tuple(events), log=tuple(log)
        )

    def due(self) -> tuple[Due, ...]:
        """Every timer of the state, by time."""
        found = (
            due
            for entity in self.decider.entities(self.state)
            for due in self.decider.timers(self.state, entity)
        )
        return tuple(sorted(found, key=lambda due: (due.at_ms, due.entity, due.kind)))


def scenario(decider: Decider[S, C]) -> Scenario[S, C]:
    """Begin with the decider's initial state."""
    return Scenario(decider, decider.initial)
