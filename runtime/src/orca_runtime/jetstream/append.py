"""Appending: under an expectation, all or nothing, and with an outcome that becomes known."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import uuid4

from orca_runtime.errors import (
    ConflictError,
    DecisionTooLargeError,
    IntegrityError,
    LogUnavailableError,
    StreamFullError,
)
from orca_runtime.jetstream.api import find_message
from orca_runtime.jetstream.connect import Answer, Link, NotSentError, RefusedError, UnansweredError
from orca_runtime.jetstream.wire import (
    BATCH_DUPLICATE_ID,
    CONFLICT_CODES,
    FULL_CODES,
    PASSING_CODES,
    actual_last,
)
from orca_runtime.log import MAX_APPEND_MESSAGES, Outgoing, Stored

ATTEMPT_TIMEOUT_S = 2.0
APPEND_WAIT_S = 20.0
BACKOFF_FIRST_S = 0.02
BACKOFF_MOST_S = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The broker's answer to one try: where it stands, or why it does not."""

    stream: str
    sequence: int
    duplicate: bool
    code: int
    status: int
    text: str

    @property
    def doubtful(self) -> bool:
        """The broker knows the id already: what is stored under it must be looked at."""
        return self.duplicate or self.code == BATCH_DUPLICATE_ID

    @property
    def passing(self) -> bool:
        """Refused for now; a later try may pass."""
        return self.code in PASSING_CODES or (self.status >= 500 and self.code not in FULL_CODES)


def read_verdict(answer: Answer) -> Verdict:
    """Read a publish acknowledgement. Raises UnansweredError where it is none."""
    try:
        found = json.loads(answer.body)
        error = found.get("error") or {}
        return Verdict(
            found.get("stream", ""),
            found.get("seq", 0),
            bool(found.get("duplicate")),
            error.get("err_code", 0),
            error.get("code", 0),
            error.get("description", ""),
        )
    except (ValueError, AttributeError) as unreadable:
        raise UnansweredError(f"no acknowledgement: {answer.body[:80]!r}") from unreadable


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for one answer, and for the outcome of an append."""

    attempt_s: float = ATTEMPT_TIMEOUT_S
    append_s: float = APPEND_WAIT_S


class Standing(Enum):
    """Whose messages stand at the expected place."""

    MINE = "mine"
    OTHERS = "others"
    NOTHING = "nothing"


@dataclass(slots=True)
class Append:
    """One append, from the first try to the known outcome."""

    link: Link
    reading: Link
    stream: str
    expected_last: int
    messages: Sequence[Outgoing]
    patience: Patience = field(default_factory=Patience)
    ambiguous: bool = False
    tries: int = 0
    groups: list[str] = field(default_factory=list)
    """The batch id of every try: the broker stores it with the messages."""
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("append at least one message")
        if len(self.messages) > MAX_APPEND_MESSAGES:
            raise DecisionTooLargeError(f"{len(self.messages)} > {MAX_APPEND_MESSAGES} messages")

    @property
    def last(self) -> int:
        """The stream's last sequence after success."""
        return self.expected_last + len(self.messages)

    async def run(self) -> int:
        """Try until the outcome is known or patience is over; see EventLog.append."""
        deadline = asyncio.get_running_loop().time() + self.patience.append_s
        while True:
            if await self._once():
                return self.last
            self.tries += 1
            if asyncio.get_running_loop().time() >= deadline or self.link.closed.is_set():
                raise self._unknown()
            await asyncio.sleep(backoff_s(self.tries))

    def _unknown(self) -> LogUnavailableError:
        place, limit_s = self.expected_last + 1, self.patience.append_s
        return LogUnavailableError(
            f"{self.stream}: outcome of the append at {place} unknown after {limit_s} s: "
            f"{self.reason}; read the stream before going on"
        )

    async def _once(self) -> bool:
        """One try: True when stored, False to try again; raises the known refusals."""
        try:
            verdict = read_verdict(await self._send())
            standing = await self._standing(verdict)
        except NotSentError as error:
            self.reason = str(error)
            return False
        except (UnansweredError, LogUnavailableError) as error:
            self.ambiguous, self.reason = True, str(error)
            return False
        return self._judge(verdict, standing)

    async def _standing(self, verdict: Verdict) -> Standing:
        """Look at the stream, but only where the answer alone does not tell."""
        if verdict.code == 0 and not verdict.duplicate:
            if verdict.sequence != self.last:
                found = f"acknowledged at {verdict.sequence} instead of {self.last}"
                raise IntegrityError(self.stream, verdict.sequence, found)
            return Standing.MINE
        if not self.ambiguous and not verdict.doubtful:
            return Standing.NOTHING
        return await self._look()

    async def _look(self) -> Standing:
        """Compare what stands at the expected place with the messages, byte by byte.

        A rival may have stored a group that begins with the very same event (deciders are
        deterministic), so of a group the broker's batch id must be one of ours too.
        """
        first = await find_message(self.reading, self.stream, 0, self.expected_last + 1)
        if first is None:
            return Standing.NOTHING
        if not same(first.stored, self.messages[0]):
            return Standing.OTHERS
        if len(self.messages) == 1:
            return Standing.MINE
        if first.value("Nats-Batch-Id") not in self.groups:
            return Standing.OTHERS
        last = await find_message(self.reading, self.stream, 0, self.last)
        if last is None or not same(last.stored, self.messages[-1]):
            raise IntegrityError(self.stream, self.last, "a group stands only in part")
        return Standing.MINE

    def _judge(self, verdict: Verdict, standing: Standing) -> bool:
        if standing is Standing.MINE:
            return True
        if standing is Standing.OTHERS:
            raise ConflictError(self.stream, self.expected_last)
        if verdict.code in CONFLICT_CODES:
            raise self._conflict(verdict)
        if verdict.code in FULL_CODES:
            raise StreamFullError(self.stream, verdict.text)
        self.reason = verdict.text or "an id of it is stored elsewhere"
        if verdict.passing or (verdict.doubtful and self.ambiguous):
            return False
        if verdict.doubtful:
            found = "an event id of this append is stored elsewhere already"
            raise IntegrityError(self.stream, self.expected_last + 1, found)
        raise RefusedError(f"{self.stream}: {verdict.text} ({verdict.code})")

    def _conflict(self, verdict: Verdict) -> ConflictError | IntegrityError:
        actual = actual_last(verdict.text)
        if actual is not None and actual < self.expected_last:
            found = f"the stream ends here, though {self.expected_last} was read"
            return IntegrityError(self.stream, actual, found)
        return ConflictError(self.stream, self.expected_last, actual)

    async def _send(self) -> Answer:
        if len(self.messages) == 1:
            return await self._request(0, {})
        self.groups.append(uuid4().hex)
        return await self._send_group(self.groups[-1])

    async def _send_group(self, group: str) -> Answer:
        """Send an atomic batch (ADR-50); only its last message is answered, for the whole."""
        for number in range(len(self.messages) - 1):
            message = self.messages[number]
            headers = self._headers(number) | _batch(group, number + 1)
            await self.link.send(message.subject, message.body, headers)
        commit = _batch(group, len(self.messages)) | {"Nats-Batch-Commit": "1"}
        return await self._request(-1, commit)

    async def _request(self, number: int, extra: dict[str, str]) -> Answer:
        message = self.messages[number]
        return await self.link.request(
            message.subject,
            message.body,
            self._headers(number) | extra,
            timeout_s=self.patience.attempt_s,
            also=(m.subject for m in self.messages) if number else (),
        )

    def _headers(self, number: int) -> dict[str, str]:
        headers = {"Nats-Msg-Id": self.messages[number].id}
        if number == 0:
            headers["Nats-Expected-Stream"] = self.stream
            headers["Nats-Expected-Last-Sequence"] = str(self.expected_last)
        return headers


def same(stored: Stored, message: Outgoing) -> bool:
    """Whether the stored bytes are this message's."""
    return stored.subject == message.subject and stored.body == message.body


def backoff_s(tries: int) -> float:
    """How long to wait before the next try: exponential, with full jitter."""
    return random.uniform(0, min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(tries, 16)))


def _batch(group: str, sequence: int) -> dict[str, str]:
    return {"Nats-Batch-Id": group, "Nats-Batch-Sequence": str(sequence)}
