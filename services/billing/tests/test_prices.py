"""Which prices are taken into the book, and which is in force."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from orca_billing import decide
from orca_runtime.testing import EPOCH, START_MS
from orca_schemas.identifiers import name_id
from orca_schemas.positions import Position
from orca_schemas.values import TokenClasses

SECOND = 1000


def prices_of(world: Any, *times: int) -> list[int | None]:
    """The price of the GPU at each time."""
    found = [world.scenario.state.book.in_force("gpu:A100", at_ms) for at_ms in times]
    return [None if price is None else price.price_micro_usd for price in found]


def test_a_price_is_noted_with_its_version(world: Any) -> None:
    """The version is the position in ADMIN: whoever reads a charge finds who set its price."""
    then = world.priced("gpu:A100", 3)
    fact = then.last.fact
    assert (fact.sku, fact.version) == ("gpu:A100", f"ADMIN@{EPOCH}#1")
    assert (fact.tiers[0].price_micro_usd, fact.effective_at_ms) == (3, START_MS)


def test_the_price_in_force_is_the_latest_that_took_effect(world: Any) -> None:
    """From its own millisecond on, until the next one's."""
    then = world.priced("gpu:A100", 5, START_MS + 10, received_at_ms=START_MS)
    then = then.priced("gpu:A100", 3)
    times = (START_MS - 1, START_MS, START_MS + 9, START_MS + 10, START_MS + 10**9)
    assert prices_of(then, *times) == [None, 3, 3, 5, 5]


def test_of_two_that_take_effect_at_once_the_later_stands(world: Any) -> None:
    """Whoever corrects a price before it takes effect is heard."""
    then = world.priced("gpu:A100", 5).priced("gpu:A100", 4)
    assert prices_of(then, START_MS) == [4]


def test_a_record_is_priced_by_its_own_time(world: Any) -> None:
    """Given a price that rose since, a late record costs what it cost when it was used."""
    then = world.priced("cpu", 3600, START_MS).priced("cpu", 7200, START_MS + SECOND)
    then = then.used("cpu", at_ms=START_MS + SECOND).used("cpu", at_ms=START_MS + SECOND - 1)
    assert [charge.lines[0].price_micro_usd for charge in then.charged] == [7200, 3600]


@pytest.mark.parametrize(
    ("skus", "price"),
    [
        pytest.param({"tokens:llama:*": 2}, 2, id="any class"),
        pytest.param({"tokens:llama:*": 2, "tokens:llama:output_text": 5}, 5, id="its own"),
        pytest.param({"tokens:llama:*": 2, "tokens:llama:output_text": 0}, 0, id="its own 0"),
        pytest.param({"tokens:llama:*": 2, "tokens:llama:input_audio": 5}, 2, id="another's"),
        pytest.param({"tokens:llama:8b:*": 2}, None, id="another model"),
        pytest.param({"gpu:llama": 2, "cpu": 3}, None, id="no token price"),
    ],
)
def test_a_class_without_a_price_takes_that_of_any_class(
    world: Any, skus: dict[str, int], price: int | None
) -> None:
    """The exact sku first, then ``*``."""
    then = world
    for sku, price_micro_usd in skus.items():
        then = then.priced(sku, price_micro_usd)
    then = then.used("tokens", classes=TokenClasses(output_text=1))
    (line,) = then.last.lines
    assert line.sku == "tokens:llama:output_text"
    assert (None if line.price is None else line.price_micro_usd) == price


def test_a_model_may_have_colons_in_its_name(world: Any) -> None:
    """The class is what follows the last one."""
    then = world.priced("tokens:llama3:8b:*", 2).used("tokens", model="llama3:8b")
    assert then.last.total_pico_usd == 20


@pytest.mark.parametrize(
    "sku",
    ["gpu:A100", "gpu:H100-80GB", "cpu", "tokens:gpt-4o:*", "tokens:a/b:c:output_reasoning"],
)
def test_skus_that_have_a_price(world: Any, sku: str) -> None:
    """A GPU type, cpu, and a model's tokens of one class or of any."""
    assert world.priced(sku, 1).said == "price"


@pytest.mark.parametrize(
    ("sku", "reason"),
    [
        pytest.param("gpu:", "is no sku", id="no type"),
        pytest.param("gpus:A100", "is no sku", id="unknown"),
        pytest.param("cpu:x", "is no sku", id="cpu has no types"),
        pytest.param("tokens:llama", "names no token class", id="no class"),
        pytest.param("tokens::*", "names no token class", id="no model"),
        pytest.param("tokens:llama:output", "names no token class", id="unknown class"),
    ],
)
def test_what_is_no_sku_is_refused(world: Any, sku: str, reason: str) -> None:
    """A price that nothing could ever be charged by is a mistake, and is said to be one."""
    then = world.priced(sku, 1)
    assert then.said == "nothing"
    assert "price refused" in then.last.about
    assert reason in then.last.about
    assert then.digest() == world.digest()


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        pytest.param({"namespace": "team-alpha"}, "namespace _cluster", id="namespace"),
        pytest.param({"id_": str(uuid4())}, "the id of gpu:A100 is", id="id"),
        pytest.param({"id_": str(name_id("price", "cpu"))}, "is", id="the id of another sku"),
        pytest.param({"received_at_ms": START_MS + 1}, "but it came at", id="in the past"),
        pytest.param({"from_quantity": 5}, "quantity 0", id="a tier that leaves a hole"),
    ],
)
def test_what_is_refused(world: Any, where: dict[str, Any], reason: str) -> None:
    """Prices are the cluster's, under the id of their sku, and never of a time that is over."""
    then = world.priced("gpu:A100", 1, **where)
    assert then.said == "nothing"
    assert reason in then.last.about
    assert then.digest() == world.digest()


def test_a_price_cannot_reach_behind_what_is_priced(world: Any) -> None:
    """A node's clock may run ahead: what its record was charged stays the price of that time."""
    then = world.priced("cpu", 1).used("cpu", at_ms=START_MS + 300)
    refused = then.priced("cpu", 2, START_MS + 300)
    assert refused.said == "nothing"
    assert f"records up to {START_MS + 300} are priced" in refused.last.about
    assert refused.priced("cpu", 2, START_MS + 301).said == "price"


@pytest.mark.parametrize(
    ("bound", "sku", "reason"),
    [
        pytest.param("MAX_SKUS", "cpu", "1 skus already", id="skus"),
        pytest.param("MAX_VERSIONS", "gpu:A100", "1 prices already", id="versions"),
    ],
)
def test_the_book_is_bounded(
    world: Any, monkeypatch: pytest.MonkeyPatch, bound: str, sku: str, reason: str
) -> None:
    """What is never forgotten must have a limit."""
    monkeypatch.setattr(decide, bound, 1)
    then = world.priced("gpu:A100", 1).priced(sku, 2)
    assert reason in then.last.about


def test_the_same_version_twice_is_one(world: Any, say: Any) -> None:
    """A price event that was folded before changes nothing."""
    price = say.priced(say.price_set("cpu", 5), 1, START_MS)
    once = world.after(price)
    assert once.after(price).digest() == once.digest()
    assert once.scenario.state.book.skus["cpu"][0].version == Position("ADMIN", EPOCH, 1)
