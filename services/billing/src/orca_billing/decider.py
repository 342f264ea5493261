"""Billing as a decider: the pure core in one value."""

from __future__ import annotations

from orca_runtime.decider import Decider
from orca_schemas.subjects import Role, Stream

from orca_billing.commands import Command
from orca_billing.decide import decide
from orca_billing.evolve import evolve
from orca_billing.react import react, react_due, react_unreadable
from orca_billing.state import STATE, State
from orca_billing.timers import entities, timers, touched

DECIDER: Decider[State, Command] = Decider(
    role=Role.BILLING,
    inputs=(Stream.METERING, Stream.ADMIN),
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
    read_first={Stream.METERING: (Stream.ADMIN,)},
)
