"""What the agent needs of the world beside an executor: a way to speak, ask and be hinted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from orca_runtime.log import Outgoing
from orca_schemas.positions import Position


class AskFailedError(Exception):
    """Nobody answered in time, or the broker is away."""


class Bus(Protocol):
    """The node's side of the broker."""

    async def publish(self, message: Outgoing) -> Position:
        """Put one message into its stream.

        Raises StreamFullError, LogUnavailableError (then it may or may not be stored; the same
        message is to be sent again).
        """
        ...

    async def beat(self, subject: str, body: bytes) -> None:
        """Send without storing; raises LogUnavailableError."""
        ...

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """Ask and wait for the answer; raises AskFailedError."""
        ...

    def hints(self) -> AsyncIterator[None]:
        """One item whenever the node is told to ask again; for ever."""
        ...
