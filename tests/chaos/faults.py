"""What is done to the stack: kills and pauses at moments drawn from a seed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from stack_kit import RunningStack

DECIDERS = ("admission", "placement", "metering", "billing")
REPLICAS = tuple(name + suffix for name in DECIDERS for suffix in ("", "-standby"))
AGENTS = ("node-agent/node-1", "node-agent/node-2")
PARTS = (*REPLICAS, *AGENTS, "clickhouse", "nats")


@dataclass(frozen=True, order=True)
class Fault:
    """At ``at_s`` after the start: ``kill -9``, or stop where it stands for ``pause_s``."""

    at_s: float
    part: str
    pause_s: float = 0.0


def schedule(rng: Random, seconds: float, kills: int, *pauses: tuple[str, float]) -> list[Fault]:
    """Kills spread over all parts, each as often as the others, and pauses at random moments."""
    rounds = -(-kills // len(PARTS))
    victims = [part for _ in range(rounds) for part in rng.sample(PARTS, len(PARTS))][:kills]
    faults = [Fault(rng.uniform(0, seconds), part) for part in victims]
    faults += [Fault(rng.uniform(0, seconds - p), part, p) for part, p in pauses]
    return sorted(faults)


@dataclass
class Chaos:
    """Does harm to a stack and counts it."""

    stack: RunningStack
    kills: Counter[str] = field(default_factory=Counter)
    missed: list[Fault] = field(default_factory=list)
    """Kills of what was not up at that moment."""

    async def run(self, faults: Sequence[Fault]) -> None:
        """Do all at their times."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._do(fault))

    async def _do(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        if fault.pause_s:
            await self.pause(fault.part, fault.pause_s)
        elif not self.kill(fault.part):
            self.missed.append(fault)

    def kill(self, part: str) -> bool:
        """``kill -9``; False where it is not up."""
        pid = self.stack.pid(part)
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.kills[part] += 1
        return True

    async def pause(self, part: str, seconds: float) -> None:
        """Stop it where it stands: connections stay open and nothing answers."""
        pid = self.stack.pid(part)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
