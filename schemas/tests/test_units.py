"""Units: people's quantities become integers, exactly or not at all."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_schemas.units import (
    MAX_AMOUNT,
    CpuQuantity,
    DurationQuantity,
    MemoryQuantity,
    parse_cpu_milli,
    parse_duration_ms,
    parse_memory_mib,
)
from pydantic import TypeAdapter

NO_QUANTITIES = {
    "none": None,
    "true": True,
    "nan": math.nan,
    "infinite": math.inf,
    "too-large-float": 1e309,
    "list": ["4"],
    "mapping": {},
    "bytes": b"4",
    "empty": "",
    "negative": "-4",
    "plus": "+4",
    "zero": "0",
    "words": "four",
    "space": " 4",
    "line-break": "4\n",
    "exponent": "1e3",
    "nan-text": "nan",
    "arabic-digits": "٤",
    "fullwidth-digits": "４",
    "superscript": "²",
    "separator": "1_000",
    "comma": "1,5",
    "two-points": "1.2.3",
    "point-alone": "1.",
    "too-many-digits": "9" * 400,
    "too-large": str(2**63),
    "huge-integer": 10**400,
}


def no_quantities(*also: tuple[str, object]):
    """What no unit takes, and what this one does not either."""
    table = [*NO_QUANTITIES.items(), *also]
    return pytest.mark.parametrize("value", [pytest.param(v, id=i) for i, v in table])


@pytest.mark.parametrize(
    ("value", "milli"),
    [("4", 4000), (4, 4000), ("0.5", 500), ("500m", 500), ("1m", 1), ("0.001", 1), ("1.250", 1250)],
)
def test_cpu_is_read_into_milli_cpu(value, milli) -> None:
    """Given cores or milli-cores, then the milli-CPU."""
    assert parse_cpu_milli(value) == milli


@no_quantities(
    ("float", 0.5), ("negative-integer", -1), ("zero-integer", 0), ("below-one-milli", "0.0001"),
    ("half-a-milli", "1.5m"), ("memory-unit", "4Gi"), ("upper-case", "500M"),
)  # fmt: skip
def test_what_is_no_cpu_is_refused_with_an_example(value) -> None:
    """Given anything else, then the error shows how to write it."""
    with pytest.raises(ValueError, match='"500m"'):
        parse_cpu_milli(value)


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        ("16Gi", 16384), ("512Mi", 512), ("1Ti", 1048576), ("1024Ki", 1), ("1048576", 1),
        ("0.5Gi", 512), ("1048.576k", 1), ("1.048576M", 1), ("1073.741824G", 1024000),
    ],
)  # fmt: skip
def test_memory_is_read_into_mib(value, mib) -> None:
    """Given a whole number of MiB in any unit, then the MiB."""
    assert parse_memory_mib(value) == mib


@no_quantities(
    ("integer", 1048576), ("part-of-a-mib", "1Ki"), ("decimal-giga", "16G"), ("bytes-unit", "16GB"),
    ("lower-case", "16gi"), ("milli", "500m"), ("space-before-unit", "16 Gi"), ("half", "0.3Mi"),
)  # fmt: skip
def test_what_is_no_whole_mib_is_refused_with_an_example(value) -> None:
    """Given anything else, then the error shows how to write it."""
    with pytest.raises(ValueError, match='"16Gi"'):
        parse_memory_mib(value)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("30s", 30_000), ("30m", 1_800_000), ("2h", 7_200_000), ("1h30m", 5_400_000),
        ("500ms", 500), ("1d", 86_400_000), ("1d2h3m4s5ms", 93_784_005), ("0h1s", 1000),
        (f"{MAX_AMOUNT}ms", MAX_AMOUNT),
    ],
)  # fmt: skip
def test_a_duration_is_read_into_milliseconds(value, ms) -> None:
    """Given days to milliseconds, then the sum in milliseconds."""
    assert parse_duration_ms(value) == ms


@no_quantities(
    ("integer", 30), ("no-unit", "30"), ("zero-seconds", "0s"), ("wrong-order", "30m1h"),
    ("twice", "1h1h"), ("fraction", "1.5h"), ("word", "5min"), ("upper-case", "2H"),
    ("arabic-seconds", "٣٠s"), ("fullwidth-seconds", "３０s"), ("too-long", "999999999999d"),
    ("above-the-bound", f"{MAX_AMOUNT + 1}ms"),
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_an_example(value) -> None:
    """Given anything else, then the error shows how to write it."""
    with pytest.raises(ValueError, match='"1h30m"'):
        parse_duration_ms(value)


@given(st.sampled_from([CpuQuantity, MemoryQuantity, DurationQuantity]), st.integers(1, MAX_AMOUNT))
def test_a_quantity_survives_its_own_writing(quantity, amount) -> None:
    """Given any amount that may stand, when written and read, then it is the same."""
    adapter = TypeAdapter(quantity)
    assert adapter.validate_json(adapter.dump_json(amount)) == amount


@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans())
def test_no_value_makes_a_reader_fail_otherwise(value) -> None:
    """Given any value, when read, then it is a positive bounded integer or a ValueError."""
    for parse in (parse_cpu_milli, parse_memory_mib, parse_duration_ms):
        with suppress(ValueError):
            assert 1 <= parse(value) <= MAX_AMOUNT
