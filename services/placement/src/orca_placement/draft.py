"""A decision being made: what is said so far, and the state as it will be then.

Each event is folded as it is said, by the same ``evolve`` that the log's reader uses, so the
next choice of the same decision sees what the last one took.
"""

from __future__ import annotations

from orca_runtime.recorded import Decided, Recorded
from orca_schemas.events.common import Noted, NothingNoted, RescanNoted
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import NOBODY, Kind, Role, Stream, Subject

from orca_placement.evolve import evolve
from orca_placement.limits import MAX_EVENTS
from orca_placement.state import Run, State

QUEUE = "queue"
"""The entity of the timer that looks at the whole queue, and the label of its note."""
ITSELF = "placement"
_PROVISIONAL_EPOCH = 0
"""Where the event will stand is known only when it is stored; the fold there sets it right."""


class Draft:
    """The events of one decision in order, and ``state`` with all of them folded."""

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.said: list[Decided] = []

    @property
    def full(self) -> bool:
        """Whether only the note that the rest is owed still has room."""
        return len(self.said) >= MAX_EVENTS

    def say(self, decided: Decided) -> None:
        """Add an event and fold it."""
        kind = Kind(decided.kind)
        name = type(decided.data).__name__
        position = Position(Stream.PLACEMENT, _PROVISIONAL_EPOCH, self.state.sequence + 1)
        subject = Subject(decided.namespace, kind, decided.id, Role.PLACEMENT, decided.party, name)
        self.state = evolve(self.state, Recorded(position, subject, self.now_ms, decided.data))
        self.said.append(decided)

    def say_of_run(self, run: Run, data: EventData, party: str = NOBODY) -> None:
        """Add an event about a run; ``party`` is the node that an order is for."""
        self.say(Decided(run.namespace, Kind.TASK, run.task_id, data, run.run_id, party))

    def say_of_node(self, node: str, data: EventData) -> None:
        """Add an event about a node."""
        self.say(Decided(CLUSTER, Kind.NODE, node, data))

    def toggle_rescan(self, about: str) -> None:
        """Say that a look at the whole queue is owed, or that the one owed begins."""
        fact = RescanNoted(namespace=QUEUE)
        self.say(Decided(CLUSTER, Kind.ACCOUNT, ITSELF, Noted(about=about, fact=fact)))

    def owe_rescan(self) -> None:
        """Leave the rest of the queue to a timer, once."""
        if self.state.rescan is None:
            self.toggle_rescan("the decision is full; the rest of the queue follows")


def nothing(about: str) -> Noted:
    """Say that an input changes nothing, and why."""
    return Noted(about=about, fact=NothingNoted())
