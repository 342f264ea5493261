"""The requests of JetStream's API that the log needs, on one connection."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from orca_runtime.errors import LogUnavailableError
from orca_runtime.jetstream.connect import Link, NotSentError, RefusedError, UnansweredError
from orca_runtime.jetstream.wire import NOT_FOUND_MESSAGE, NOT_FOUND_STREAM, parse_time_ns
from orca_runtime.log import Stored, StreamState

API_TIMEOUT_S = 5.0


class StreamMissingError(RefusedError):
    """There is no such stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"there is no stream {stream}; run: orca streams apply")


async def api(link: Link, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask ``$JS.API.<subject>``; the answer may hold ``error``.

    Raises LogUnavailableError, RefusedError where the broker denies asking.
    """
    try:
        answer = await link.request(
            f"$JS.API.{subject}", json.dumps(body).encode(), timeout_s=API_TIMEOUT_S
        )
    except (NotSentError, UnansweredError) as error:
        raise LogUnavailableError(f"JetStream does not answer: {error}") from error
    found: dict[str, Any] = json.loads(answer.body)
    return found


def check(stream: str, answer: dict[str, Any]) -> None:
    """Raise what an ``error`` in the answer means: missing, unavailable for now, or refused."""
    error = answer.get("error")
    if error is None:
        return
    if error.get("err_code") == NOT_FOUND_STREAM:
        raise StreamMissingError(stream)
    text = f"{stream}: {error.get('description')} ({error.get('err_code')})"
    if error.get("code", 0) >= 500:
        raise LogUnavailableError(text)
    raise RefusedError(text)


async def stream_state(link: Link, stream: str) -> StreamState:
    """Ask how far a stream goes. Raises LogUnavailableError, RefusedError."""
    answer = await api(link, f"STREAM.INFO.{stream}", {})
    check(stream, answer)
    state = answer["state"]
    return StreamState(
        stream,
        parse_time_ns(answer["created"]),
        first_sequence=state["first_seq"],
        last_sequence=state["last_seq"],
        messages=state["messages"],
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A message as the leader gave it, with its header block."""

    stored: Stored
    header: bytes

    def value(self, name: str) -> str:
        """A header's value; "" where there is none."""
        found = re.search(rb"\r\n" + name.encode() + rb": ?([^\r\n]*)", self.header)
        return found[1].decode("utf-8", "replace") if found else ""


async def find_message(
    link: Link, stream: str, epoch: int, sequence: int, subject_filter: str | None = None
) -> Found | None:
    """Read one message from the stream's leader (a direct read may be behind); None if absent.

    With ``subject_filter`` it is the first from ``sequence`` on whose subject fits. Raises
    LogUnavailableError, RefusedError.
    """
    query: dict[str, Any] = {"seq": sequence}
    if subject_filter is not None:
        query["next_by_subj"] = subject_filter
    answer = await api(link, f"STREAM.MSG.GET.{stream}", query)
    if answer.get("error", {}).get("err_code") == NOT_FOUND_MESSAGE:
        return None
    check(stream, answer)
    message = answer["message"]
    body = base64.b64decode(message.get("data") or "")
    place = (stream, epoch, message["seq"], parse_time_ns(message["time"]))
    header = base64.b64decode(message.get("hdrs") or "")
    return Found(Stored(*place, message["subject"], body), header)
