"""plan() as tables: what is desired, seen and remembered, and what is to be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_node_agent.endings import CLOCK_GRAIN_MS, Ending, ending_of, never_started, vanished
from orca_node_agent.executor import AttemptObserved, AttemptPhase
from orca_node_agent.reconcile import (
    LOG_DRAIN_MS,
    Abandon,
    Adopt,
    Host,
    Refuse,
    Remove,
    Renew,
    ReportFinished,
    ReportStarted,
    Start,
    Stop,
    is_older,
    plan,
)
from orca_node_agent.records import AttemptRecord, Phase, Progress, StopRecord, key_of
from orca_node_agent.testing import a_slot, an_attempt
from orca_schemas.asks import Desired, DesiredAttempt, StopAsked
from orca_schemas.values import Outcome, ReasonCode

NOW_MS = 1_764_547_200_000
HOST = Host(now_ms=NOW_MS, gpu_uuids=frozenset({"GPU-1", "GPU-2"}))
CANCEL = StopAsked(outcome=Outcome.CANCELLED, message="no longer wanted", grace_ms=5_000)
A = an_attempt(1)
KEY = key_of(A)


def desired(*attempts: DesiredAttempt, known: bool = True) -> Desired:
    return Desired(sequence=7, known=known, attempts=attempts)


def seen(attempt: DesiredAttempt = A, exit_code: int | None = None) -> dict[str, AttemptObserved]:
    one = AttemptObserved(
        key=key_of(attempt),
        run_id=attempt.run_id,
        attempt=attempt.attempt,
        fence=attempt.fence,
        phase=AttemptPhase.RUNNING if exit_code is None else AttemptPhase.EXITED,
        started_at_ms=NOW_MS - 10_000,
        finished_at_ms=None if exit_code is None else NOW_MS - 1_000,
        exit_code=exit_code,
    )
    return {one.key: one}


def record(
    attempt: DesiredAttempt = A, phase: Phase = Phase.STARTED, **changes: object
) -> dict[str, AttemptRecord]:
    progress = Progress(phase, attempt.granted_tokens, attempt.lease_base_tokens)
    if phase is Phase.ENDED:
        progress = replace(progress, ended_at_ms=NOW_MS)
    progress = replace(progress, **changes)  # type: ignore[arg-type]
    return {key_of(attempt): AttemptRecord(key_of(attempt), attempt, progress)}


def with_stop(attempt: DesiredAttempt = A) -> DesiredAttempt:
    return attempt.model_copy(update={"stop": CANCEL})


STOP_RECORD = StopRecord(CANCEL.outcome, CANCEL.message, CANCEL.grace_ms, NOW_MS - 2_000)
FENCED = A.model_copy(update={"fence": "PLACEMENT@1700000000000000000#99"})
GPU_TASK = an_attempt(1, slots=(a_slot("GPU-1"),))
STRAY = an_attempt(2, slots=(a_slot("GPU-1"),))


@pytest.mark.parametrize(
    ("wanted", "observed", "known", "expected"),
    [
        pytest.param(desired(A), {}, {}, [Start(A)], id="a new assignment is started"),
        pytest.param(desired(A), {}, record(phase=Phase.ACCEPTED), [Start(A)],
                     id="a start cut off by a crash is repeated"),
        pytest.param(desired(A), seen(), record(phase=Phase.ACCEPTED),
                     [ReportStarted(KEY, NOW_MS - 10_000)], id="what runs is said to run"),
        pytest.param(desired(A), seen(), record(), [], id="what runs and is said is left alone"),
        pytest.param(desired(A), seen(exit_code=0), record(phase=Phase.ENDED), [],
                     id="ended here and still listed: neither started again nor removed"),
        pytest.param(desired(A), {}, record(phase=Phase.ENDED), [],
                     id="ended, remains gone, still listed: remembered"),
        pytest.param(desired(), seen(exit_code=0), record(phase=Phase.ENDED, logs_done=True),
                     [Remove(KEY)], id="ended and no longer listed: removed"),
        pytest.param(desired(), seen(exit_code=0), record(phase=Phase.ENDED), [],
                     id="its output is published first"),
        pytest.param(desired(), seen(exit_code=0),
                     record(phase=Phase.ENDED, ended_at_ms=NOW_MS - LOG_DRAIN_MS),
                     [Remove(KEY)], id="but is not waited for without end"),
        pytest.param(desired(with_stop()), seen(), record(), [Stop(KEY, CANCEL)],
                     id="an ordered stop"),
        pytest.param(desired(A), seen(), record(stop=STOP_RECORD), [Stop(KEY, CANCEL)],
                     id="a stop once acted on is repeated until the body is gone"),
        pytest.param(None, seen(), record(stop=STOP_RECORD), [Stop(KEY, CANCEL)],
                     id="also while placement does not answer"),
        pytest.param(desired(with_stop()), seen(exit_code=143), record(stop=STOP_RECORD),
                     [ReportFinished(KEY, ending_of(seen(exit_code=143)[KEY], STOP_RECORD))],
                     id="an exit is said once it is seen"),
        pytest.param(desired(with_stop()), {}, {},
                     [Abandon(with_stop(), never_started(Outcome.CANCELLED, CANCEL.message))],
                     id="stopped before it began"),
        pytest.param(desired(with_stop()), {}, record(phase=Phase.ACCEPTED),
                     [Abandon(with_stop(), never_started(Outcome.CANCELLED, CANCEL.message))],
                     id="stopped between being written down and begun"),
        pytest.param(None, {}, record(phase=Phase.ACCEPTED), [],
                     id="without an answer nothing begins"),
        pytest.param(None, seen(exit_code=3), record(),
                     [ReportFinished(KEY, ending_of(seen(exit_code=3)[KEY], None))],
                     id="without an answer ends are still said"),
        pytest.param(desired(known=False), seen(), record(), [],
                     id="a node that has not joined keeps what runs"),
        pytest.param(desired(A, known=False), {}, {}, [],
                     id="a node that has not joined starts nothing"),
        pytest.param(desired(A), {}, record(), [ReportFinished(KEY, vanished(None))],
                     id="a body taken away by hand is said to be gone"),
        pytest.param(desired(A), seen(), {}, [Adopt(A)], id="a body without a record is adopted"),
        pytest.param(desired(), seen(exit_code=1), {}, [Remove(KEY)],
                     id="unknown remains are cleared away"),
        pytest.param(desired(an_attempt(1, granted_tokens=900, lease_base_tokens=50)), seen(),
                     record(), [Renew(KEY, 900, 50)], id="a changed lease is taken over"),
        pytest.param(desired(GPU_TASK), seen(STRAY), record(STRAY, stop=STOP_RECORD),
                     [Stop(key_of(STRAY), CANCEL)],
                     id="a GPU under a body that placement gave up is waited for"),
        pytest.param(desired(GPU_TASK), seen(STRAY, exit_code=137),
                     record(STRAY, phase=Phase.ENDED),
                     [Start(GPU_TASK)], id="and taken once that body is gone"),
        pytest.param(desired(FENCED), seen(exit_code=0),
                     record(phase=Phase.ENDED, logs_done=True), [],
                     id="an attempt number is never used twice, whatever the fence"),
    ],
)  # fmt: skip
def test_plan(wanted, observed, known, expected) -> None:  # type: ignore[no-untyped-def]
    """Given these three, when planned, then exactly these actions, in this order."""
    assert list(plan(wanted, observed, known, HOST)) == expected


def test_an_attempt_that_placement_forgot_is_stopped() -> None:
    """Given a running attempt, when it is no longer listed, then it is ended as lost."""
    (action,) = plan(desired(), seen(), record(), HOST)
    assert isinstance(action, Stop)
    assert action.order.outcome is Outcome.NODE_LOST


def test_a_fenced_attempt_is_stopped() -> None:
    """Given a running attempt, when another fence is listed under its name, then it is ended."""
    (action,) = plan(desired(FENCED), seen(), record(), HOST)
    assert isinstance(action, Stop)


def test_a_start_under_way_is_cancelled_by_a_stop() -> None:
    """Given a start that pulls an image, when a stop is ordered, then it is not waited for."""
    host = replace(HOST, starting=frozenset({KEY}))
    assert plan(desired(with_stop()), {}, record(phase=Phase.ACCEPTED), host) == (
        Stop(KEY, CANCEL),
    )


def test_a_start_under_way_is_not_repeated() -> None:
    """Given a start under way, when planned again, then nothing is added."""
    host = replace(HOST, starting=frozenset({KEY}))
    assert plan(desired(A), {}, record(phase=Phase.ACCEPTED), host) == ()


@pytest.mark.parametrize(
    ("host", "attempt", "words"),
    [
        pytest.param(replace(HOST, spool_full=True), A, "spool is full", id="spool full"),
        pytest.param(replace(HOST, gpus_answer=False), GPU_TASK, "driver", id="driver hangs"),
        pytest.param(replace(HOST, gpu_uuids=frozenset()), GPU_TASK, "GPU-1", id="GPU gone"),
    ],
)
def test_what_the_host_cannot_do_is_refused(
    host: Host, attempt: DesiredAttempt, words: str
) -> None:
    """Given a host in trouble, when work is assigned, then it is refused with the reason."""
    (action,) = plan(desired(attempt), {}, {}, host)
    assert isinstance(action, Refuse)
    assert action.reason.code is ReasonCode.NODE_HEALTH
    assert words in action.reason.message


def test_a_full_spool_refuses_no_work_that_was_accepted() -> None:
    """Given an accepted attempt, when the spool fills, then it is begun all the same."""
    host = replace(HOST, spool_full=True)
    assert plan(desired(A), {}, record(phase=Phase.ACCEPTED), host) == (Start(A),)


def test_a_cpu_task_needs_no_gpu_driver() -> None:
    """Given a hanging driver, when a CPU task is assigned, then it is started."""
    assert plan(desired(A), {}, {}, replace(HOST, gpus_answer=False)) == (Start(A),)


def test_a_gpu_is_not_given_out_while_a_body_without_record_runs() -> None:
    """Given a stray body whose slots nobody remembers, when a GPU task comes, then it waits."""
    actions = plan(desired(GPU_TASK), seen(STRAY), {}, HOST)
    assert [type(action) for action in actions] == [Stop]


@pytest.mark.parametrize(
    ("answer", "acted_on", "older"),
    [
        ((1, 5), (1, 6), True),
        ((1, 6), (1, 6), False),
        ((1, 7), (1, 6), False),
        ((2, 1), (1, 6), False),
        ((1, 9), (2, 1), True),
    ],
)
def test_older_answers(answer: tuple[int, int], acted_on: tuple[int, int], older: bool) -> None:
    """Given an answer's place, then it is older by sequence, and a newer stream beats both."""
    assert is_older(answer, acted_on) is older


def exited(code: int | None, at_ms: int = NOW_MS, **changes: object) -> AttemptObserved:
    one = replace(seen(exit_code=0)[KEY], exit_code=code, finished_at_ms=at_ms)
    return replace(one, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observed", "stop", "outcome"),
    [
        pytest.param(exited(0), None, Outcome.SUCCEEDED, id="0"),
        pytest.param(exited(3), None, Outcome.FAILED, id="3"),
        pytest.param(exited(143), STOP_RECORD, Outcome.CANCELLED, id="ended by the order"),
        pytest.param(exited(137), STOP_RECORD, Outcome.CANCELLED, id="killed after the grace"),
        pytest.param(exited(1), STOP_RECORD, Outcome.CANCELLED, id="its own code for SIGTERM"),
        pytest.param(exited(0), STOP_RECORD, Outcome.CANCELLED, id="told to end, and ended well"),
        pytest.param(exited(0, STOP_RECORD.asked_at_ms - 1), STOP_RECORD, Outcome.SUCCEEDED,
                     id="done before the order"),
        pytest.param(exited(3, STOP_RECORD.asked_at_ms - 1_000), STOP_RECORD, Outcome.FAILED,
                     id="failed by itself before the order"),
        pytest.param(exited(143, STOP_RECORD.asked_at_ms - CLOCK_GRAIN_MS), STOP_RECORD,
                     Outcome.CANCELLED, id="file clocks lag by a tick"),
        pytest.param(exited(137, out_of_memory=True), None, Outcome.OUT_OF_MEMORY, id="oom"),
        pytest.param(exited(None, lost=True), None, Outcome.NODE_LOST, id="not witnessed"),
        pytest.param(exited(None, lost=True, finished_at_ms=None), STOP_RECORD, Outcome.CANCELLED,
                     id="not witnessed, but ordered"),
    ],
)  # fmt: skip
def test_outcomes(observed: AttemptObserved, stop: StopRecord | None, outcome: Outcome) -> None:
    """Given how a body ended and what was ordered, then the outcome is this."""
    assert ending_of(observed, stop).outcome is outcome


def test_a_long_message_is_cut_to_what_an_event_takes() -> None:
    """Given words of any length, then an ending fits into TaskFinished."""
    assert len(Ending(Outcome.FAILED, 1, "x" * 5_000, None, None).message) == 1_000


PHASES = st.sampled_from([None, *Phase])
SIGHTINGS = st.sampled_from(["absent", "running", "exited"])


@given(
    phases=st.tuples(PHASES, PHASES),
    sightings=st.tuples(SIGHTINGS, SIGHTINGS),
    wanted=st.tuples(st.booleans(), st.booleans()),
    stops=st.tuples(st.booleans(), st.booleans()),
    answered=st.booleans(),
)
def test_no_plan_ever_begins_what_has_run(phases, sightings, wanted, stops, answered) -> None:  # type: ignore[no-untyped-def]
    """Given any state of two attempts, then no plan starts, removes or forgets wrongly."""
    attempts = [an_attempt(n, slots=(a_slot(),)) for n in (1, 2)]
    known, observed, listed = {}, {}, []
    for index, attempt in enumerate(attempts):
        if phases[index] is not None:
            known |= record(attempt, phases[index])
        if sightings[index] != "absent":
            observed |= seen(attempt, 0 if sightings[index] == "exited" else None)
        if wanted[index]:
            listed.append(with_stop(attempt) if stops[index] else attempt)
    actions = plan(desired(*listed) if answered else None, observed, known, HOST)
    for action in actions:
        if isinstance(action, Start):
            key = key_of(action.attempt)
            assert answered
            assert key not in observed
            assert key not in known or known[key].progress.phase is Phase.ACCEPTED
        if isinstance(action, Remove):
            assert action.key not in {key_of(one) for one in listed}
            assert observed.get(action.key) is None or sightings != ("running", "running")
            assert action.key not in observed or observed[action.key].phase is AttemptPhase.EXITED
    assert len(set(actions)) == len(actions)
