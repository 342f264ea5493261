"""Every bound and delay of placement, with its reason."""

from __future__ import annotations

from orca_runtime.decider import MAX_DECISION_EVENTS
from orca_schemas.limits import LEASE_TTL_MS, LOSS_MARGIN_MS, STOP_GRACE_MS

LOSS_WAIT_MS = LEASE_TTL_MS + STOP_GRACE_MS + LOSS_MARGIN_MS
"""After a loss: when a container whose manifest accepts the watchdog is surely gone.

A loss is itself LEASE_TTL_MS of silence, so the wait is longer than the sum needs to be by one
LEASE_TTL_MS: what a step of this host's clock, by which timers go, may take from it.
"""

NEVER_FITS_GRACE_MS = 10_000
"""Nodes may still be joining: so long a request that fits none of them is kept."""

BACKOFF_FIRST_MS = 1000
BACKOFF_MAX_MS = 300_000
"""A failed attempt is repeated after 1 s, 2 s, 4 s … but never later than 5 minutes."""

FORGET_MS = 3_600_000
"""An ended run can be asked about for so long; then it leaves the state."""

MAX_EVENTS = MAX_DECISION_EVENTS - 1
"""What a decision may say before it says that the rest is owed."""

EXPLAINED_PER_PASS = 3
"""Waiting runs, from the head of the queue, whose reasons are looked at when capacity moves.

Reasons flap as the cluster fills; to say each change of thousands of runs would cost more than
the placements. Who asks gets the reasons of that moment, wherever the run stands.
"""
