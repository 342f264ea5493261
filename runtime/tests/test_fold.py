"""The fold of an own stream refuses what does not follow; time and cursors are exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_runtime.errors import IntegrityError
from orca_runtime.fold import Folded, fold_one, from_iso, to_iso, unfolded
from orca_runtime.log import Stored
from orca_runtime.recorded import recorded
from orca_runtime.speculate import Speculation, seal, speculate
from orca_runtime.testing_toy import TOY, Toy, add

EPOCH = 7


def _input(command: str, sequence: int) -> Stored:
    message = add(command)
    return Stored("CLIENT", EPOCH, sequence, 1_000_000 * 5, message.subject, message.body)


def _history(*commands: str) -> tuple[list[Stored], Folded[Toy]]:
    spec = Speculation(unfolded(TOY), EPOCH)
    for number, command in enumerate(commands, start=1):
        spec = speculate(TOY, spec, recorded(_input(command, number)), 1000 + number)
    sealed = seal(TOY, spec)
    stored = [
        Stored(TOY.stream, EPOCH, number, 0, out.subject, out.body)
        for number, out in enumerate(sealed.outgoing, start=1)
    ]
    return stored, sealed.folded


def _fold(stored: list[Stored]) -> Folded[Toy]:
    folded = unfolded(TOY)
    for one in stored:
        folded, _ = fold_one(TOY, folded, one)
    return folded


def test_what_was_speculated_is_what_the_fold_of_the_log_gives() -> None:
    """Given an append, when another replica folds it, then both hold the same value."""
    stored, speculated = _history("1", "2", "fail", "many 3", "not read")
    folded = _fold(stored)
    assert folded == speculated
    assert folded.cursor == {"CLIENT": (EPOCH, 5)}


def test_nothing_to_say_is_nothing_to_append() -> None:
    """Given inputs that are not read, then there is no message and the cursor moves in memory."""
    stored, speculated = _history("not read", "not read")
    assert stored == []
    assert speculated.cursor == {"CLIENT": (EPOCH, 2)}


@pytest.mark.parametrize("harm", ["hole", "swapped", "another role", "changed"])
def test_what_does_not_follow_is_refused(harm: str) -> None:
    """Given an own stream that was touched, then the fold stops there."""
    stored, _ = _history("1", "2", "3")
    match harm:
        case "hole":
            stored = [stored[0], stored[2]]
        case "swapped":
            bodies = (stored[1].body, stored[0].body, stored[2].body)
            stored = [replace(one, body=body) for one, body in zip(stored, bodies, strict=True)]
        case "another role":
            moved = stored[1].subject.replace(".metering.", ".billing.")
            stored[1] = replace(stored[1], subject=moved)
        case "changed":
            stored[0] = replace(stored[0], body=stored[0].body.replace(b'"1"', b'"8"'))
    with pytest.raises(IntegrityError):
        _fold(stored)


def test_an_own_event_without_a_time_is_foreign() -> None:
    """Given a body that chains but names no time, then it is refused and not half read."""
    stored, _ = _history("1")
    start, _, rest = stored[0].body.partition(b'"time":')
    body = start + rest.partition(b",")[2]
    with pytest.raises(IntegrityError):
        fold_one(TOY, unfolded(TOY), replace(stored[0], body=body))


@given(st.integers(0, 4_102_444_800_000))
def test_time_is_written_and_read_to_the_millisecond(time_ms: int) -> None:
    """Given any Unix ms until 2100, then the RFC 3339 text gives it back."""
    assert from_iso(to_iso(time_ms)) == time_ms
