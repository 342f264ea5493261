"""What can go wrong between a client and Orca."""

from __future__ import annotations

from orca_schemas.errors import OrcaError


class UnavailableError(OrcaError):
    """Something that should answer does not; the text says what to do."""


class BrokerUnreachableError(UnavailableError):
    """No broker answers; says where, and what to do."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(
            f"no broker at {url} ({detail}); start one with orca up, or set ORCA_NATS_URL"
        )


class NoAnswerError(UnavailableError):
    """A service did not answer in time."""

    def __init__(self, service: str) -> None:
        super().__init__(f"{service} does not answer; see orca doctor")


class NotSetUpError(UnavailableError):
    """The broker runs, but no stream takes the subject: the streams were never declared."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject}: no stream takes it; is Orca set up? see orca doctor")


class ClickHouseUnreachableError(UnavailableError):
    """No ClickHouse answers; says where, and what to do."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(
            f"no ClickHouse at {url} ({detail}); start one with orca up, or set ORCA_CLICKHOUSE_URL"
        )


class QueryError(OrcaError):
    """ClickHouse refused a statement. ``code`` is its error code, 0 where it named none."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"ClickHouse error {code}: {message}" if code else message)


class RefusedError(OrcaError):
    """A question or a publication was refused; the text names the field and the remedy."""


class LogFullError(RefusedError):
    """The log has no room for what users say; what runs already has room of its own."""

    def __init__(self, stream: str, detail: str) -> None:
        super().__init__(
            f"{stream} is full ({detail}): nothing was stored, and what runs goes on; "
            "an operator gives it more room: orca streams apply --store-bytes BYTES"
        )


class NotFoundError(OrcaError):
    """What was named is not known; the text says where to look."""


class NotStoredError(UnavailableError):
    """The broker did not confirm in time: the event may or may not be in the log.

    Submitting again with the same task id is safe: a repeat is refused, never run twice.
    """
