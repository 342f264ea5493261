"""Errors: bounded and printable, whatever the sender wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_schemas.errors import MalformedError, shown
from orca_schemas.values import MAX_REASON_CHARS

NESTED: list[object] = []
for _ in range(100_000):
    NESTED = [NESTED]


@given(st.text(), st.text() | st.binary() | st.integers() | st.lists(st.text()), st.text())
def test_an_error_is_printable_and_fits_into_an_event(field, value, remedy) -> None:
    """Given any field, value and remedy, then the message prints and fits into a reason."""
    text = str(MalformedError(field, value, remedy))
    assert text.isprintable()
    assert len(text) <= MAX_REASON_CHARS


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x1b[31m", r"'a\x1b[31m'"),
        ("\ud800", r"'\ud800'"),
        ("\u202e", r"'\u202e'"),
        (b"\xff", "'�'"),
        (10**5000, "(int)"),
        (5, "5"),
        (None, "None"),
    ],
    ids=["escape", "surrogate", "right-to-left", "no-utf-8", "5000-digits", "number", "none"],
)
def test_a_value_is_shown_so_that_it_cannot_mislead(value, expected) -> None:
    """Given what a terminal would act on, when shown, then it is escaped."""
    assert shown(value) == expected


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, "\x00" * 10**6, ["x" * 100] * 10**5, NESTED],
    ids=["text", "controls", "list", "deep"],
)
def test_a_large_value_is_shortened(value) -> None:
    """Given something large or deep, when shown, then a line holds it."""
    assert len(shown(value)) <= 82
