"""The ceilings: the least that nats-py must do for the same durable result, with nothing of Orca.

A raw publication with an expectation, a raw atomic batch with one, and the fastest pull loop that
loses nothing: two requests in flight and a callback without limits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from nats.aio.client import Client
from nats.aio.msg import Msg
from orca_runtime.log import Outgoing

PULL_MESSAGES = 2000
PULLS = 2
ANSWER_S = 10.0


async def publish_one(nc: Client, expected_last: int, message: Outgoing) -> int:
    """Publish under an expectation and await the acknowledgement."""
    headers = {"Nats-Msg-Id": message.id, "Nats-Expected-Last-Sequence": str(expected_last)}
    answer = await nc.request(message.subject, message.body, ANSWER_S, headers=headers)
    return _sequence(answer.data)


async def publish_batch(nc: Client, expected_last: int, messages: Sequence[Outgoing]) -> int:
    """Publish an atomic batch (ADR-50) whose first message carries the expectation."""
    batch = uuid4().hex
    for number, message in enumerate(messages, 1):
        headers = {
            "Nats-Msg-Id": message.id,
            "Nats-Batch-Id": batch,
            "Nats-Batch-Sequence": str(number),
        }
        if number == 1:
            headers["Nats-Expected-Last-Sequence"] = str(expected_last)
        if number < len(messages):
            await nc.publish(message.subject, message.body, headers=headers)
        else:
            headers["Nats-Batch-Commit"] = "1"
            answer = await nc.request(message.subject, message.body, ANSWER_S, headers=headers)
    return _sequence(answer.data)


def _sequence(body: bytes) -> int:
    found: dict[str, Any] = json.loads(body)
    if "error" in found:
        raise AssertionError(found["error"])
    sequence: int = found["seq"]
    return sequence


async def pull_all(nc: Client, stream: str, end: int) -> int:
    """Read a stream from its first message to ``end``; returns how many bytes it held."""
    consumer = uuid4().hex
    config = {
        "name": consumer, "deliver_policy": "all", "ack_policy": "none", "mem_storage": True,
        "replay_policy": "instant", "inactive_threshold": 60 * 10**9,
    }  # fmt: skip
    body = json.dumps({"stream_name": stream, "config": config, "action": "create"}).encode()
    await nc.request(f"$JS.API.CONSUMER.CREATE.{stream}.{consumer}", body, ANSWER_S)
    inbox, done = nc.new_inbox(), asyncio.Event()
    count = held = 0
    pull = json.dumps({"batch": PULL_MESSAGES, "expires": 30 * 10**9}).encode()

    async def ask() -> None:
        await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", pull, reply=inbox)

    async def take(message: Msg) -> None:
        nonlocal count, held
        if message.headers and "Status" in message.headers:
            return
        count += 1
        held += len(message.data)
        assert int(message.reply.split(".")[5]) == count
        if count == end:
            done.set()
        elif count % PULL_MESSAGES == 0:
            await ask()

    subscription = await nc.subscribe(inbox, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    for _ in range(PULLS):
        await ask()
    await done.wait()
    await subscription.unsubscribe()
    return held
