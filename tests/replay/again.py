"""Decide again what was once decided, from the recorded inputs at the recorded times.

An own event names its cause and carries the decision's time; the state before it is the fold of
what stands before. So ``decide`` must say the same again: events, ids and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orca_placement.commands import observe_beat, observe_silence
from orca_runtime.decider import AnyDecider
from orca_runtime.fold import Folded, fold_one, unfolded
from orca_runtime.inbox import read_input
from orca_runtime.log import Stored
from orca_runtime.recorded import Due, Recorded, unreadable
from orca_runtime.speculate import Input, Observation, Speculation, speculate
from orca_schemas.codec import decode
from orca_schemas.envelope import Envelope
from orca_schemas.errors import MalformedError
from orca_schemas.events.placement import NodeLost
from orca_schemas.positions import Position
from orca_schemas.subjects import parse_subject

CURSOR = re.compile(rb',"cursor":"[^"]*"\}\Z')
"""What the shell writes into the last event of an append; how inputs were grouped is its own."""


@dataclass
class Again:
    """What came of deciding a stream again. ``different`` tells each event that came otherwise."""

    inputs: int = 0
    timers: int = 0
    observations: int = 0
    different: list[str] = field(default_factory=list)


def decide_again(decider: AnyDecider, log: Mapping[str, Sequence[Stored]]) -> Again:
    """Decide every decision of the own stream again, each on the state that stood before it."""
    found, folded = Again(), unfolded(decider)
    own = log[decider.stream]
    while folded.sequence < len(own):
        first = own[folded.sequence]
        given = _input_of(decider, first, log, found)
        epoch, now_ms = first.epoch, _time_ms(folded, decider, first)
        spec = speculate(decider, Speculation(folded, epoch), given, now_ms)
        for made in spec.outgoing:
            stored = own[folded.sequence]
            if (made.subject, made.body) != (stored.subject, CURSOR.sub(b"}", stored.body)):
                found.different.append(f"{stored.position}: {stored.body!r}, again: {made.body!r}")
            folded, _ = fold_one(decider, folded, stored)
        if not spec.outgoing:
            found.different.append(f"{first.position}: nothing is decided again")
            folded, _ = fold_one(decider, folded, first)
    return found


def _time_ms(folded: Folded[Any], decider: AnyDecider, first: Stored) -> int:
    return fold_one(decider, folded, first)[1].time_ms


def _envelope(stored: Stored) -> Envelope[Any]:
    return decode(parse_subject(stored.subject), stored.body)


def _input_of(
    decider: AnyDecider, first: Stored, log: Mapping[str, Sequence[Stored]], found: Again
) -> Input:
    envelope = _envelope(first)
    assert envelope.cause is not None
    cause = Position.parse(envelope.cause)
    if envelope.timer is None:
        found.inputs += 1
        return _read(decider, log[cause.stream][cause.sequence - 1], log)
    kind, *entity, last = envelope.timer.split("/")
    if entity and last.isdigit():
        found.timers += 1
        return Due(int(last), "/".join(entity), kind, cause)
    found.observations += 1
    return _observation(envelope, cause)


def _read(decider: AnyDecider, stored: Stored, log: Mapping[str, Sequence[Stored]]) -> Input:
    """The input as the inbox hands it in: one that needs what does not exist is none."""
    given = read_input(stored)
    if isinstance(given, Recorded):
        for need in decider.needs(given):
            held = log.get(need.stream, ())
            if need.stream in decider.inputs and _is_absent(need, held):
                error = MalformedError("data.fence", str(need), "name a position that exists")
                return unreadable(stored, error)
    return given


def _is_absent(need: Position, held: Sequence[Stored]) -> bool:
    return len(held) < need.sequence or held[0].epoch != need.epoch


def _observation(envelope: Envelope[Any], origin: Position) -> Observation:
    """What placement's shell saw of a node, as its event tells it."""
    assert envelope.timer is not None
    what, node = envelope.timer.split("/")
    if what == "heard":
        return Observation(observe_beat(node), envelope.timer, origin)
    silent_ms = envelope.data.silent_ms if isinstance(envelope.data, NodeLost) else 0
    return Observation(observe_silence(node, silent_ms), envelope.timer, origin)
