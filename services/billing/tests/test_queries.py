"""What billing answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from orca_billing.queries import cost, prices
from orca_runtime.testing import EPOCH, START_MS
from orca_schemas.asks import PriceQuery, RunQuery

ANYONE = SimpleNamespace(namespace="team-alpha")


def test_a_runs_cost_is_shown(world: Any, say: Any) -> None:
    """Its total, whether it is final, and how many lines found no price."""
    then = world.priced("tokens:llama:output_text", 5).used("tokens", final=True)
    answer = cost(then.scenario.state, RunQuery(run_id=say.RUN), ANYONE)
    (row,) = answer.runs
    assert (row.total_pico_usd, row.unpriced, row.final) == (15, 1, True)
    assert (row.run_id, str(row.task_id), row.namespace) == (say.RUN, say.TASK, say.TEAM)


@pytest.mark.parametrize(("asker", "seen"), [("team-alpha", 1), ("_cluster", 1), ("team-beta", 0)])
def test_a_namespace_sees_its_own_costs_only(world: Any, say: Any, asker: str, seen: int) -> None:
    """Whether it asks for a run, for a task or for everything."""
    state = world.used("tokens").scenario.state
    for query in (RunQuery(), RunQuery(run_id=say.RUN), RunQuery(task_id=say.TASK)):
        assert len(cost(state, query, SimpleNamespace(namespace=asker)).runs) == seen
    assert cost(state, RunQuery(namespace="team-beta"), ANYONE).runs == ()


def test_prices_are_shown_in_the_order_in_which_they_take_effect(world: Any) -> None:
    """By sku and time, with the version that a charge names."""
    then = world.priced("gpu:A100", 5, START_MS + 9, received_at_ms=START_MS)
    then = then.priced("gpu:A100", 3).priced("cpu", 1).priced("tokens:llama:*", 2)
    answer = prices(then.scenario.state, PriceQuery(), ANYONE)
    assert [(row.sku, row.price_micro_usd, row.unit, row.version) for row in answer.prices] == [
        ("cpu", 1, "core-hour", f"ADMIN@{EPOCH}#3"),
        ("gpu:A100", 3, "GPU-hour", f"ADMIN@{EPOCH}#2"),
        ("gpu:A100", 5, "GPU-hour", f"ADMIN@{EPOCH}#1"),
        ("tokens:llama:*", 2, "million tokens", f"ADMIN@{EPOCH}#4"),
    ]


def test_prices_of_one_sku_and_at_most_so_many(world: Any) -> None:
    """The answer is bounded; one sku can be asked for."""
    state = world.priced("gpu:A100", 3).priced("cpu", 1).priced("cpu", 2).scenario.state
    assert [row.sku for row in prices(state, PriceQuery(sku="cpu"), ANYONE).prices] == ["cpu"] * 2
    assert len(prices(state, PriceQuery(limit=1), ANYONE).prices) == 1
    assert prices(state, PriceQuery(sku="gpu:H100"), ANYONE).prices == ()
