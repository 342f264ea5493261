"""What a run is charged in all, and when that is over."""

from __future__ import annotations

from typing import Any

from orca_billing.react import react, react_unreadable
from orca_billing.timers import REMEMBERED_MS
from orca_runtime.testing import EPOCH, START_MS
from orca_schemas.subjects import Stream


def test_the_total_is_that_of_the_run_so_far(world: Any) -> None:
    """Each charge repeats what the run costs in all."""
    then = world.priced("tokens:llama:*", 3).used("tokens").used("tokens").used("tokens")
    assert [charge.total_pico_usd for charge in then.charged] == [30, 60, 90]
    assert [charge.final for charge in then.charged] == [False] * 3


def test_a_settlement_of_many_records_is_one_charge(world: Any, say: Any) -> None:
    """Every line of every record, in their order."""
    then = world.priced("tokens:llama:*", 3).priced("cpu", 36)
    then = then.settles(say.record("tokens", 1), say.record("cpu", 2))
    assert [line.sku for line in then.last.lines] == [
        "tokens:llama:input_uncached",
        "tokens:llama:output_text",
        "cpu",
    ]
    assert then.last.total_pico_usd == 30 + 10_000


def test_runs_have_totals_of_their_own(world: Any, say: Any) -> None:
    """What one run costs is no matter of another's."""
    other = say.record("gpu").record_id
    then = world.priced("tokens:llama:*", 3).used("tokens")
    then = then.settles(say.record("tokens", 9), run_id=other)
    assert (then.last.run_id, then.last.total_pico_usd) == (other, 30)


def test_a_final_zero_is_charged_as_one(world: Any) -> None:
    """Whoever waits for the end of a run's cost is never left waiting."""
    then = world.settles(final=True)
    assert (then.last.final, then.last.lines, then.last.total_pico_usd) == (True, (), 0)


def test_late_usage_of_a_final_run_is_still_charged(world: Any) -> None:
    """Final stays, the total grows, and the run is remembered from then on."""
    then = world.priced("tokens:llama:*", 3).used("tokens", final=True).later(1000)
    then = then.used("tokens", final=True)
    assert (then.last.final, then.last.total_pico_usd) == (True, 60)
    assert then.timers == [("forget", START_MS + 1000 + REMEMBERED_MS)]


def test_a_final_run_is_forgotten_after_36_days(world: Any) -> None:
    """It leaves the state, and its timer with it; the price book stays."""
    then = world.priced("cpu", 1).used("cpu", final=True).due()
    assert (then.said, len(then.scenario.state.runs), then.timers) == ("forget", 0, [])
    assert "cpu" in then.scenario.state.book.skus


def test_a_run_that_goes_on_has_no_timer(world: Any) -> None:
    """Only the end of a run makes it forgettable."""
    assert world.used("tokens").timers == []


def test_a_timer_that_came_too_late_says_so(world: Any) -> None:
    """Given a run that is forgotten already, its timer changes nothing."""
    final = world.used("tokens", final=True)
    (forget,) = final.scenario.due()
    again = final.due().scenario.when(forget)
    assert again.events[0].fact.kind == "nothing"


def test_rubbish_is_put_aside_with_its_error(world: Any, say: Any) -> None:
    """A message that is no event is dead-lettered by an event that says where it stands."""
    then = type(world)(world.scenario.when(react_unreadable(say.rubbish())))
    assert then.said == "InputDeadLettered"
    assert then.last.fault.position == f"METERING@{EPOCH}#7"
    assert then.digest() == world.digest()


def test_an_operators_slip_is_left_to_admission(world: Any, say: Any) -> None:
    """Given a setting that is no event, billing notes it and changes nothing: no dead letter."""
    rubbish = say.rubbish(Stream.ADMIN)
    then = type(world)(world.scenario.when(react_unreadable(rubbish)))
    assert then.said == "nothing"
    assert then.last.about == str(rubbish.error)
    assert then.digest() == world.digest()


def test_other_events_are_no_input(world: Any) -> None:
    """What billing does not know by its type is passed over."""
    own = world.used("tokens").scenario.log[-1]
    assert react(own) is None
