"""Which usage records are believed, and what they add up to."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from orca_metering import settle, state
from orca_metering.react import needs, react, react_unreadable
from orca_runtime.testing import EPOCH, START_MS
from orca_schemas.identifiers import derived_id
from orca_schemas.positions import Position
from orca_schemas.subjects import Stream
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Meter, TokenClasses

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def test_a_record_is_accepted_with_all_that_it_says(world: Any, say: Any) -> None:
    """Given a placed attempt, when its probe reports tokens, then they are settled."""
    then = world.says("tokens", 1)
    (record,), (total,) = then.last.records, then.last.totals
    assert (record.node, record.number, record.model) == (say.NODE, 1, "llama")
    assert record.record_id == say.usage("tokens", 1).record_id
    assert record.classes == TokenClasses(input_uncached=7, output_text=3)
    assert record.at_ms == START_MS
    assert (total.meter, total.model, total.used) == (Meter.TOKENS, "llama", 10)
    assert (then.last.used_tokens, then.last.final, then.last.missing) == (10, False, ())


@pytest.mark.parametrize(
    ("meter", "model", "used"),
    [
        pytest.param("tokens", "llama", 10, id="tokens"),
        pytest.param("gpu", "A100", 1000 * 1000, id="gpu: milli x ms"),
        pytest.param("cpu", "", 500 * 1000, id="cpu: milli x ms"),
    ],
)
def test_totals_are_cumulative_per_meter(world: Any, meter: str, model: str, used: int) -> None:
    """Each settlement repeats the whole total of the bucket that it changed, and only that."""
    then = world.says("gpu", 1, at_ms=START_MS - DAY).says(meter, 2).says(meter, 3)
    (total,) = then.last.totals
    assert (total.meter, total.model, total.used) == (meter, model, 2 * used)
    assert then.last.used_tokens == (20 if meter == "tokens" else 0)


@pytest.mark.parametrize(
    ("at_ms", "bucket_start_ms"),
    [
        pytest.param(START_MS, START_MS, id="on the boundary"),
        pytest.param(START_MS + 15 * MINUTE - 1, START_MS, id="the last millisecond"),
        pytest.param(START_MS + 15 * MINUTE, START_MS + 15 * MINUTE, id="the next"),
    ],
)
def test_the_bucket_is_the_quarter_hour_of_the_event(
    world: Any, at_ms: int, bucket_start_ms: int
) -> None:
    """A record counts whole in the 15-minute UTC bucket of the time in its id."""
    held = {"duration_ms": 60 * MINUTE, "received_at_ms": at_ms + 60 * MINUTE}
    then = world.says("gpu", 1, at_ms=at_ms, **held)
    assert [total.bucket_start_ms for total in then.last.totals] == [bucket_start_ms]


def test_a_repeat_changes_nothing(world: Any) -> None:
    """Given an accepted record, when it comes again, even later, then it is only noted."""
    before = world.says("tokens", 1)
    then = before.later(40 * DAY).says("tokens", 1, at_ms=START_MS, received_at_ms=START_MS + DAY)
    assert then.said == "nothing"
    assert then.digest() == before.digest()


def test_the_same_number_of_another_counter_is_another_record(world: Any, say: Any) -> None:
    """Attempt, meter and probe epoch each begin to count anew."""
    then = world.after(say.placed(2)).says("tokens", 1).says("gpu", 1)
    then = then.says("tokens", 1, epoch=1).says("tokens", 1, attempt=2)
    assert [type(event).__name__ for event in then.settled] == ["UsageSettled"] * 4
    assert then.last.used_tokens == 30


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        pytest.param({"party": "node-2"}, "on node node-1, not on node-2", id="another node"),
        pytest.param({"party": "-"}, "not on -", id="nobody"),
        pytest.param({"namespace": "team-beta"}, "is of task team-alpha/", id="other namespace"),
        pytest.param({"id_": str(uuid4())}, "is of task team-alpha/", id="another task"),
    ],
)
def test_who_does_not_speak_for_the_attempt_is_not_believed(
    world: Any, say: Any, where: dict[str, str], reason: str
) -> None:
    """The subject says who speaks: it must be the attempt's node, about the attempt's task."""
    then = world.after(say.heard(say.usage("tokens", 1), **where))
    assert then.said == "UsageQuarantined"
    assert reason in then.last.reason
    assert then.last.record_id == say.usage("tokens", 1).record_id
    assert then.digest() == world.digest()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"attempt": 2}, "attempt 2 was never placed", id="attempt"),
        pytest.param(
            {"fence": f"PLACEMENT@{EPOCH}#9"}, f"has fence PLACEMENT@{EPOCH}#1", id="fence"
        ),
        pytest.param({"fence": "PLACEMENT@5#1"}, "has fence", id="fence of another epoch"),
        pytest.param({"run_id": derived_id(0, "other")}, "has no attempt", id="run"),
        pytest.param({"record_id": uuid4()}, "is no UUIDv7", id="UUIDv4"),
        pytest.param(
            {"record_id": UUID(int=derived_id(START_MS, 1).int & ~(0x3 << 62))},
            "is no UUIDv7",
            id="variant",
        ),
    ],
)
def test_what_cannot_be_so_is_quarantined(
    world: Any, say: Any, changed: dict[str, Any], reason: str
) -> None:
    """A record that contradicts what placement decided counts nowhere, and says why."""
    then = world.after(say.heard(say.usage("tokens", 1, **changed)))
    assert then.said == "UsageQuarantined"
    assert reason in then.last.reason


@pytest.mark.parametrize(
    ("late_ms", "believed"),
    [
        pytest.param(35 * DAY, True, id="35 days late"),
        pytest.param(35 * DAY + 1, False, id="later than 35 days"),
        pytest.param(-5 * MINUTE, True, id="5 minutes early"),
        pytest.param(-5 * MINUTE - 1, False, id="earlier than 5 minutes"),
    ],
)
def test_the_event_time_is_bounded_by_the_brokers(world: Any, late_ms: int, believed: bool) -> None:
    """The time in the id against the broker's time of arrival, both ends included."""
    then = world.says("tokens", 1, at_ms=START_MS, received_at_ms=START_MS + late_ms)
    assert then.said == ("UsageSettled" if believed else "UsageQuarantined")


@pytest.mark.parametrize(
    ("held_ms", "believed"),
    [
        pytest.param(15 * MINUTE, True, id="5 minutes beyond"),
        pytest.param(15 * MINUTE + 1, False, id="more than 5 minutes beyond"),
        pytest.param(30 * DAY, False, id="a clock that stepped by a month"),
    ],
)
def test_no_time_is_held_that_has_not_passed(world: Any, held_ms: int, believed: bool) -> None:
    """A node's clock that steps forward would else make its step GPU time, and bill it."""
    received = {"at_ms": START_MS, "received_at_ms": START_MS + 10 * MINUTE}
    then = world.says("gpu", 1, duration_ms=held_ms, **received)
    assert then.said == ("UsageSettled" if believed else "UsageQuarantined")


def test_an_id_that_does_not_change_is_no_id(world: Any, say: Any) -> None:
    """A probe that says one id for all its records would be charged once in the tables."""
    same = say.usage("tokens", 1).record_id
    then = world.says("tokens", 1).says("tokens", 2, record_id=same)
    assert then.said == "UsageQuarantined"
    assert "that of the record before it" in then.last.reason
    assert then.says("tokens", 2).said == "UsageSettled"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"duration_ms": 35 * DAY + 1}, "is over", id="longer than records live"),
        pytest.param(
            {"gpu_milli": 10**7, "duration_ms": 35 * DAY}, "the largest amount", id="amount"
        ),
    ],
)
def test_what_is_too_large_is_quarantined(world: Any, changed: dict[str, int], reason: str) -> None:
    """No total may leave the range that every client reads exactly."""
    then = world.says("gpu", 1, received_at_ms=START_MS + 35 * DAY, **changed)
    assert then.said == "UsageQuarantined"
    assert reason in then.last.reason


def test_tokens_of_all_models_together_stay_below_the_largest_amount(world: Any) -> None:
    """used_tokens is the sum over the models, so it reaches the bound first."""
    most = TokenClasses(input_uncached=MAX_AMOUNT - 5)
    then = world.says("tokens", 1, model="a", classes=most)
    assert then.says("tokens", 2, model="b").said == "UsageQuarantined"
    assert then.says("gpu", 1).said == "UsageSettled"
    few = TokenClasses(output_text=5)
    assert then.says("tokens", 2, model="b", classes=few).last.used_tokens == MAX_AMOUNT


def test_gaps_are_bounded(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a number that opens a gap is quarantined; one that closes one is not."""
    monkeypatch.setattr(settle, "MAX_GAPS", 2)
    then = world.says("tokens", 3).says("tokens", 5)
    assert "gap 3" in then.says("tokens", 7).last.reason
    assert then.says("tokens", 4).says("tokens", 7).said == "UsageSettled"


@pytest.mark.parametrize(
    ("bound", "said", "reason"),
    [
        pytest.param("MAX_MODELS", {"model": "b"}, "1 models already", id="models"),
        pytest.param("MAX_METERS", {"epoch": 1}, "1 meters already", id="meters"),
    ],
)
def test_what_a_run_counts_apart_is_bounded(
    world: Any, monkeypatch: pytest.MonkeyPatch, bound: str, said: dict[str, Any], reason: str
) -> None:
    """A tenant chooses the names of models: they may not fill the memory."""
    monkeypatch.setattr(settle, bound, 1)
    then = world.says("tokens", 1)
    assert reason in then.says("tokens", 2, **said).last.reason
    assert then.says("tokens", 2).said == "UsageSettled"


def test_days_in_which_no_record_can_come_leave_the_state(world: Any) -> None:
    """A service runs for years; what is kept of its buckets is the days that may still change."""
    then = world
    for day in range(60):
        then = then.says("gpu", day + 1, at_ms=START_MS + day * DAY)
    assert len(then.run.days) == state.DAYS_KEPT
    assert then.run.used[state.UsedKey(Meter.GPU, "A100")] == 60 * 10**6
    late = START_MS + 59 * DAY
    assert then.says("gpu", 61, at_ms=late - 35 * DAY, received_at_ms=late).said == "UsageSettled"
    closed = START_MS + 59 * DAY - state.DAYS_KEPT * DAY
    then = then.says("gpu", 61, at_ms=closed, received_at_ms=closed)
    assert "are closed" in then.last.reason


def test_the_placed_of_a_record_is_read_first(say: Any) -> None:
    """A record needs its fence, and only a position in PLACEMENT can be one."""
    assert list(needs(say.heard(say.usage("tokens", 1)))) == [Position(Stream.PLACEMENT, EPOCH, 1)]
    assert list(needs(say.heard(say.usage("tokens", 1, fence="METERING@1#99")))) == []
    assert list(needs(say.placed())) == []


def test_rubbish_is_put_aside_with_its_error(empty: Any, say: Any) -> None:
    """A message that is no event is dead-lettered by an event that says where it stands."""
    then = type(empty)(empty.scenario.when(react_unreadable(say.rubbish())))
    assert then.said == "InputDeadLettered"
    assert then.last.fault.position == f"USAGE@{EPOCH}#7"
    assert then.digest() == empty.digest()


def test_other_events_are_no_input(world: Any) -> None:
    """What metering does not know by its type is passed over."""
    own = world.says("tokens", 1).scenario.log[-1]
    assert react(own) is None
