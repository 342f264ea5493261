"""The heap of timers follows the state."""

from __future__ import annotations

from dataclasses import replace

from orca_runtime.recorded import Due
from orca_runtime.testing import own_event
from orca_runtime.testing_toy import ALARM, TOY, Toy, _note
from orca_runtime.timers import Timers
from orca_schemas.positions import Position

EVENT = own_event(TOY.stream, 1, _note("1"), 0)


def _toy(at_ms: int | None, sequence: int = 1) -> Toy:
    return replace(Toy(), alarm_ms=at_ms, origin=Position(TOY.stream, 1, sequence))


def test_a_timer_is_due_from_its_time_on_and_stays_until_the_state_lets_go() -> None:
    """Given an alarm at 10, then it is due at 10, again at 11, and gone once it is unset."""
    timers = Timers(TOY)
    timers.reset(_toy(10))
    assert timers.due(9, 5) == []
    assert timers.next_at_ms() == 10
    assert [due.at_ms for due in timers.due(10, 5)] == [10]
    assert len(timers.due(11, 5)) == 1
    timers.follow(_toy(None), EVENT)
    assert timers.due(11, 5) == []
    assert timers.next_at_ms() is None


def test_timers_that_differ_in_their_origin_alone_stand_side_by_side() -> None:
    """Given a deadline set anew by another event for the same time, then only the new one is due.

    Their order is defined, so that the heap can compare them.
    """
    timers = Timers(TOY)
    timers.reset(_toy(10, sequence=1))
    for sequence in (3, 2, 5, 4):
        timers.follow(_toy(10, sequence), EVENT)
    assert timers.due(10, 5) == [Due(10, ALARM, "ring", Position(TOY.stream, 1, 4))]


def test_a_timer_taken_back_and_set_again_is_due_once() -> None:
    """Given a timer that came, went and came again, then it is not decided twice."""
    timers = Timers(TOY)
    timers.reset(_toy(10))
    timers.follow(_toy(None), EVENT)
    timers.follow(_toy(10), EVENT)
    assert len(timers.due(10, 5)) == 1


def test_a_timer_set_aside_rests_until_the_reset() -> None:
    """Given a timer that cannot be answered, then it is due again only after a reset."""
    timers = Timers(TOY)
    timers.reset(_toy(10))
    (due,) = timers.due(10, 5)
    timers.set_aside(due)
    timers.refresh(_toy(10), ALARM)
    assert timers.due(99, 5) == []
    assert timers.next_at_ms() is None
    timers.reset(_toy(10))
    assert timers.due(99, 5) == [due]


def test_no_more_are_due_than_asked_for_and_the_earliest_come_first() -> None:
    """Given timers of many entities, then a bound on them takes the earliest."""
    many = replace(
        TOY,
        entities=lambda _: map(str, range(20)),
        timers=lambda state, entity: (
            Due(100 - int(entity), entity, "k", Position(TOY.stream, 1, 1)),
        ),
    )
    timers = Timers(many)
    timers.reset(Toy())
    assert [due.at_ms for due in timers.due(1000, 3)] == [81, 82, 83]
    assert len(timers.due(1000, 50)) == 20
