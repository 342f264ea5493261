"""What was once recorded folds to the same states for ever, and is decided again alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from orca_runtime import slices
from orca_runtime.fold import fold_one, unfolded
from orca_runtime.histories import digests_on_the_way, fingerprint, read_history, write_history
from orca_runtime.log import Stored
from orca_runtime.recorded import Recorded
from orca_runtime.tables import state_bytes, state_digest
from orca_schemas.events.admission import QuotaSettled
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import ROLE_OF_STREAM, Stream

from tests.replay.again import decide_again
from tests.replay.shelf import DECIDERS, HISTORIES, history_path, known_digests, messages

MAX_BYTES = 200_000
DECIDED_AS_NOW = ("v1", "v1-aged")
"""Histories that today's rules decide alike. A rule that changes on purpose takes its history out
of this list (it must still fold alike) and records one of its own."""

NAMES = tuple(known_digests())
OWN = [(name, stream) for name in NAMES for stream in DECIDERS]


@pytest.mark.parametrize(("name", "stream"), OWN)
def test_a_history_folds_to_the_states_it_was_recorded_with(name: str, stream: str) -> None:
    """Given an own stream of an earlier day, then every 50 events the state is what it was then."""
    found = digests_on_the_way(DECIDERS[stream], messages(name, Stream(stream)))
    assert found == known_digests()[name][stream]


@pytest.mark.parametrize(("name", "stream"), OWN)
async def test_a_state_written_in_slices_is_the_same_bytes(
    name: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given states with something in every table, then in slices of three rows they are written
    as in one piece, and in more than one."""
    decider = DECIDERS[stream]
    monkeypatch.setattr(slices, "SLICE", 3)
    folded = unfolded(decider)
    slicer = slices.Slicer(decider.state_type, decider.initial)
    for stored in messages(name, Stream(stream)):
        folded, _ = fold_one(decider, folded, stored)
        if folded.sequence % 25 == 0:
            pieces = list(slicer.slices(folded.state))
            assert b"".join(pieces) == state_bytes(decider.state_type, folded.state)
            assert len(pieces) > 3
    digest = await slicer.digest(folded.state)
    assert digest == state_digest(decider.state_type, folded.state)


@pytest.mark.parametrize("stream", DECIDERS)
def test_the_histories_hold_every_event_of_their_service(stream: str) -> None:
    """Given all histories of a service, then each event it may say, and each fact that it notes,
    stands in one of them."""
    said = {event for name in NAMES for event in map(_event, messages(name, Stream(stream)))}
    role = ROLE_OF_STREAM[Stream(stream)]
    wanted = {name for name, event in EVENTS.items() if event.ROLE is role}
    assert wanted - said == set()
    assert "Noted.forget" in said


def _event(stored: Stored) -> str:
    name = stored.subject.rsplit(".", 1)[1]
    if name != "Noted":
        return name
    return f"Noted.{json.loads(stored.body)['data']['fact']['kind']}"


def test_every_history_has_its_digests_and_all_are_small() -> None:
    """Given the files, then none lacks a recorded digest, and together they are small."""
    paths = {history_path(name, Stream(stream)) for name, stream in OWN}
    shipped = {path for one in paths for path in one.parent.glob("*.jsonl.gz")}
    assert shipped == paths
    files = [*shipped, *HISTORIES.rglob("*.jsonl.gz")]
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES


@pytest.mark.parametrize("name", DECIDED_AS_NOW)
@pytest.mark.parametrize("stream", DECIDERS)
def test_what_was_decided_is_decided_again_to_the_byte(name: str, stream: str) -> None:
    """Given the recorded inputs, timers and observations at their recorded times, then decide
    says the same events with the same ids and the same bytes."""
    log = {one: messages(name, one) for one in Stream}
    found = decide_again(DECIDERS[stream], log)
    assert found.different == []
    assert found.inputs > 0
    assert found.inputs + found.timers + found.observations <= len(log[Stream(stream)])


class TestTheyWouldFail:
    """That these checks see what they are for."""

    log: Mapping[str, Sequence[Stored]] = {one: messages("v1", one) for one in Stream}

    def test_a_fold_that_means_something_else_has_another_fingerprint(self) -> None:
        """Given a release that forgets to count what was settled, then its fingerprint differs."""
        admission = DECIDERS[Stream.ADMISSION]

        def evolve(state: Any, event: Recorded) -> Any:
            if isinstance(event.data, QuotaSettled):
                return state
            return admission.evolve(state, event)

        other = replace(admission, evolve=evolve)
        assert fingerprint(admission, "orca_admission") == fingerprint(admission, "orca_admission")
        assert fingerprint(other, "orca_admission") != fingerprint(admission, "orca_admission")

    def test_a_rule_that_changed_is_found(self) -> None:
        """Given a release whose timers of law decide a millisecond later, then it shows."""
        billing = DECIDERS[Stream.BILLING]

        def decide(state: Any, command: Any, now_ms: int) -> Any:
            decided = billing.decide(state, command, now_ms)
            return [replace(one, id="00000000-0000-4000-8000-000000000000") for one in decided]

        assert decide_again(replace(billing, decide=decide), self.log).different

    def test_a_history_survives_being_written_again(self) -> None:
        """Given a message that is no text, then it comes back as the bytes it was."""
        odd = [replace(self.log[Stream.CLIENT][0], body=b"\xff\x00{")]
        assert list(read_history(write_history(odd))) == odd
