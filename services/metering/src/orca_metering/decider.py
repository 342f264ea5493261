"""Metering as a decider: the pure core in one value."""

from __future__ import annotations

from orca_runtime.decider import Decider
from orca_schemas.subjects import Role, Stream

from orca_metering.commands import Command
from orca_metering.decide import decide
from orca_metering.evolve import evolve
from orca_metering.react import needs, react, react_due, react_unreadable
from orca_metering.state import STATE, State
from orca_metering.timers import entities, timers, touched

DECIDER: Decider[State, Command] = Decider(
    role=Role.METERING,
    inputs=(Stream.USAGE, Stream.PLACEMENT),
    initial=State(),
    state_type=STATE,
    react=react,
    react_unreadable=react_unreadable,
    react_due=react_due,
    decide=decide,
    evolve=evolve,
    timers=timers,
    entities=entities,
    touched=touched,
    needs=needs,
)
