"""What a service answers about the streams of the log, for those who may not ask the broker."""

from __future__ import annotations

import json
from typing import Any

from orca_schemas.asks import StreamInfo, StreamQuery
from orca_schemas.errors import MalformedError

from orca_runtime.asks import Ask, LogVerb
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.streams import BY_NAME

ANSWER_S = 2.0


async def _stream(log: JetStreamLog, query: StreamQuery, _: Ask) -> StreamInfo:
    if query.stream not in BY_NAME:
        raise MalformedError("stream", query.stream, f"use one of {', '.join(BY_NAME)}")
    subject = f"$JS.API.STREAM.INFO.{query.stream}"
    info: dict[str, Any] = json.loads((await log.nc.request(subject, b"", timeout=ANSWER_S)).data)
    if "error" in info:
        raise MalformedError("stream", query.stream, str(info["error"].get("description")))
    state, limit = info["state"], info["config"].get("max_bytes", -1)
    return StreamInfo(
        stream=query.stream,
        messages=state["messages"],
        bytes=state["bytes"],
        last_sequence=state["last_seq"],
        max_bytes=limit if limit > 0 else None,
        broker_time=info["ts"],
    )


STREAM_INFO = LogVerb(StreamQuery, _stream)
