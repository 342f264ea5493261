"""What admission and placement say of a task, as one."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from orca_client.view import merged
from orca_schemas.asks import TaskRow
from orca_schemas.values import Reason, ReasonCode

Rows = Callable[..., TaskRow]
ID = UUID(int=1)
QUOTA = Reason(code=ReasonCode.QUOTA_GPU, message="2 of 2 are held")
CAPACITY = Reason(code=ReasonCode.CAPACITY_GPU, message="0 of 2 are free")


@pytest.mark.parametrize(
    ("admission", "placement", "state", "ended"),
    [
        ("queued", None, "queued", False),
        ("reserved", None, "admitted", False),
        ("reserved", "pending", "admitted", False),
        ("reserved", "deferred", "deferred", False),
        ("placed", "placed", "starting", False),
        ("placed", "running", "running", False),
        ("reserved", "retrying", "retrying", False),
        ("placed", "stopping", "stopping", False),
        ("stopping", "running", "stopping", False),
        (None, "running", "running", False),
    ],
)
def test_a_living_task_has_the_word_of_whoever_knows_more(
    row: Rows, admission: str | None, placement: str | None, state: str, ended: bool
) -> None:
    """Given two phases, then the state is one word."""
    view = merged(
        row(admission, ID) if admission else None, row(placement, ID) if placement else None
    )
    assert view is not None
    assert (view.state, view.ended) == (state, ended)


def test_a_task_that_nobody_knows_has_no_view() -> None:
    """Given no row, then there is no view."""
    assert merged(None, None) is None


def test_an_end_is_told_as_soon_as_either_knows_it(row: Rows) -> None:
    """Given placement that saw the end before admission, then the task has ended."""
    view = merged(row("placed", ID), row("ended", ID, outcome="succeeded", node="node-1"))
    assert view is not None
    assert (view.state, view.ended, view.succeeded, view.node) == (
        "succeeded",
        True,
        True,
        "node-1",
    )


@pytest.mark.parametrize(
    ("outcome", "refused"), [("refused", True), ("expired", True), ("cancelled", False)]
)
def test_a_rejected_task_is_refused_unless_its_owner_ended_it(
    row: Rows, outcome: str, refused: bool
) -> None:
    """Given a task that was never reserved, then only Orca's own no counts as a refusal."""
    view = merged(row("ended", ID, outcome=outcome, reasons=(QUOTA,)), None)
    assert view is not None
    assert (view.refused, view.reasons) == (refused, (QUOTA,))


def test_the_reasons_are_those_of_whoever_holds_it_up(row: Rows) -> None:
    """Given a task that placement defers, then its reasons are placement's."""
    view = merged(row("reserved", ID), row("deferred", ID, reasons=(CAPACITY,)))
    assert view is not None
    assert view.reasons == (CAPACITY,)


def test_what_placement_says_of_another_run_of_the_task_is_not_mixed_in(row: Rows) -> None:
    """Given placement that still knows an older run, then admission's word stands."""
    older = row("ended", ID, run_id=UUID(int=3), outcome="failed")
    view = merged(row("queued", ID), older)
    assert view is not None
    assert (view.state, view.ended) == ("queued", False)
