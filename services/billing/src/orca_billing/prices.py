"""The price book: which price of a sku is in force at a time."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.positions import Position

from orca_billing.skus import any_class_of

MAX_VERSIONS = 1000
"""Prices kept per sku: a change a day for two and a half years. They are never forgotten, since a
record is priced by its own time."""

MAX_SKUS = 10_000
"""Skus kept: models times token classes, with room."""


class Price(NamedTuple):
    """One price of a sku, in the order in which prices take effect.

    Of two that take effect at the same time, the one later in ADMIN stands.
    """

    effective_at_ms: int
    version: Position
    price_micro_usd: int


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Every price ever set, by sku, ascending."""

    skus: Table[str, tuple[Price, ...]]

    def with_price(self, sku: str, price: Price) -> PriceBook:
        """Return the book with one more price; the same price again changes nothing."""
        prices = list(self.skus.get(sku, ()))
        if price in prices:
            return self
        insort(prices, price)
        return PriceBook(self.skus.set(sku, tuple(prices)))

    def in_force(self, sku: str, at_ms: int) -> Price | None:
        """The price of ``sku`` at ``at_ms`` (Unix ms): its own, else that of any class of it.

        A function of the book, the sku and the time alone. None: it has no price, which is not
        the price 0.
        """
        own = self._latest(sku, at_ms)
        if own is not None:
            return own
        general = any_class_of(sku)
        return None if general is None else self._latest(general, at_ms)

    def _latest(self, sku: str, at_ms: int) -> Price | None:
        prices = self.skus.get(sku, ())
        after = bisect_right(prices, at_ms, key=lambda price: price.effective_at_ms)
        return prices[after - 1] if after else None


EMPTY_BOOK = PriceBook(Map())
