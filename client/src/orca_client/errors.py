"""What can go wrong between a client and Orca."""

from __future__ import annotations

from orca_schemas.errors import OrcaError


class BrokerUnreachableError(OrcaError):
    """No broker answers; says where, and what to do."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(
            f"no broker at {url} ({detail}); start one with orca up, or set ORCA_NATS_URL"
        )


class NoAnswerError(OrcaError):
    """A service did not answer in time."""

    def __init__(self, service: str) -> None:
        super().__init__(f"{service} does not answer; see orca doctor")


class RefusedError(OrcaError):
    """A question or a publication was refused; the text names the field and the remedy."""


class NotStoredError(OrcaError):
    """The broker did not confirm in time: the event may or may not be in the log.

    Submitting again with the same task id is safe: a repeat is refused, never run twice.
    """
