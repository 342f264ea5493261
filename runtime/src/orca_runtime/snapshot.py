"""Snapshots of a fold: a start-up reads the newest valid one and only the tail of the log.

A snapshot is never the truth. One that is damaged, of another schema, of another stream or of a
release to which the same events meant something else is set aside with a warning, and the fold
starts from the one before, or from zero.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import structlog
from immutables import Map
from pydantic.json_schema import PydanticJsonSchemaWarning

from orca_runtime.decider import Decider
from orca_runtime.fold import Folded
from orca_runtime.log import EventLog
from orca_runtime.slices import Slicer

S = TypeVar("S")

FORMAT = 3
EVERY_EVENTS = 20_000
"""Own events between snapshots: replaying this many takes well under a second."""
KEPT = 2
DIGEST_BYTES = 16
YIELD_S = 0.0
"""Between two slices: let whoever waits for the interpreter have it."""

_log = structlog.get_logger(__name__)


class Snapshots(Protocol[S]):
    """Where folds are kept between starts."""

    async def load(self) -> Folded[S] | None:
        """The newest valid snapshot; None where the fold starts from zero."""
        ...

    def offer(self, folded: Folded[S], epoch: int) -> None:
        """Take a snapshot if it is time; returns at once."""
        ...


class NoSnapshots(Generic[S]):
    """Keeps nothing: every start folds from zero."""

    async def load(self) -> Folded[S] | None:
        """Nothing."""
        return None

    def offer(self, folded: Folded[S], epoch: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Header:
    """What a snapshot says of itself; the state's bytes follow on the next line.

    ``schema`` is the digest of the state's shape, ``fold`` the fingerprint of the code that folded
    it (see histories), ``digest`` that of the state's bytes.
    """

    format: int
    service: str
    epoch: int
    sequence: int
    previous: str
    cursor: dict[str, tuple[int, int]]
    time_ms: int
    letters: dict[str, int]
    schema: str
    fold: str
    digest: str


UNREADABLE = (ValueError, TypeError, KeyError, OSError)
"""What reading a snapshot raises that is damaged or of another release."""


def _no_histories() -> str:
    return ""


class FileSnapshots(Generic[S]):
    """Snapshots as files ``<service>-<sequence>.snapshot``, written off the hot path.

    ``fingerprint`` is computed once, when the first snapshot is read or written.
    """

    def __init__(
        self,
        decider: Decider[S, Any],
        log: EventLog,
        folder: Path,
        every_events: int = EVERY_EVENTS,
        fingerprint: Callable[[], str] = _no_histories,
    ) -> None:
        self._decider, self._log, self._folder = decider, log, folder
        self._fingerprint = fingerprint
        self._every, self._last = every_events, 0
        self._writing: asyncio.Task[Path] | None = None

    def offer(self, folded: Folded[S], epoch: int) -> None:
        """Write in the background after every ``every_events`` own events, one at a time."""
        busy = self._writing is not None and not self._writing.done()
        if busy or folded.sequence - self._last < self._every:
            return
        self._last = folded.sequence
        self._writing = asyncio.create_task(asyncio.to_thread(self.write, folded, epoch))

    def write(self, folded: Folded[S], epoch: int) -> Path:
        """Write a snapshot now, whole or not at all, and let others run between two slices."""
        self._folder.mkdir(parents=True, exist_ok=True)
        header = self._header(folded, epoch)
        path = self._folder / f"{header.service}-{header.sequence:020d}.snapshot"
        part = path.with_suffix(f".{os.getpid()}.part")  # a standby may write the same one
        with part.open("wb") as file:
            file.write(_line(header))
            total = blake2b(digest_size=DIGEST_BYTES)
            for piece in self._slicer.slices(folded.state):
                total.update(piece)
                file.write(piece)
                time.sleep(YIELD_S)
            # Only now is it known what the first line says: it keeps its length.
            file.seek(0)
            file.write(_line(replace(header, digest=total.hexdigest())))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        for old in self.paths()[KEPT:]:
            old.unlink(missing_ok=True)
        return path

    def _header(self, folded: Folded[S], epoch: int) -> Header:
        return Header(
            format=FORMAT,
            service=self._decider.role.value,
            epoch=epoch,
            sequence=folded.sequence,
            previous=folded.previous,
            cursor=folded.cursor,
            time_ms=folded.time_ms,
            letters=dict(folded.letters),
            schema=self.schema,
            fold=self.fold,
            digest="0" * 2 * DIGEST_BYTES,
        )

    @cached_property
    def _slicer(self) -> Slicer:
        return Slicer(self._decider.state_type, self._decider.initial)

    @cached_property
    def fold(self) -> str:
        """The fold fingerprint: a snapshot of code that folds otherwise is not read."""
        return self._fingerprint()

    @cached_property
    def schema(self) -> str:
        """The digest of the state's schema: a snapshot of another shape is not read."""
        with warnings.catch_warnings():
            # An empty table as a default is nothing that a JSON Schema can write.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            schema = json.dumps(self._decider.state_type.json_schema(), sort_keys=True)
        return _digest(schema.encode())

    def paths(self) -> list[Path]:
        """The snapshots that are kept, newest first."""
        return self._found("snapshot")

    def _found(self, suffix: str) -> list[Path]:
        return sorted(self._folder.glob(f"{self._decider.role.value}-*.{suffix}"), reverse=True)

    async def load(self) -> Folded[S] | None:
        """The newest snapshot that is whole, of this release's fold and of this stream."""
        for path in self.paths():
            try:
                folded = await self.read(path)
            except UNREADABLE as error:
                self._set_aside(path, error)
                continue
            self._last = folded.sequence
            return folded
        return None

    def _set_aside(self, path: Path, error: Exception) -> None:
        _log.warning("snapshot set aside", path=str(path), reason=str(error))
        with contextlib.suppress(FileNotFoundError):  # another replica may have been first
            path.replace(path.with_suffix(".aside"))
        for old in self._found("aside")[KEPT:]:
            old.unlink(missing_ok=True)

    async def read(self, path: Path) -> Folded[S]:
        """Read one snapshot; raises one of UNREADABLE."""
        head, state = await asyncio.to_thread(_parts, path)
        header = Header(**json.loads(head))
        await self._check(header, state)
        with _no_collector():
            validated = self._decider.state_type.validate_json(state)
        return Folded(
            state=validated,
            sequence=header.sequence,
            previous=header.previous,
            cursor={stream: (place[0], place[1]) for stream, place in header.cursor.items()},
            time_ms=header.time_ms,
            letters=Map(header.letters),
        )

    async def _check(self, header: Header, state: bytes) -> None:
        if header.format != FORMAT or header.schema != self.schema:
            raise ValueError("written by another release")
        if header.fold != self.fold:
            raise ValueError("folded by a release to which the same events meant something else")
        if header.digest != _digest(state):
            raise ValueError("damaged: its digest does not match")
        stream = await self._log.state(self._decider.stream)
        if stream.epoch != header.epoch:
            raise ValueError("of another stream")


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Make many objects that all stay: looking through them for garbage again and again would
    take most of the time (3.2 times as long for a state of 10,000 runs), then and ever after."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _parts(path: Path) -> tuple[bytes, bytes]:
    """The header's line and the state, of which no second copy is made: it may be large."""
    with path.open("rb") as file:
        return file.readline(), file.read()


def _line(header: Header) -> bytes:
    return json.dumps(asdict(header)).encode() + b"\n"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
