"""The cut to restore: how far each stream may go so that every recorded cause exists."""

from __future__ import annotations

from collections.abc import Mapping

from orca_schemas.positions import Cursor

from orca_runtime.integrity import DECIDER_STREAMS, cursor_at
from orca_runtime.log import EventLog


async def cut_of(log: EventLog, whole: Mapping[str, int]) -> dict[str, int]:
    """The highest sequence of each stream such that all that deciders read exists.

    ``whole`` says through where each stream is whole. A decider's stream is cut after an append,
    never within one. Raises LogUnavailableError.
    """
    cut = dict(whole)
    epochs = {stream: (await log.state(stream)).epoch for stream in whole}
    shrunk = True
    while shrunk:
        shrunk = False
        for stream in DECIDER_STREAMS:
            if stream in cut:
                kept = await _kept(log, stream, cut, epochs)
                shrunk = shrunk or kept < cut[stream]
                cut[stream] = kept
    return cut


async def _kept(
    log: EventLog, stream: str, cut: Mapping[str, int], epochs: Mapping[str, int]
) -> int:
    """The last append of a stream whose cursor the cut of the others covers: cursors only grow."""
    high = cut[stream]
    place = await _covered(log, stream, high, cut, epochs)
    if place is not None:
        return place
    low = 0  # covered: nothing was read
    kept = 0
    while high - low > 1:
        middle = (low + high) // 2
        place = await _covered(log, stream, middle, cut, epochs)
        if place is None:
            high = middle
        else:
            low, kept = middle, place
    return kept


async def _covered(
    log: EventLog, stream: str, at: int, cut: Mapping[str, int], epochs: Mapping[str, int]
) -> int | None:
    """Where the append at or before a place ends; None where it read what is cut off."""
    found = await cursor_at(log, stream, at)
    if found is None:
        return 0
    place, cursor = found
    return place if _covers(cut, epochs, cursor) else None


def _covers(cut: Mapping[str, int], epochs: Mapping[str, int], cursor: Cursor) -> bool:
    return all(
        epochs.get(stream) == epoch and sequence <= cut.get(stream, 0)
        for stream, (epoch, sequence) in cursor.items()
    )
