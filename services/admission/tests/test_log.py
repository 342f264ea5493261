"""What is decided can be written to the log and read back."""

from __future__ import annotations

from orca_admission.decider import DECIDER
from orca_admission.state import STATE_TYPE
from orca_runtime.fold import fold_one, unfolded
from orca_runtime.log import Stored
from orca_runtime.speculate import Input, Speculation, seal, speculate
from orca_runtime.tables import state_digest
from orca_runtime.testing import EPOCH, START_MS, an_input
from orca_schemas.events.admin import NamespaceSet, QuotaSet
from orca_schemas.events.client import TaskCancelRequested, TaskSubmitted
from orca_schemas.events.metering import UsageSettled
from orca_schemas.events.placement import Released
from orca_schemas.identifiers import name_id, run_id
from orca_schemas.manifest import parse_manifest
from orca_schemas.subjects import Stream
from orca_schemas.values import Outcome, Period

TASKS = [str(name_id("task", name)) for name in "abc"]
MANIFEST = parse_manifest(
    {
        "apiVersion": "orca.ai/v1",
        "kind": "AITask",
        "metadata": {"name": "train", "namespace": "team-alpha"},
        "spec": {
            "taskType": "training",
            "image": "busybox:1.36",
            "command": ["true"],
            "resources": {"tokenQuota": 100, "gpu": {"type": "A100"}},
        },
    }
)


def _story() -> list[Input]:
    """Three tasks for one place: one runs its course, one waits, one is cancelled."""
    submitted = [
        an_input(Stream.CLIENT, number, TaskSubmitted(manifest=MANIFEST), id_=task, party="alice")
        for number, task in enumerate(TASKS, start=1)
    ]
    first = run_id(submitted[0].position, START_MS)
    over = Released(
        run_id=first, outcome=Outcome.SUCCEEDED, exit_code=0, attempt=0, node=None, used=()
    )
    used = UsageSettled(run_id=first, records=(), totals=(), used_tokens=100, final=False)
    limit = QuotaSet(dimension="tasks", limit=1, period=Period.CONCURRENT)
    cancel = TaskCancelRequested(reason="no longer needed")
    return [
        an_input(Stream.ADMIN, 1, NamespaceSet(), id_="team-alpha"),
        an_input(Stream.ADMIN, 2, limit, id_="team-alpha"),
        *submitted,
        an_input(Stream.CLIENT, 4, cancel, id_=TASKS[2], party="alice"),
        an_input(Stream.CLIENT, 5, cancel, id_=TASKS[2], party="alice"),
        an_input(Stream.METERING, 1, used, id_=TASKS[0]),
        an_input(Stream.PLACEMENT, 1, over, id_=TASKS[0]),
    ]


def test_the_log_folds_to_the_state_that_was_decided_on() -> None:
    """Every event passes the codec, none is dead-lettered, and the digests agree."""
    spec = Speculation(unfolded(DECIDER), EPOCH)
    for given in _story():
        spec = speculate(DECIDER, spec, given, START_MS)
    spec = seal(DECIDER, spec)
    folded = unfolded(DECIDER)
    for sequence, one in enumerate(spec.outgoing, start=1):
        stored = Stored("ADMISSION", EPOCH, sequence, START_MS * 10**6, one.subject, one.body)
        folded, _ = fold_one(DECIDER, folded, stored)
    assert [event.subject.event for event in spec.events] == [
        "Noted",
        "Noted",
        "QuotaReserved",
        "TaskQueued",
        "TaskQueued",
        "TaskRejected",
        "RequestRefused",
        "QuotaSettled",
        "TaskStopRequested",
        "QuotaReleased",
        "QuotaReserved",
    ]
    assert folded == spec.folded
    assert state_digest(STATE_TYPE, folded.state) == state_digest(STATE_TYPE, spec.folded.state)
