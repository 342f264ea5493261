"""The loop in virtual time: waiting costs nothing, and nothing waits for ever unnoticed."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.simulation.loop import StuckError, VirtualLoop


def test_sleep_moves_the_clock_and_takes_no_time() -> None:
    """Given sleeps of hours, then they end in order and at once."""
    loop, order = VirtualLoop(), []

    async def sleeper(hours: float) -> None:
        await asyncio.sleep(hours * 3600)
        order.append((hours, loop.time() / 3600))

    async def main() -> None:
        await asyncio.gather(sleeper(3), sleeper(1), sleeper(2))

    began = time.monotonic()
    loop.run_until_complete(main())
    loop.close()
    assert order == [(1, 1), (2, 2), (3, 3)]
    assert time.monotonic() - began < 1


def test_timeouts_are_in_virtual_time() -> None:
    """Given an event that never comes, then its timeout ends after its virtual seconds."""
    loop = VirtualLoop()

    async def main() -> None:
        async with asyncio.timeout(500):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        loop.run_until_complete(main())
    assert loop.time() == pytest.approx(500)
    loop.close()


def test_waiting_for_nothing_is_an_error() -> None:
    """Given a wait that nothing can end, then the loop says so and does not hang."""
    loop = VirtualLoop()
    with pytest.raises(StuckError, match="no timer"):
        loop.run_until_complete(asyncio.Event().wait())


def test_time_that_stands_still_is_an_error() -> None:
    """Given a task that never waits, then the loop says so and does not hang."""
    loop = VirtualLoop()

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="stands still"):
        loop.run_until_complete(spin())
