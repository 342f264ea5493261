"""Where recorded histories lie, and what they are known to fold to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from orca_admission.decider import DECIDER as ADMISSION
from orca_billing.decider import DECIDER as BILLING
from orca_metering.decider import DECIDER as METERING
from orca_placement.decider import DECIDER as PLACEMENT
from orca_runtime.decider import AnyDecider
from orca_runtime.histories import FOLDER, SUFFIX, read_history
from orca_runtime.log import Stored
from orca_schemas.subjects import Stream

DECIDERS: dict[str, AnyDecider] = {
    decider.stream: decider for decider in (ADMISSION, PLACEMENT, METERING, BILLING)
}
OWN = tuple(DECIDERS)
INPUTS = tuple(stream for stream in Stream if stream not in DECIDERS)

ROOT = Path(__file__).parents[2]
HISTORIES = Path(__file__).parent / "histories"
DIGESTS = HISTORIES / "DIGESTS.json"
"""``{history: {stream: {sequence: digest}}}``. Lines are added, never changed."""


def history_path(name: str, stream: Stream) -> Path:
    """An own stream lies in its service's package, an input stream here."""
    if stream not in DECIDERS:
        return HISTORIES / name / f"{stream}{SUFFIX}"
    service = stream.lower()
    package = ROOT / "services" / service / "src" / f"orca_{service}"
    return package / FOLDER / f"{name}{SUFFIX}"


def messages(name: str, stream: Stream) -> list[Stored]:
    """What was recorded; nothing where the stream was empty."""
    path = history_path(name, stream)
    return list(read_history(path.read_bytes())) if path.exists() else []


def known_digests() -> dict[str, dict[str, dict[int, str]]]:
    """The digests recorded with the histories."""
    if not DIGESTS.exists():
        return {}
    found = json.loads(DIGESTS.read_text())
    return {
        name: {
            stream: {int(sequence): digest for sequence, digest in digests.items()}
            for stream, digests in streams.items()
        }
        for name, streams in found.items()
    }


def keep_digests(name: str, stream: Stream, digests: Mapping[int, str]) -> None:
    """Add what a new history folds to."""
    known = known_digests()
    streams = known.setdefault(name, {})
    assert stream not in streams, "a recorded digest is never changed"
    streams[stream] = dict(digests)
    DIGESTS.parent.mkdir(exist_ok=True)
    DIGESTS.write_text(json.dumps(known, indent=1) + "\n")
