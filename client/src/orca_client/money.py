"""Prices and amounts of money, exact: read into integers, written without a float."""

from __future__ import annotations

import re

from orca_schemas.errors import MalformedError
from orca_schemas.gpu_types import MEMORY_MIB_BY_TYPE
from orca_schemas.units import MAX_AMOUNT, PICO_PER_USD
from orca_schemas.values import TokenClasses

MICRO_DIGITS = 6
MICRO_PER_USD = 1_000_000
PICO_DIGITS = 12
ANY_CLASS = "*"

_PRICE = re.compile(r"\$?([0-9]{1,9})(?:\.([0-9]*))?")


def parse_price_micro_usd(text: str) -> int:
    """Read a price in US dollars, ``3.00`` or ``$0.000001``, into micro-USD; nothing is rounded.

    Raises MalformedError, for more than six decimals too.
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None:
        raise MalformedError("price", text, "write US dollars such as 3.00")
    decimals = (found[2] or "").rstrip("0")
    if len(decimals) > MICRO_DIGITS:
        raise MalformedError(
            "price", text, "at most 6 decimals: a price is a whole number of millionths of a dollar"
        )
    price = int(found[1]) * MICRO_PER_USD + int(decimals.ljust(MICRO_DIGITS, "0"))
    if price > MAX_AMOUNT:
        raise MalformedError("price", text, f"at most {MAX_AMOUNT} micro-USD")
    return price


def check_sku(sku: str) -> str:
    """Return ``sku`` if it may have a price. Raises MalformedError."""
    kind, _, rest = sku.partition(":")
    if sku == "cpu":
        return sku
    if kind == "gpu" and rest in MEMORY_MIB_BY_TYPE:
        return sku
    if kind == "gpu":
        raise MalformedError("sku", sku, f"use gpu:<type>, one of {', '.join(MEMORY_MIB_BY_TYPE)}")
    model, _, token_class = rest.rpartition(":")
    if kind != "tokens" or not model or any(c.isspace() for c in sku):
        raise MalformedError("sku", sku, "use gpu:<type>, cpu or tokens:<model>:<class>")
    classes = (*TokenClasses.model_fields, ANY_CLASS)
    if token_class not in classes:
        raise MalformedError("sku", sku, f"use a token class of {', '.join(classes)}")
    return sku


def usd(pico_usd: int) -> str:
    """Write pico-USD as dollars with all that is not zero, at least two decimals: ``$1.30``."""
    sign, amount = ("-", -pico_usd) if pico_usd < 0 else ("", pico_usd)
    whole, rest = divmod(amount, PICO_PER_USD)
    decimals = str(rest).rjust(PICO_DIGITS, "0").rstrip("0").ljust(2, "0")
    return f"{sign}${whole:,}.{decimals}"


def micro_usd(price_micro_usd: int) -> str:
    """Write micro-USD as dollars."""
    return usd(price_micro_usd * (PICO_PER_USD // MICRO_PER_USD))
