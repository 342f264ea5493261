"""Planted bugs, put around the real code from outside, to see whether the simulation finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from orca_metering import decide as metering_decide
from orca_placement import attempts as placement_attempts
from orca_runtime import speculate as speculate_module
from orca_runtime.decider import AnyDecider
from orca_runtime.errors import ConflictError
from orca_runtime.log import Outgoing
from orca_runtime.recorded import Decided, Recorded
from orca_runtime.shell import DeciderShell
from orca_runtime.speculate import Input, Speculation
from orca_schemas.events.admission import Part, QuotaReleased, QuotaReserved
from orca_schemas.events.placement import LeaseUpdated

from tests.simulation.nodes import Node
from tests.simulation.world import DECIDERS, Cast

Change = Callable[[AnyDecider], AnyDecider]


# -- in the shell -----------------------------------------------------------------------------


class CursorFirst(DeciderShell[Any]):
    """Moves the cursor before the append: what is not stored then is lost."""

    def _decide(self, inputs: list[Input]) -> Speculation[Any]:
        spec = super()._decide(inputs)
        self.folded = replace(self.folded, cursor=spec.folded.cursor)
        return spec


class ConflictIsFine(DeciderShell[Any]):
    """Takes a refused append for one that was stored before."""

    def __init__(self, decider: AnyDecider, log: Any, **rest: Any) -> None:
        super().__init__(decider, _Credulous(log), **rest)


class _Credulous:
    """A log whose append never conflicts."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, stream: str, expected: int, messages: Sequence[Outgoing]) -> int:
        try:
            return int(await self._log.append(stream, expected, messages))
        except ConflictError:
            return expected + len(messages)


class CommitFirst(DeciderShell[Any]):
    """Makes a decision the state before it is stored, and keeps it where storing failed."""

    def _decide(self, inputs: list[Input]) -> Speculation[Any]:
        spec = super()._decide(inputs)
        if self.loop_turns() % 7 == 0 and spec.outgoing:
            self.folded = replace(self.folded, state=spec.folded.state)
        return spec

    def loop_turns(self) -> int:
        """How often something was decided."""
        self._turns = getattr(self, "_turns", 0) + 1
        return self._turns


# -- in the deciders --------------------------------------------------------------------------


def _release_twice(decider: AnyDecider) -> AnyDecider:
    def decide(state: Any, command: Any, now_ms: int) -> list[Decided]:
        events = decider.decide(state, command, now_ms)
        for one in events:
            if isinstance(one.data, QuotaReleased) and one.data.part is Part.CONCURRENT:
                again = one.data.model_copy(update={"amounts": ()})
                return [*events, replace(one, data=again)]
        return events

    return replace(decider, decide=decide)


def _forgotten_hold(decider: AnyDecider) -> AnyDecider:
    """A run that waited before it was reserved holds no memory in the balances."""

    def evolve(state: Any, event: Recorded) -> Any:
        data = event.data
        if isinstance(data, QuotaReserved) and data.run_id in state.runs:
            held = tuple(one for one in data.held if one.dimension != "memory_mib")
            event = replace(event, data=data.model_copy(update={"held": held}))
        return decider.evolve(state, event)

    return replace(decider, evolve=evolve)


def _clock_in_evolve(decider: AnyDecider) -> AnyDecider:
    def evolve(state: Any, event: Recorded) -> Any:
        if isinstance(event.data, QuotaReserved):
            event = replace(event, time_ms=int(asyncio.get_running_loop().time() * 1000))
        return decider.evolve(state, event)

    return replace(decider, evolve=evolve)


def _delta_top_up(decider: AnyDecider) -> AnyDecider:
    def evolve(state: Any, event: Recorded) -> Any:
        data = event.data
        if isinstance(data, LeaseUpdated):
            known = state.runs[str(data.run_id)].granted_tokens or 0
            added = data.model_copy(update={"granted_tokens": known + data.granted_tokens})
            event = replace(event, data=added)
        return decider.evolve(state, event)

    return replace(decider, evolve=evolve)


# -- the list ---------------------------------------------------------------------------------


@contextmanager
def _random_ids() -> Iterator[None]:
    with patch.object(speculate_module, "derived_id", lambda *_: uuid4()):
        yield


@contextmanager
def _no_fence() -> Iterator[None]:
    with patch.object(placement_attempts, "_is_of", lambda *_: True):
        yield


@contextmanager
def _repeats_count() -> Iterator[None]:
    with patch.object(metering_decide, "is_repeat", lambda *_: False):
        yield


@contextmanager
def _hasty_nodes() -> Iterator[None]:
    with patch.object(Node, "patient", new=False):
        yield


def _with(service: str, change: Change) -> Cast:
    return Cast(deciders=DECIDERS | {service: change(DECIDERS[service])})


BUGS: dict[str, Cast] = {
    "cursor_before_append": Cast(shell=CursorFirst),
    "state_before_append": Cast(shell=CommitFirst),
    "conflict_is_success": Cast(shell=ConflictIsFine),
    "random_ids": Cast(around=_random_ids),
    "release_twice": _with("admission", _release_twice),
    "forgotten_hold": _with("admission", _forgotten_hold),
    "clock_in_evolve": _with("admission", _clock_in_evolve),
    "delta_top_up": _with("placement", _delta_top_up),
    "no_fence": Cast(around=_no_fence),
    "repeats_count": Cast(around=_repeats_count),
    "hasty_nodes": Cast(around=_hasty_nodes),
}
"""Each by name, as ``--bug`` takes it."""


def cast_of(bug: str | None) -> Cast:
    """Who plays: the real code, or that with one bug."""
    return Cast() if bug is None else BUGS[bug]
