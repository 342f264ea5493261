"""When a run's usage is final."""

from __future__ import annotations

from typing import Any

import pytest
from orca_metering import settle
from orca_metering.timers import FINAL_GRACE_MS, REMEMBERED_MS
from orca_runtime.testing import START_MS
from orca_schemas.values import Meter, MissingRange


def lacking(first: int, last: int, attempt: int = 1) -> MissingRange:
    return MissingRange(meter=Meter.TOKENS, attempt=attempt, epoch=0, first=first, last=last)


def test_a_run_without_usage_gets_a_final_zero(world: Any, say: Any) -> None:
    """Whoever waits for the end of a run's usage is never left waiting."""
    then = world.after(say.released())
    assert then.said == "UsageSettled"
    assert (then.last.final, then.last.used_tokens, then.last.records) == (True, 0, ())


def test_a_run_that_was_never_placed_gets_a_final_zero(empty: Any, say: Any) -> None:
    """Attempt 0, no node: metering hears of the run for the first time."""
    then = empty.after(say.released(attempt=0))
    assert (then.said, then.last.final) == ("UsageSettled", True)
    assert then.run.final_at_ms == START_MS


def test_a_release_that_promises_no_more_than_came_is_final(world: Any, say: Any) -> None:
    """All is here already: the settlement says so and repeats no total."""
    then = (
        world.says("tokens", 1).says("gpu", 1).after(say.released(used=say.ends(tokens=1, gpu=1)))
    )
    assert (then.last.final, then.last.used_tokens, then.last.totals) == (True, 10, ())


def test_a_promise_is_waited_for(world: Any, say: Any) -> None:
    """Given a release that promises two records, the second of them makes it final."""
    then = world.after(say.released(used=say.ends(tokens=2)))
    assert then.said == "end"
    then = then.says("tokens", 2)
    assert then.last.final is False
    then = then.says("tokens", 1)
    assert (then.last.final, then.last.missing, then.last.used_tokens) == (True, (), 20)


def test_an_earlier_attempt_is_waited_for_too(world: Any, say: Any) -> None:
    """A retry does not make the records of the attempt before it worthless."""
    then = world.after(say.attempt_ended(1, say.ends(tokens=1)))
    assert (then.said, then.last.fact.last) == ("end", False)
    then = then.after(say.placed(2)).says("tokens", 1, attempt=2)
    then = then.after(say.released(2, say.ends(tokens=1)))
    assert then.said == "end"
    assert then.says("tokens", 1).last.final is True


def test_an_attempt_that_ends_is_never_final(world: Any, say: Any) -> None:
    """Another attempt follows: only the release ends the run."""
    then = world.says("tokens", 1).after(say.attempt_ended(1, say.ends(tokens=1)))
    assert (then.said, then.timers) == ("end", [])


def test_after_the_grace_the_rest_is_missing(world: Any, say: Any) -> None:
    """Given records that never came, a quarter of an hour later the run is final without them."""
    then = world.says("tokens", 2).later(5000).after(say.released(used=say.ends(tokens=4)))
    assert then.timers == [("grace", START_MS + 5000 + FINAL_GRACE_MS)]
    then = then.due()
    assert (then.said, then.last.final, then.last.used_tokens) == ("UsageSettled", True, 10)
    assert then.last.missing == (lacking(1, 1), lacking(3, 4))


def test_a_late_record_still_counts_and_final_stays(world: Any, say: Any) -> None:
    """What comes after the grace is settled; what still lacks is said again."""
    final = world.says("tokens", 2).after(say.released(used=say.ends(tokens=3))).due()
    then = final.says("tokens", 3)
    assert (then.last.final, then.last.missing) == (True, (lacking(1, 1),))
    then = then.says("tokens", 1)
    assert (then.last.final, then.last.missing, then.last.used_tokens) == (True, (), 30)
    assert then.run.final_at_ms == final.run.final_at_ms


def test_more_than_was_promised_still_counts(world: Any, say: Any) -> None:
    """The agent of a lost node promises nothing; what it reports on its return was used."""
    then = world.after(say.released()).says("tokens", 1)
    assert (then.last.final, then.last.used_tokens) == (True, 10)


def test_missing_ranges_are_bounded(world: Any, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event names the first of them, by attempt, meter and epoch, and stays small."""
    monkeypatch.setattr(settle, "MAX_MISSING", 2)
    then = world.says("tokens", 2).says("tokens", 4).says("tokens", 6)
    then = then.after(say.released(used=say.ends(tokens=9))).due()
    assert then.last.missing == (lacking(1, 1), lacking(3, 3))


def test_a_final_run_is_forgotten_after_36_days(world: Any, say: Any) -> None:
    """Once no record of it can be in time, it leaves the state and its timers with it."""
    then = world.says("tokens", 1).after(say.released(used=say.ends(tokens=1)))
    assert then.timers == [("forget", START_MS + REMEMBERED_MS)]
    then = then.due()
    assert (then.said, len(then.scenario.state.runs), then.timers) == ("forget", 0, [])
    assert then.says("tokens", 2).said == "UsageQuarantined"


def test_a_timer_that_came_too_late_says_so(world: Any, say: Any) -> None:
    """Given a grace that was over when its timer fired, nothing is settled twice."""
    waiting = world.after(say.released(used=say.ends(tokens=1)))
    (grace,) = waiting.scenario.due()
    complete = waiting.says("tokens", 1)
    assert type(world)(complete.scenario.when(grace)).said == "nothing"
    (forget,) = complete.scenario.due()
    forgotten = complete.due()
    assert type(world)(forgotten.scenario.when(forget)).said == "nothing"
