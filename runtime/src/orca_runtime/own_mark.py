"""A replica's own memory of how far its stream went, outside the broker's store.

Readers' cursors cover what somebody read (see integrity); this covers the rest, on one disk.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Protocol

import structlog

from orca_runtime.errors import IntegrityError
from orca_runtime.log import StreamState

EVERY_S = 1.0
"""The mark may be behind by as much as was appended in this time."""

_log = structlog.get_logger(__name__)


class OwnMark(Protocol):
    """Where a replica notes how far its stream went."""

    def note(self, epoch: int, sequence: int) -> None:
        """Own events exist through ``sequence``; returns at once."""
        ...

    def check(self, state: StreamState) -> None:
        """Raise IntegrityError where the stream ends before what was noted of it."""
        ...


class NoMark:
    """Notes nothing."""

    def note(self, epoch: int, sequence: int) -> None:
        """Nothing."""

    def check(self, state: StreamState) -> None:
        """Nothing."""


class FileMark:
    """The mark in a small file, written at most once per EVERY_S, whole or not at all.

    It is not synced: a mark that a crash of the host takes back proves less, never a falsehood. A
    mark of another epoch, as after a log was begun anew on purpose, is set aside.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._written_s = path, 0.0

    def note(self, epoch: int, sequence: int) -> None:
        """Write the mark, if it is time."""
        if time.monotonic() - self._written_s < EVERY_S:
            return
        self._written_s = time.monotonic()
        part = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"epoch": epoch, "sequence": sequence}))
            part.replace(self._path)
        except OSError as error:  # a full disk of ours must not stop a log that has room
            _log.warning("mark not written", path=str(self._path), reason=str(error))

    def check(self, state: StreamState) -> None:
        """Compare the stream's end with the mark."""
        try:
            mark = json.loads(self._path.read_text())
            epoch, sequence = int(mark["epoch"]), int(mark["sequence"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if epoch == state.epoch and sequence > state.last_sequence:
            found = f"ends here, yet {self._path} saw it go to {sequence}"
            raise IntegrityError(state.stream, state.last_sequence, found)
