"""What a record costs, to the last digit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_billing.rating import CPU_MILLI_MS, GPU_MILLI_MS, TOKEN, amount_pico_usd
from orca_runtime.testing import START_MS
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import TokenClasses

USD = 10**12
MICRO = 10**6
HOUR = 3_600_000

amounts = st.integers(0, MAX_AMOUNT)


@pytest.mark.parametrize(
    ("quantity", "unit", "price_micro_usd", "pico_usd"),
    [
        pytest.param(100_000, TOKEN, 10 * MICRO, USD, id="100,000 tokens at $0.01 per 1,000"),
        pytest.param(1000 * HOUR // 10, GPU_MILLI_MS, 3 * MICRO, 3 * USD // 10, id="6 min at $3/h"),
        pytest.param(500 * HOUR, CPU_MILLI_MS, 40_000, 20_000 * MICRO, id="half a core-hour"),
        pytest.param(1, TOKEN, 1, 1, id="the smallest price of a token"),
        pytest.param(1800, GPU_MILLI_MS, 1, 0, id="half of 1 rounds to even 0"),
        pytest.param(1801, GPU_MILLI_MS, 1, 1, id="just over a half rounds up"),
        pytest.param(5400, GPU_MILLI_MS, 1, 2, id="half of 3 rounds to even 2"),
        pytest.param(5399, GPU_MILLI_MS, 1, 1, id="just under a half rounds down"),
        pytest.param(10**15, TOKEN, 0, 0, id="a price of 0"),
        pytest.param(MAX_AMOUNT, TOKEN, MAX_AMOUNT, MAX_AMOUNT**2, id="the largest"),
    ],
)
def test_amounts(quantity: int, unit: str, price_micro_usd: int, pico_usd: int) -> None:
    """Token prices are exact; time prices are rounded half to even, once."""
    assert amount_pico_usd(quantity, unit, price_micro_usd) == pico_usd


@given(quantity=amounts, price=amounts, unit=st.sampled_from([GPU_MILLI_MS, CPU_MILLI_MS]))
def test_a_time_price_is_the_exact_one_rounded_half_to_even(
    quantity: int, price: int, unit: str
) -> None:
    """Against the definition in fractions: USD per hour x milli x ms, in 1e-12 USD."""
    exact = Fraction(price, MICRO) * Fraction(quantity, 1000 * HOUR) * USD
    assert amount_pico_usd(quantity, unit, price) == round(exact)


@given(quantity=amounts, price=amounts)
def test_a_token_price_is_never_rounded(quantity: int, price: int) -> None:
    """Against the definition in fractions: USD per million tokens, in 1e-12 USD."""
    exact = Fraction(price, MICRO) * Fraction(quantity, MICRO) * USD
    assert amount_pico_usd(quantity, TOKEN, price) == exact


def test_the_example_of_the_design(world: Any) -> None:
    """100,000 tokens at $0.01 per 1,000 on an A100 at $3/h for six minutes: $1.30."""
    then = world.priced("tokens:llama:*", 10 * MICRO).priced("gpu:A100", 3 * MICRO)
    then = then.used("tokens", classes=TokenClasses(output_text=100_000))
    then = then.used("gpu", duration_ms=HOUR // 10)
    assert then.last.total_pico_usd == 130 * USD // 100


def test_each_token_class_is_a_line_of_its_own(world: Any, say: Any) -> None:
    """Lines name record, sku, quantity, unit and the price's position; empty classes have none."""
    then = world.priced("tokens:llama:input_uncached", 2).priced("tokens:llama:output_text", 5)
    then = then.used("tokens")
    read, written = then.last.lines
    assert (read.sku, read.quantity, read.unit) == ("tokens:llama:input_uncached", 7, "token")
    assert (read.price_micro_usd, read.amount_pico_usd) == (2, 14)
    assert (written.sku, written.amount_pico_usd) == ("tokens:llama:output_text", 15)
    assert read.record_id == written.record_id == say.record("tokens", 3).record_id
    assert read.price.startswith("ADMIN@")
    assert read.price.endswith("#1")
    assert written.price.endswith("#2")
    assert read.at_ms == START_MS


@pytest.mark.parametrize(
    ("meter", "sku", "quantity", "unit"),
    [
        pytest.param("gpu", "gpu:A100", 10**6, "milli-GPU ms", id="gpu"),
        pytest.param("cpu", "cpu", 10**6, "milli-core ms", id="cpu"),
    ],
)
def test_time_is_one_line(world: Any, meter: str, sku: str, quantity: int, unit: str) -> None:
    """A GPU second at $3.60 per hour costs a tenth of a cent."""
    then = world.priced(sku, 3_600_000).used(meter)
    (line,) = then.last.lines
    assert (line.sku, line.quantity, line.unit) == (sku, quantity, unit)
    assert line.amount_pico_usd == USD // 1000


def test_a_record_of_nothing_has_no_line(world: Any) -> None:
    """No tokens of any class: the charge stands, and is empty."""
    then = world.used("tokens", classes=TokenClasses())
    assert (then.said, then.last.lines, then.last.total_pico_usd) == ("Charged", (), 0)


def test_no_price_is_not_the_price_nothing(world: Any) -> None:
    """Given one class priced 0 and one not priced, both are free, and only one says why."""
    then = world.priced("tokens:llama:input_uncached", 0).used("tokens")
    free, unknown = then.last.lines
    assert (free.price is None, free.amount_pico_usd) == (False, 0)
    assert (unknown.price, unknown.price_micro_usd, unknown.amount_pico_usd) == (None, 0, 0)
    assert then.run.unpriced == 1
