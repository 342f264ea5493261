"""The streams of the log: one table, one way to declare them, one way to check them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from orca_schemas.subjects import (
    LOGS_FILTER,
    ROOT,
    STREAM_OF_ROLE,
    TOKENS,
    Role,
    Stream,
    stream_filter,
)

from orca_runtime.errors import LogError

DAY_S = 86_400
NS_PER_S = 1_000_000_000
SHORTEST_WINDOW_NS = 100_000_000
"""JetStream accepts no shorter duplicate window (100 ms)."""
WINDOW_NS = 120 * NS_PER_S
API_TIMEOUT_S = 10.0
LOGS = "LOGS"


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream: what it captures and how much of the store it may use (per mille)."""

    name: str
    subjects: tuple[str, ...]
    share_per_mille: int
    max_age_s: int = 0
    takes_ids: bool = True
    """False where strangers write: one could swallow another's message by using its id first."""
    atomic: bool = False
    discard: str = "new"

    def config(self, store_bytes: int, replicas: int) -> dict[str, Any]:
        """The stream's configuration as JetStream's API takes it."""
        return {
            "name": self.name,
            "subjects": list(self.subjects),
            "retention": "limits",
            "storage": "file",
            "discard": self.discard,
            "deny_delete": True,
            "deny_purge": True,
            "allow_direct": False,
            "allow_atomic": self.atomic,
            "duplicate_window": WINDOW_NS if self.takes_ids else SHORTEST_WINDOW_NS,
            "max_age": self.max_age_s * NS_PER_S,
            "max_bytes": store_bytes * self.share_per_mille // 1000,
            "num_replicas": replicas,
        }


def _of(stream: Stream, share_per_mille: int, **rest: Any) -> StreamSpec:
    return StreamSpec(stream, (stream_filter(stream),), share_per_mille, **rest)


STREAMS = (
    _of(Stream.CLIENT, 100, max_age_s=35 * DAY_S, takes_ids=False),
    _of(Stream.ADMIN, 20, takes_ids=False),
    _of(Stream.ADMISSION, 180, atomic=True),
    _of(Stream.PLACEMENT, 150, atomic=True),
    _of(Stream.NODE, 100, max_age_s=35 * DAY_S),
    _of(Stream.USAGE, 200, max_age_s=35 * DAY_S),
    _of(Stream.METERING, 120, atomic=True),
    _of(Stream.BILLING, 80, atomic=True),
    # Output of tasks: the oldest goes first, so that it never stops anything.
    StreamSpec(LOGS, (LOGS_FILTER,), 40, max_age_s=7 * DAY_S, takes_ids=False, discard="old"),
)
"""The shares sum up to 990 of 1000: the rest is the store's own files. NODE and USAGE hold their
share for themselves, so running work can report although new work is refused."""

BY_NAME = {spec.name: spec for spec in STREAMS}
EXPIRING = frozenset(spec.name for spec in STREAMS if spec.max_age_s)
"""Streams that may begin after sequence 1."""

MAY_CHANGE = frozenset(("max_bytes", "max_age", "duplicate_window", "num_replicas"))
"""What apply changes in a stream that exists; all else needs a person."""
OWN_TO_BROKER = frozenset(
    ("metadata", "placement", "description", "compression", "consumer_limits")
)
"""Not compared: chosen by the broker or by whoever runs it."""


class StreamsDifferError(LogError):
    """A stream stands that is not as declared, in what apply must not change."""

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        super().__init__(
            "the streams are not as declared: " + "; ".join(differences) + "; nothing was changed: "
            "set them right by hand, or back up, delete and apply again"
        )


def stream_of(subject: str) -> Stream | None:
    """The stream that takes a message of this subject, however wrong its other parts are."""
    tokens = subject.split(".")
    if len(tokens) != TOKENS or tokens[0] != ROOT or "" in tokens:
        return None
    try:
        return STREAM_OF_ROLE[Role(tokens[4])]
    except ValueError:
        return None


def takes_ids(subject: str) -> bool:
    """Whether a message of this subject is published with its id."""
    stream = stream_of(subject)
    return stream is None or BY_NAME[stream].takes_ids


async def apply(nc: Client, store_bytes: int, replicas: int = 1) -> list[str]:
    """Create what is missing and change what may change; say in words what was done.

    ``store_bytes`` is the broker's ``max_file_store``. Raises StreamsDifferError (before anything
    is changed) where a stream stands that is otherwise, LogError where the broker refuses.
    """
    plan = [(spec, await _config(nc, spec.name)) for spec in STREAMS]
    wanted = {spec.name: spec.config(store_bytes, replicas) for spec in STREAMS}
    fixed = [
        text
        for spec, found in plan
        if found is not None
        for key, text in _differences(wanted[spec.name], found).items()
        if key not in MAY_CHANGE
    ]
    if fixed:
        raise StreamsDifferError(fixed)
    done = [await _settle(nc, wanted[spec.name], found) for spec, found in plan]
    return [text for text in done if text]


async def check(nc: Client, store_bytes: int | None = None, replicas: int = 1) -> list[str]:
    """Say in words how the streams differ from the declaration; [] if they do not.

    Without ``store_bytes`` the sizes are not compared, but a stream without limit is named.
    """
    differences: list[str] = []
    for spec in STREAMS:
        found = await _config(nc, spec.name)
        if found is None:
            differences.append(f"{spec.name}: missing")
            continue
        wanted = spec.config(store_bytes or 0, replicas)
        if store_bytes is None:
            limited = found.get("max_bytes", -1) > 0
            wanted["max_bytes"] = found["max_bytes"] if limited else "a limit"
        differences += _differences(wanted, found).values()
    return differences


async def _settle(nc: Client, wanted: dict[str, Any], found: dict[str, Any] | None) -> str:
    name = wanted["name"]
    if found is None:
        await _ask(nc, f"STREAM.CREATE.{name}", wanted)
        return f"{name}: created"
    changes = _differences(wanted, found)
    if not changes:
        return ""
    # The broker's own configuration with these fields changed: what a newer release set stays.
    await _ask(nc, f"STREAM.UPDATE.{name}", found | {key: wanted[key] for key in changes})
    return f"{name}: changed {', '.join(f'{k} to {wanted[k]!r}' for k in sorted(changes))}"


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, str]:
    """What differs, in words, by field. A field not declared must stand at its default."""
    keys = sorted((wanted.keys() | found.keys()) - OWN_TO_BROKER)
    return {
        key: f"{wanted['name']}: {key} is {found.get(key)!r}, declared {_declared(wanted, key)!r}"
        for key in keys
        if _plain(wanted.get(key)) != _plain(found.get(key))
    }


def _declared(wanted: dict[str, Any], key: str) -> Any:
    return wanted.get(key, "nothing")


def _plain(value: Any) -> Any:
    """JetStream writes "not set" as nothing, false, 0, -1 or an empty list or object."""
    return None if value in (None, False, 0, -1, "", [], {}) else value


async def _config(nc: Client, name: str) -> dict[str, Any] | None:
    answer = await _ask(nc, f"STREAM.INFO.{name}", {}, allow=10059)
    found: dict[str, Any] | None = answer.get("config")
    return found


async def _ask(nc: Client, subject: str, body: dict[str, Any], allow: int = 0) -> dict[str, Any]:
    reply = await nc.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=API_TIMEOUT_S)
    answer: dict[str, Any] = json.loads(reply.data)
    error = answer.get("error")
    if error and error.get("err_code") != allow:
        raise LogError(f"{subject}: {error.get('description')} ({error.get('err_code')})")
    return answer
