"""What a record costs: the one place where money is computed.

All amounts are integers of pico-USD (1e-12 US dollars).
"""

from __future__ import annotations

from typing import NamedTuple

from orca_schemas.values import AcceptedRecord, ChargeLine, Meter

from orca_billing.prices import PriceBook
from orca_billing.skus import CPU, gpu_sku, token_sku

TOKEN = "token"  # noqa: S105 - a unit, no password
GPU_MILLI_MS = "milli-GPU ms"
CPU_MILLI_MS = "milli-core ms"

MILLI_MS_DIVISOR = 3600
"""pico-USD per (micro-USD per hour x milli x ms): 1e6 / (1000 milli x 3,600,000 ms per hour)."""


class Item(NamedTuple):
    """What of a record is priced on its own."""

    sku: str
    quantity: int
    unit: str


def items(record: AcceptedRecord) -> list[Item]:
    """The parts of a record that have a price of their own: one, or one per token class used."""
    if record.meter is Meter.GPU:
        found = [Item(gpu_sku(record.model), record.milli * record.duration_ms, GPU_MILLI_MS)]
    elif record.meter is Meter.CPU:
        found = [Item(CPU, record.milli * record.duration_ms, CPU_MILLI_MS)]
    else:
        classes = record.classes.items() if record.classes else []
        found = [Item(token_sku(record.model, name), amount, TOKEN) for name, amount in classes]
    return [item for item in found if item.quantity > 0]


def amount_pico_usd(quantity: int, unit: str, price_micro_usd: int) -> int:
    """What ``quantity`` costs, in pico-USD.

    Tokens: ``quantity x micro-USD per million tokens``, which is pico-USD without rounding.
    GPU and CPU: ``quantity (milli x ms) x micro-USD per hour / 3600``, rounded half to even, so
    that each line is off by at most half a pico-USD and the errors of many lines cancel.
    """
    product = quantity * price_micro_usd
    return product if unit == TOKEN else _divide_half_even(product, MILLI_MS_DIVISOR)


def _divide_half_even(number: int, divisor: int) -> int:
    whole, rest = divmod(number, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1))


def lines(record: AcceptedRecord, book: PriceBook) -> list[ChargeLine]:
    """The charge lines of a record, each at the price in force at the record's own time."""
    return [_line(record, item, book) for item in items(record)]


def _line(record: AcceptedRecord, item: Item, book: PriceBook) -> ChargeLine:
    price = book.in_force(item.sku, record.at_ms)
    each = 0 if price is None else price.price_micro_usd
    return ChargeLine(
        record_id=record.record_id,
        meter=record.meter,
        at_ms=record.at_ms,
        sku=item.sku,
        quantity=item.quantity,
        unit=item.unit,
        price=None if price is None else str(price.version),
        price_micro_usd=each,
        amount_pico_usd=amount_pico_usd(item.quantity, item.unit, each),
    )
