"""The service as the runtime drives it."""

from __future__ import annotations

from orca_runtime.decider import Decider
from orca_schemas.subjects import Role, Stream

from orca_placement.commands import Command
from orca_placement.decide import decide
from orca_placement.evolve import evolve
from orca_placement.react import react, react_due, react_unreadable
from orca_placement.state import INITIAL, STATE_TYPE, State
from orca_placement.timers import entities, timers, touched

DECIDER: Decider[State, Command] = Decider(
    role=Role.PLACEMENT,
    inputs=(Stream.ADMISSION, Stream.NODE),
    initial=INITIAL,
    state_type=STATE_TYPE,
    react=react,
    react_unreadable=react_unreadable,
    react_due=react_due,
    decide=decide,
    evolve=evolve,
    timers=timers,
    entities=entities,
    touched=touched,
)
