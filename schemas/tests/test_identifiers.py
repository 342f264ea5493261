"""Ids: derived, the same everywhere, with their time readable."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_schemas.errors import MalformedError
from orca_schemas.identifiers import (
    check_label,
    check_uuid,
    derived_id,
    id_time_ms,
    name_id,
    run_id,
)
from orca_schemas.positions import Position

TIMES = st.integers(0, 2**48 - 1)


def test_derived_ids_never_change_from_release_to_release() -> None:
    """Given recorded ids, when derived again, then they are the same to the bit."""
    submission = Position("CLIENT", 1764547200000000000, 42)
    assert str(derived_id(1764571584123, "run", "CLIENT@1#2")) == (
        "019ad8a9-967b-76b8-83c6-a248fc6e9720"
    )
    assert str(run_id(submission, 1764571584123)) == "019ad8a9-967b-7260-8cd1-1a1c4141a434"
    assert str(name_id("price", "gpu:A100")) == "00000000-0000-790a-9e57-787ec5d282c1"


@given(TIMES, st.lists(st.text(max_size=20), max_size=4))
def test_a_derived_id_is_a_uuid_of_version_7_that_tells_its_time(time_ms, parts) -> None:
    """Given any time and parts, then RFC 9562's version, variant and time bits stand."""
    found = derived_id(time_ms, *parts)
    assert found.version == 7
    assert found.variant == "specified in RFC 4122"
    assert id_time_ms(found) == time_ms


@given(TIMES, st.integers(0, 10**9), st.integers(0, 10**9))
def test_other_parts_give_another_id(time_ms, one, other) -> None:
    """Given two sequences, then their run ids are equal only if the sequences are."""
    first, second = (run_id(Position("CLIENT", 1, n), time_ms) for n in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize("label", ["a", "0", "a-b", "x" * 63, "node-a100-01"])
def test_a_dns_label_is_taken(label) -> None:
    """Given a label as RFC 1123 has it, then it is returned."""
    assert check_label("name", label) == label


@pytest.mark.parametrize(
    "label", ["", "-a", "a-", "A", "a_b", "a.b", "a b", "a\n", "*", ">", "é", "٣", "x" * 64]
)
def test_what_is_no_dns_label_is_refused_by_name(label) -> None:
    """Given anything else, then the error names the field."""
    with pytest.raises(MalformedError) as refused:
        check_label("name", label)
    assert refused.value.field == "name"


def test_a_uuid_has_one_spelling() -> None:
    """Given a UUID spelled otherwise, then the error shows the canonical spelling."""
    text = "019ad8a9-967b-76b8-83c6-a248fc6e9720"
    assert check_uuid("id", text) == UUID(text)
    for other in (text.upper(), f"{{{text}}}", f"urn:uuid:{text}", text.replace("-", "")):
        with pytest.raises(MalformedError, match=text):
            check_uuid("id", other)
    for other in ("", "job-1", text[:-1], text.replace("0", "٠")):
        with pytest.raises(MalformedError):
            check_uuid("id", other)
