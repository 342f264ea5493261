"""Limits and prices as people write them."""

from __future__ import annotations

import pytest
from orca_client.cli.admin import parse_time_ms
from orca_client.limits import parse_limit
from orca_client.money import check_sku, micro_usd, parse_price_micro_usd, usd
from orca_schemas.errors import MalformedError
from orca_schemas.units import MAX_AMOUNT


@pytest.mark.parametrize(
    ("text", "dimension", "limit", "period"),
    [
        ("gpus=2", "gpu_milli", 2000, "concurrent"),
        ("gpus=0.5", "gpu_milli", 500, "concurrent"),
        ("gpus:A100=1", "gpu_milli:A100", 1000, "concurrent"),
        ("gpu_milli:H100=250", "gpu_milli:H100", 250, "concurrent"),
        ("gpu_milli=3000", "gpu_milli", 3000, "concurrent"),
        ("gpu_memory=80Gi", "gpu_memory_mib", 81920, "concurrent"),
        ("cpu=4", "cpu_milli", 4000, "concurrent"),
        ("cpu=500m", "cpu_milli", 500, "concurrent"),
        ("cpu_milli=500", "cpu_milli", 500, "concurrent"),
        ("memory=64Gi", "memory_mib", 65536, "concurrent"),
        ("memory_mib=100", "memory_mib", 100, "concurrent"),
        ("tasks=10", "tasks", 10, "concurrent"),
        ("tokens=1_000_000", "tokens", 1_000_000, "total"),
        ("tokens=0", "tokens", 0, "total"),
        ("memory=0", "memory_mib", 0, "concurrent"),
        ("tokens=unlimited", "tokens", None, "total"),
        ("cpu = Unlimited", "cpu_milli", None, "concurrent"),
        (f"tokens={MAX_AMOUNT}", "tokens", MAX_AMOUNT, "total"),
    ],
)
def test_a_limit_is_read_with_its_unit_and_its_period(
    text: str, dimension: str, limit: int | None, period: str
) -> None:
    """Given a limit as people write it, then dimension, integer and period are QuotaSet's."""
    found = parse_limit(text)
    assert (found.dimension, found.limit, found.period) == (dimension, limit, period)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus", "DIMENSION=LIMIT"),
        ("gpu=2", "use one of gpus"),
        ("gpus=-1", "0.5, 0 or unlimited"),
        ("gpus=0.0005", "GPUs such as 2 or 0.5"),
        ("gpus:X9=1", "use a type of"),
        ("cpu:A100=1", "only GPUs have types"),
        ("tokens=many", "whole number"),
        ("tokens=1.5", "whole number"),
        ("tokens=", "whole number"),
        ("memory=64GB", "16Gi"),
        (f"tokens={MAX_AMOUNT + 1}", "unlimited"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_its_remedy(text: str, says: str) -> None:
    """Given what is no limit, then the error says what to write."""
    with pytest.raises(MalformedError, match=says):
        parse_limit(text)


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("3", 3_000_000),
        ("3.00", 3_000_000),
        ("$0.60", 600_000),
        ("0.000001", 1),
        ("0.1000000000", 100_000),
        ("2.", 2_000_000),
        ("0", 0),
        ("123456789.123456", 123_456_789_123_456),
    ],
)
def test_a_price_is_read_without_rounding(text: str, micro: int) -> None:
    """Given dollars with at most six decimals that count, then micro-USD are exact."""
    assert parse_price_micro_usd(text) == micro


@pytest.mark.parametrize(
    "text", ["", "-1", "1e3", "1,50", "0.0000001", "three", "NaN", "9999999999"]
)
def test_a_price_that_would_be_rounded_or_is_none_is_refused(text: str) -> None:
    """Given a seventh decimal, a sign or an exponent, then it is refused, not rounded."""
    with pytest.raises(MalformedError, match="price"):
        parse_price_micro_usd(text)


@pytest.mark.parametrize(
    "sku", ["cpu", "gpu:A100", "tokens:m:input_uncached", "tokens:llama3:8b:*", "tokens:m:*"]
)
def test_what_has_a_price_may_be_set(sku: str) -> None:
    """Given a sku of billing's forms, then it is taken as it is."""
    assert check_sku(sku) == sku


@pytest.mark.parametrize(
    "sku",
    ["", "gpu", "gpu:X9", "tokens", "tokens:m", "tokens::*", "tokens:m:input", "tokens:a b:*"],
)
def test_what_has_no_price_is_refused(sku: str) -> None:
    """Given anything else, then the error names the sku."""
    with pytest.raises(MalformedError, match="sku"):
        check_sku(sku)


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000000001"),
        (1_300_000_000_000, "$1.30"),
        (1_234_567_000_000_000_000, "$1,234,567.00"),
        (-5_000_000_000, "-$0.005"),
        (10**24 + 1, "$1,000,000,000,000.000000000001"),
    ],
)
def test_money_is_written_to_its_last_digit(pico: int, text: str) -> None:
    """Given pico-USD, then no digit is lost and no float is in between."""
    assert usd(pico) == text


def test_a_price_is_written_as_it_was_read() -> None:
    """Given a price that was read, when it is written, then it is the same."""
    assert micro_usd(parse_price_micro_usd("0.036")) == "$0.036"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1970-01-01T00:00:01Z", 1000), ("1970-01-01T00:00:01", 1000), ("1970-01-01T01:00+01:00", 0)],
)
def test_a_time_without_a_zone_is_utc(text: str, ms: int) -> None:
    """Given a time with or without a zone, then it is Unix ms."""
    assert parse_time_ms(text) == ms


def test_a_time_that_is_none_is_refused() -> None:
    """Given a word, then the error shows how to write a time."""
    with pytest.raises(MalformedError, match="2026-01-31T12:00Z"):
        parse_time_ms("tomorrow")
