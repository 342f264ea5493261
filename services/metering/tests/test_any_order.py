"""Properties: whatever the order, the repeats and the interleaving, the totals are the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from orca_runtime.recorded import Recorded
from orca_runtime.testing import START_MS

ATTEMPTS = (1, 2, 3)
METERS = ("tokens", "gpu", "cpu")
AMOUNT = {"tokens": 10, "gpu": 10**6, "cpu": 500_000}

counts = st.fixed_dictionaries(
    {(attempt, meter): st.integers(0, 5) for attempt in ATTEMPTS for meter in METERS}
)


@st.composite
def histories(draw: Any) -> tuple[dict[tuple[int, str], int], list[tuple[str, int, int]]]:
    """How many records each meter of each attempt has, and an order in which they all come."""
    wanted = draw(counts)
    records = [(m, n, a) for (a, m), count in wanted.items() for n in range(1, count + 1)]
    repeats = draw(st.lists(st.sampled_from(records), max_size=10)) if records else []
    return wanted, draw(st.permutations(records + repeats))


def placements(say: Any, wanted: dict[tuple[int, str], int]) -> list[tuple[int, Recorded]]:
    """What placement says, in its order; the number is the attempt that a Placed begins."""
    told: list[tuple[int, Recorded]] = []
    for attempt in ATTEMPTS:
        used = say.ends(**{meter: wanted[attempt, meter] for meter in METERS})
        last = attempt == ATTEMPTS[-1]
        end = say.released(attempt, used) if last else say.attempt_ended(attempt, used)
        told += [(attempt, say.placed(attempt)), (0, end)]
    return told


def interleaved(data: Any, say: Any, wanted: Any, order: Any) -> list[Recorded]:
    """Both streams in their own order, a record never before the Placed that it needs."""
    told, inputs, begun = placements(say, wanted), [], 0
    for meter, number, attempt in order:
        while told and (begun < attempt or data.draw(st.booleans())):
            begins, event = told.pop(0)
            begun = max(begun, begins)
            inputs.append(event)
        at_ms = START_MS + number * 400_000
        usage = say.usage(meter, number, at_ms, attempt=attempt)
        inputs.append(say.heard(usage, received_at_ms=at_ms))
    return inputs + [event for _, event in told]


@settings(max_examples=150, deadline=None)
@given(history=histories(), data=st.data())
def test_any_order_gives_the_same_totals(empty: Any, say: Any, history: Any, data: Any) -> None:
    """Each record counts once, the totals are those of the set of records, and it ends final."""
    wanted, order = history
    then = empty.after(*interleaved(data, say, wanted, order))
    accepted = Counter(
        (r.attempt, r.meter.value, r.number) for settled in then.settled for r in settled.records
    )
    assert accepted == Counter(
        (a, m, n) for (a, m), count in wanted.items() for n in range(1, count + 1)
    )
    totals = {(t.meter.value, t.bucket_start_ms): t.used for s in then.settled for t in s.totals}
    expected: Counter[tuple[str, int]] = Counter()
    for (_, meter), count in wanted.items():
        for number in range(1, count + 1):
            at_ms = START_MS + number * 400_000
            expected[meter, at_ms - at_ms % 900_000] += AMOUNT[meter]
    assert totals == expected
    tokens = 10 * sum(count for (_, meter), count in wanted.items() if meter == "tokens")
    assert [s.final for s in then.settled].count(True) == 1
    assert then.settled[-1].final
    assert (then.settled[-1].used_tokens, then.settled[-1].missing) == (tokens, ())


@settings(max_examples=60, deadline=None)
@given(history=histories(), data=st.data(), cut=st.integers(0, 100))
def test_fold_snapshot_and_live_state_are_one(
    empty: Any, say: Any, history: Any, data: Any, cut: int
) -> None:
    """I3: a fold from nothing, a snapshot with its tail, and the live state agree by digest."""
    inputs = interleaved(data, say, *history)
    then = empty.after(*inputs[:cut])
    assert then.thawed() == then.scenario.state
    then = then.after(*inputs[cut:])
    assert then.refolded() == then.digest()


@settings(max_examples=60, deadline=None)
@given(history=histories(), data=st.data(), lost=st.sets(st.integers(0, 60)))
def test_what_is_lost_is_named(
    empty: Any, say: Any, history: Any, data: Any, lost: set[int]
) -> None:
    """After the grace, accepted and missing numbers together are exactly those promised."""
    wanted, order = history
    kept = [record for at, record in enumerate(order) if at not in lost]
    then = empty.after(*interleaved(data, say, wanted, kept))
    if then.run.final_at_ms is None:
        then = then.due()
    accepted = {(r.attempt, r.meter, r.number) for s in then.settled for r in s.records}
    lacking = {
        (m.attempt, m.meter, n)
        for m in then.settled[-1].missing
        for n in range(m.first, m.last + 1)
    }
    promised = {(a, m, n) for (a, m), count in wanted.items() for n in range(1, count + 1)}
    assert then.settled[-1].final
    assert accepted | lacking == promised
    assert not accepted & lacking
