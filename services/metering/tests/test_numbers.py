"""The set of accepted numbers against a plain set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_metering.numbers import Numbers, Range


def added(*numbers: int) -> Numbers:
    found = Numbers()
    for number in numbers:
        found = found.add(number)
    return found


@given(st.lists(st.integers(1, 60), unique=True))
def test_it_is_the_set_of_what_was_added(numbers: list[int]) -> None:
    """Whatever the order: membership, completeness and what is missing are those of a set."""
    found, model = added(*numbers), set(numbers)
    assert [n for n in range(1, 70) if n in found] == sorted(model)
    for last in range(65):
        lacking = {n for first, end in found.missing(last) for n in range(first, end + 1)}
        assert lacking == set(range(1, last + 1)) - model
        assert found.complete_to(last) == (not lacking)


@given(st.permutations(range(1, 40)))
def test_without_a_gap_it_is_one_number(numbers: list[int]) -> None:
    """However they came, a meter without gaps costs the state one integer."""
    assert added(*numbers) == Numbers(next=40)


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        pytest.param([3], Numbers(1, (Range(3, 3),)), id="ahead"),
        pytest.param([3, 4], Numbers(1, (Range(3, 4),)), id="joined after"),
        pytest.param([4, 3], Numbers(1, (Range(3, 4),)), id="joined before"),
        pytest.param([3, 5, 4], Numbers(1, (Range(3, 5),)), id="joined on both sides"),
        pytest.param([3, 1], Numbers(2, (Range(3, 3),)), id="next moves up to the gap"),
        pytest.param([3, 1, 2], Numbers(4), id="the gap closes"),
        pytest.param([9, 5], Numbers(1, (Range(5, 5), Range(9, 9))), id="two gaps"),
    ],
)
def test_ranges_join(numbers: list[int], kept: Numbers) -> None:
    """Touching numbers are one range; what touches the mark moves it."""
    assert added(*numbers) == kept
