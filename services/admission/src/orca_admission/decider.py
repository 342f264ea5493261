"""Admission as a decider: the pure core in one value."""

from __future__ import annotations

from orca_runtime.decider import Decider
from orca_schemas.subjects import Role, Stream

from orca_admission.commands import Command
from orca_admission.decide import decide
from orca_admission.evolve import evolve
from orca_admission.react import needs, react, react_due, react_unreadable
from orca_admission.state import INITIAL, STATE_TYPE, State
from orca_admission.timers import entities, timers, touched

DECIDER: Decider[State, Command] = Decider(
    role=Role.ADMISSION,
    inputs=(Stream.CLIENT, Stream.ADMIN, Stream.PLACEMENT, Stream.METERING, Stream.NODE),
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
    needs=needs,
    read_first={Stream.CLIENT: (Stream.ADMIN,)},
)
