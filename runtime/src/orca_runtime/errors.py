"""What can go wrong between a service and the log. Each says what to do."""

from __future__ import annotations

from orca_schemas.errors import OrcaError


class LogError(OrcaError):
    """Root of the log's errors."""


class ConflictError(LogError):
    """Somebody else wrote at the expected place; nothing of the append is stored."""

    def __init__(self, stream: str, expected: int, actual: int | None = None) -> None:
        self.expected, self.actual = expected, actual
        super().__init__(
            f"{stream}: expected last sequence {expected}, found {actual or 'another'}"
        )


class StreamFullError(LogError):
    """The stream reached its limit; the append is refused and nothing is stored."""

    def __init__(self, stream: str, text: str) -> None:
        super().__init__(f"{stream} is full ({text}); raise its max_bytes or archive it")


class LogUnavailableError(LogError):
    """The broker cannot be reached or does not answer; nothing is known."""


class IntegrityError(LogError):
    """The stream is not what it was: a hole, a roll-back or a foreign message. Decide nothing."""

    def __init__(self, stream: str, sequence: int, found: str) -> None:
        self.stream, self.sequence = stream, sequence
        super().__init__(
            f"{stream} at sequence {sequence}: {found}; restore all streams from one backup "
            "(orca streams check names the cut) and start again"
        )


class UnknownEventError(LogError):
    """An own stream holds an event of a newer release; this one must not decide."""


class DecisionTooLargeError(LogError):
    """A decision of more events than one append may hold: a bug in decide."""
