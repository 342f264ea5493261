"""What metering answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from orca_metering.queries import usage
from orca_schemas.asks import RunQuery
from orca_schemas.identifiers import derived_id, name_id
from orca_schemas.values import Meter, MissingRange

OTHER = derived_id(2**40, "run", "b")


@pytest.fixture
def state(world: Any, say: Any) -> Any:
    then = world.says("tokens", 2).says("gpu", 1).after(say.released(used=say.ends(tokens=2)))
    other = say.placed(run_id=OTHER, id_=str(name_id("task", "b")), namespace="team-beta")
    return then.after(other).scenario.state


def asked(state: Any, asker: str = "_cluster", **query: Any) -> list[UUID]:
    answer = usage(state, RunQuery(**query), SimpleNamespace(namespace=asker))
    return [row.run_id for row in answer.runs]


def test_a_run_is_shown_with_what_it_used_and_waits_for(state: Any, say: Any) -> None:
    """Totals per meter and model, and the promised numbers that lack."""
    answer = usage(state, RunQuery(run_id=say.RUN), SimpleNamespace(namespace=say.TEAM))
    (row,) = answer.runs
    assert [(used.meter, used.model, used.used) for used in row.used] == [
        (Meter.GPU, "A100", 10**6),
        (Meter.TOKENS, "llama", 10),
    ]
    assert (row.used_tokens, row.final) == (10, False)
    assert row.waiting_for == (
        MissingRange(meter=Meter.TOKENS, attempt=1, epoch=0, first=1, last=1),
    )


def test_runs_come_newest_first_and_bounded(state: Any, say: Any) -> None:
    """The newest is the one whose id has the latest time."""
    newest = sorted([say.RUN, OTHER], key=lambda run_id: run_id.int, reverse=True)
    assert asked(state) == newest
    assert asked(state, limit=1) == newest[:1]


@pytest.mark.parametrize("namespace", ["team-alpha", "team-beta", "team-gamma"])
def test_a_namespace_sees_its_own_runs_only(state: Any, say: Any, namespace: str) -> None:
    """Whatever it asks for: its own run, another's by id, or everything."""
    own = {"team-alpha": [say.RUN], "team-beta": [OTHER]}.get(namespace, [])
    assert asked(state, namespace) == own
    assert asked(state, namespace, run_id=say.RUN) == [run for run in own if run == say.RUN]
    assert asked(state, namespace, namespace="team-beta") == [r for r in own if r == OTHER]


def test_a_task_names_its_runs(state: Any, say: Any) -> None:
    """By the task id that the user chose; an unknown one has none."""
    assert asked(state, task_id=UUID(say.TASK)) == [say.RUN]
    assert asked(state, task_id=OTHER) == []
    assert asked(state, run_id=derived_id(0, "none")) == []
