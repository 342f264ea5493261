"""What goes wrong, how often. Each seed draws its own mix, so that rare faults meet calm ones."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass
class Faults:
    """Probabilities per call, and mean seconds between events of the world (0: never).

    ``on`` is turned off when the world is to come to rest.
    """

    delay: float
    long_delay: float
    append_lost: float
    append_refused: float
    publish_lost: float
    window_over: float
    replay: float
    crash_every_s: float
    pause_every_s: float
    lease_every_s: float
    zombie: float
    outage_every_s: float
    full_every_s: float
    node_every_s: float
    clock_every_s: float
    blackout_every_s: float
    withheld: float
    """Usage records that come only after metering's grace, or never."""
    small_bounds: bool
    """Decisions and groups of a few events, so that the rest is owed to timers and turns."""
    on: bool = True


def draw(rng: Random) -> Faults:
    """A mix of faults; about a third of the kinds stay away from each world."""

    def some(*choices: float) -> float:
        return 0.0 if rng.random() < 0.3 else rng.choice(choices)

    return Faults(
        delay=rng.choice((0.1, 0.5, 0.9)),
        long_delay=some(0.002, 0.02),
        append_lost=some(0.01, 0.1),
        append_refused=some(0.01, 0.1),
        publish_lost=some(0.02, 0.2),
        window_over=some(0.3, 1.0),
        replay=some(0.02, 0.2),
        crash_every_s=some(5.0, 30.0),
        pause_every_s=some(10.0, 60.0),
        lease_every_s=some(5.0, 40.0),
        zombie=some(0.3, 0.8),
        outage_every_s=some(60.0, 200.0),
        full_every_s=some(40.0, 120.0),
        node_every_s=some(8.0, 40.0),
        clock_every_s=some(20.0, 60.0),
        blackout_every_s=some(60.0, 120.0),
        withheld=0.02 if rng.random() < 0.15 else 0.0,
        small_bounds=rng.random() < 0.4,
    )
