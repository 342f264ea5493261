"""Recorded histories of own streams: what was once decided folds to the same states for ever.

A service ships one or more in its package, ``history/*.jsonl.gz``; no file is ever changed. The
digest of the states that a release reaches on them is its fold fingerprint: it tells whether two
releases mean the same by the same events.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from orca_runtime.decider import Decider
from orca_runtime.fold import fold_one, unfolded
from orca_runtime.log import Stored
from orca_runtime.tables import state_digest

FOLDER = "history"
SUFFIX = ".jsonl.gz"
EVERY_EVENTS = 50
"""How often a state on the way is part of the fingerprint: what was forgotten by the end counts."""


def write_history(messages: Iterable[Stored]) -> bytes:
    """Write a stream from its first message on: a line that says which, then a line a message."""
    lines: list[str] = []
    for number, stored in enumerate(messages, start=1):
        assert stored.sequence == number, "a history begins at 1 and has no hole"
        if not lines:
            lines.append(_line(stream=stored.stream, epoch=stored.epoch))
        # A body that is no UTF-8 must come back as it was: surrogates stand for its bytes.
        body = stored.body.decode("utf-8", "surrogateescape")
        lines.append(_line(subject=stored.subject, time_ns=stored.time_ns, body=body))
    return gzip.compress("".join(lines).encode(), mtime=0)


def _line(**values: object) -> str:
    return json.dumps(values, separators=(",", ":")) + "\n"


def read_history(data: bytes) -> Iterator[Stored]:
    """Read what write_history wrote. Raises ValueError, KeyError where it did not."""
    head, *lines = gzip.decompress(data).decode().splitlines()
    about = json.loads(head)
    for number, line in enumerate(lines, start=1):
        found = json.loads(line)
        body = found["body"].encode("utf-8", "surrogateescape")
        place = (about["stream"], about["epoch"], number, found["time_ns"])
        yield Stored(*place, found["subject"], body)


def packaged(package: str) -> list[Traversable]:
    """The histories that a service's package ships, by name."""
    folder = files(package) / FOLDER
    if not folder.is_dir():
        return []
    found = (one for one in folder.iterdir() if one.name.endswith(SUFFIX))
    return sorted(found, key=lambda one: one.name)


def digests_on_the_way(decider: Decider[Any, Any], messages: Iterable[Stored]) -> dict[int, str]:
    """The state's digest after every EVERY_EVENTS own events and after the last, by sequence."""
    folded, found = unfolded(decider), {}
    for stored in messages:
        folded, _ = fold_one(decider, folded, stored)
        if folded.sequence % EVERY_EVENTS == 0:
            found[folded.sequence] = state_digest(decider.state_type, folded.state)
    return found | {folded.sequence: state_digest(decider.state_type, folded.state)}


def fingerprint(decider: Decider[Any, Any], package: str) -> str:
    """The digest of the states that this code reaches on the package's histories."""
    total = blake2b(digest_size=16)
    for history in packaged(package):
        digests = digests_on_the_way(decider, read_history(history.read_bytes()))
        total.update(json.dumps([history.name, *digests.items()]).encode())
    return total.hexdigest()
