"""Shells over the log in memory for tests: a clock and a lease by hand, a step at every await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from orca_schemas.positions import Position

from orca_runtime.decider import Decider
from orca_runtime.errors import LogUnavailableError
from orca_runtime.fold import fold_one, unfolded
from orca_runtime.lease import SoleLease
from orca_runtime.log import Outgoing, Stored, StreamState
from orca_runtime.memory_log import MemoryLog
from orca_runtime.own_mark import OwnMark
from orca_runtime.shell import DeciderShell
from orca_runtime.testing_toy import TOY, Toy

OWN = TOY.stream
START_MS = 1_764_547_200_000


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def steady_s(self) -> float:
        return self.ms / 1000


class HandLease:
    """A lease that a test gives and takes."""

    def __init__(self, held: bool = True) -> None:
        self._changed = asyncio.Event()
        self.given_up = 0
        self.give(held)

    def give(self, held: bool = True) -> None:
        self._held = held
        if held:
            self._changed.set()
        else:
            self._changed.clear()

    def held(self) -> bool:
        return self._held

    async def wait_held(self) -> None:
        await self._changed.wait()

    def give_up(self) -> None:
        self.given_up += 1
        self.give(False)


class Steps(MemoryLog):
    """The log with a step at every await point, faults on demand, and a record of appends."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(lambda: clock.ms * 1_000_000)
        self.appends: list[int] = []
        self.before: Callable[[], Exception | None] = lambda: None
        self.after: Callable[[], Exception | None] = lambda: None
        self.unavailable = False

    async def state(self, stream: str) -> StreamState:
        await asyncio.sleep(0)
        if self.unavailable:
            raise LogUnavailableError("away")
        return await super().state(stream)

    async def append(self, stream: str, expected_last: int, messages: Sequence[Outgoing]) -> int:
        await asyncio.sleep(0)
        if error := self.before():
            raise error
        last = await super().append(stream, expected_last, messages)
        self.appends.append(len(messages))
        await asyncio.sleep(0)
        if error := self.after():
            raise error
        return last

    async def read(self, stream: str, after: int) -> AsyncIterator[Sequence[Stored]]:
        async for batch in super().read(stream, after):
            await asyncio.sleep(0)
            yield batch

    def own(self) -> list[Stored]:
        return [one for one in self._streams[OWN].messages if one is not None]


class Bench:
    """A log, a clock, and shells over them that are cancelled at the end."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.log = Steps(self.clock)
        self.tasks: list[asyncio.Task[None]] = []

    def start(
        self, decider: Decider[Any, Any] = TOY, lease: Any = None, mark: OwnMark | None = None
    ) -> DeciderShell[Toy]:
        """Run a shell until the bench stops."""
        shell = DeciderShell(
            decider, self.log, clock=self.clock, lease=lease or SoleLease(), mark=mark
        )
        self.tasks.append(asyncio.create_task(shell.run()))
        return shell

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def say(self, *messages: Outgoing) -> list[Position]:
        return [await self.log.publish(one) for one in messages]

    async def until(self, met: Callable[[], bool], turns: int = 2000) -> None:
        for _ in range(turns):
            if met():
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"never met; the log holds {self.said()}")

    async def settled(self, shell: DeciderShell[Any], inputs: dict[str, int]) -> None:
        await self.until(lambda: all(shell.folded.done(s) >= n for s, n in inputs.items()))

    def folded(self) -> Any:
        folded = unfolded(TOY)
        for stored in self.log.own():
            folded, _ = fold_one(TOY, folded, stored)
        return folded

    def said(self) -> tuple[str, ...]:
        return self.folded().state.said  # type: ignore[no-any-return]
