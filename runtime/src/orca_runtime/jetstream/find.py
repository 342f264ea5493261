"""Finding messages by subject: one question a message, so no consumer is left behind."""

from __future__ import annotations

import base64

from orca_runtime.jetstream.api import api, check
from orca_runtime.jetstream.connect import Link
from orca_runtime.jetstream.wire import NOT_FOUND_MESSAGE, parse_time_ns
from orca_runtime.log import Stored


async def find(
    link: Link, stream: str, epoch: int, subject_filter: str, after: int, limit: int
) -> list[Stored]:
    """Up to ``limit`` messages after sequence ``after`` whose subject fits, in order.

    Raises LogUnavailableError, RefusedError.
    """
    found: list[Stored] = []
    while len(found) < limit:
        query = {"seq": after + 1, "next_by_subj": subject_filter}
        answer = await api(link, f"STREAM.MSG.GET.{stream}", query)
        if answer.get("error", {}).get("err_code") == NOT_FOUND_MESSAGE:
            break
        check(stream, answer)
        message = answer["message"]
        after = message["seq"]
        body = base64.b64decode(message.get("data") or "")
        time_ns = parse_time_ns(message["time"])
        found.append(Stored(stream, epoch, after, time_ns, message["subject"], body))
    return found
