"""Properties: I5, charges are the unique accepted records x the price in force."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from orca_billing.rating import items, lines
from orca_runtime.testing import START_MS

SKUS = ("tokens:llama:*", "tokens:llama:output_text", "gpu:A100", "cpu")
SKEW = 20
"""How far a node's clock runs ahead or a record comes late, in ms; prices move within it too."""

price_inputs = st.tuples(
    st.just("price"), st.sampled_from(SKUS), st.integers(0, 10**7), st.integers(0, SKEW)
)
usage_inputs = st.tuples(
    st.just("usage"), st.sampled_from(["tokens", "gpu", "cpu"]), st.integers(-SKEW, SKEW),
    st.booleans(),
)  # fmt: skip
histories = st.lists(
    st.tuples(st.integers(0, 5), price_inputs | usage_inputs), min_size=1, max_size=40
)


def lived(world: Any, say: Any, history: Any) -> tuple[Any, list[Any]]:
    """Feed a history in the order of the broker's time; returns the world and the records."""
    now_ms, records = START_MS, []
    for number, (passed_ms, (what, which, a, b)) in enumerate(history, 1):
        now_ms += passed_ms
        if what == "price":
            world = world.priced(which, a, now_ms + b, received_at_ms=now_ms)
        else:
            records.append(say.record(which, number, now_ms + a))
            world = world.settles(records[-1], final=b)
    return world, records


@settings(max_examples=300, deadline=None)
@given(history=histories)
def test_every_record_costs_what_the_book_says_of_its_time(
    world: Any, say: Any, history: Any
) -> None:
    """However prices and usage interleave, and although clocks differ: the book as it is in the
    end, asked for each record's own time, gives exactly the lines that were charged."""
    then, records = lived(world, say, history)
    book = then.scenario.state.book
    charged = [line for charge in then.charged for line in charge.lines]
    assert charged == [line for record in records for line in lines(record, book)]
    assert {(c.record_id, c.sku) for c in charged} == {
        (record.record_id, item.sku) for record in records for item in items(record)
    }
    assert len({(c.record_id, c.sku) for c in charged}) == len(charged)


@settings(max_examples=100, deadline=None)
@given(history=histories)
def test_the_total_is_the_sum_of_all_lines(world: Any, say: Any, history: Any) -> None:
    """To the last pico-USD, in the last charge and in the state."""
    then, records = lived(world, say, history)
    if records:
        amounts = [line.amount_pico_usd for charge in then.charged for line in charge.lines]
        assert then.charged[-1].total_pico_usd == sum(amounts) == then.run.total_pico_usd


@settings(max_examples=60, deadline=None)
@given(history=histories, data=st.data())
def test_the_order_of_usage_changes_no_charge(
    world: Any, say: Any, history: Any, data: Any
) -> None:
    """Given prices that are set, records cost the same in whatever order they come."""
    prices = [one for one in history if one[1][0] == "price"]
    priced, _ = lived(world, say, prices)
    records = [
        say.record(what[1], number, START_MS + passed + what[2])
        for number, (passed, what) in enumerate(history, 1)
        if what[0] == "usage"
    ]
    one, other = priced, priced
    for record in records:
        one = one.settles(record)
    for record in data.draw(st.permutations(records)):
        other = other.settles(record)
    assert _lines(one) == _lines(other)


def _lines(world: Any) -> list[Any]:
    found = (line for charge in world.charged for line in charge.lines)
    return sorted(found, key=lambda line: (line.record_id, line.sku))


@settings(max_examples=60, deadline=None)
@given(history=histories, cut=st.integers(0, 40))
def test_fold_snapshot_and_live_state_are_one(world: Any, say: Any, history: Any, cut: int) -> None:
    """I3: a fold from nothing, a snapshot with its tail, and the live state agree by digest."""
    half, _ = lived(world, say, history[:cut])
    assert half.thawed() == half.scenario.state
    then, _ = lived(world, say, history)
    assert then.refolded() == then.digest()
