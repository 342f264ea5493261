"""What is said of attempts, and that the disk has it before anybody hears of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orca_node_agent.endings import Ending, never_started
from orca_node_agent.ledger import (
    AmountError,
    EndedError,
    Ledger,
    RepeatedIdError,
    SpoolFullError,
)
from orca_node_agent.meter import next_interval
from orca_node_agent.records import Phase, key_of
from orca_node_agent.spool import (
    MAX_ANSWERS_PER_ATTEMPT,
    Spool,
    SpoolError,
    SpoolLimits,
    StoredAnswer,
)
from orca_node_agent.testing import a_slot, an_attempt
from orca_schemas.asks import DesiredAttempt, StopAsked
from orca_schemas.codec import decode
from orca_schemas.events.node import (
    LeaseTopUpRequested,
    OrderRefused,
    TaskFinished,
    TaskStarted,
)
from orca_schemas.events.usage import CpuUsed, GpuUsed, TokensUsed
from orca_schemas.identifiers import id_time_ms
from orca_schemas.subjects import parse_subject
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Meter, Outcome, Reason, ReasonCode, TokenClasses

T0 = 1_764_547_200_000
A = an_attempt(1)
KEY = key_of(A)
GPU_A = an_attempt(1, slots=(a_slot("GPU-1"), a_slot("GPU-2", gpu_milli=500, exclusive=False)))
TEN = TokenClasses(input_uncached=4, output_text=6)


def opened(path: Path, **limits: int) -> tuple[Spool, Ledger]:
    spool = Spool(path / "spool.db", SpoolLimits(**limits), T0)
    return spool, Ledger(spool, "node-1")


@pytest.fixture
def spooled(tmp_path: Path) -> Iterator[tuple[Spool, Ledger]]:
    """A spool and its ledger in an empty directory."""
    spool, ledger = opened(tmp_path)
    yield spool, ledger
    spool.close()


def said(spool: Spool) -> list[Any]:
    """The data of every message in the outbox, in order, read as a service would."""
    return [
        decode(parse_subject(row.message.subject), row.message.body).data
        for row in spool.waiting(1_000_000)
    ]


def begun(ledger: Ledger, attempt: DesiredAttempt = A, at_ms: int = T0) -> None:
    ledger.accept(attempt)
    ledger.started(key_of(attempt), at_ms)


def done(at_ms: int, started_at_ms: int = T0) -> Ending:
    return Ending(Outcome.SUCCEEDED, 0, "", started_at_ms, at_ms)


def test_a_life(spooled: tuple[Spool, Ledger]) -> None:
    """Given an attempt with GPUs, when it lives, then each fact is said once, usage before end."""
    spool, ledger = spooled
    begun(ledger, GPU_A)
    ledger.held(KEY, T0 + 2_000)
    ledger.tokens(KEY, "llama", TEN, None, T0 + 2_500)
    ledger.finish(KEY, done(T0 + 3_500), T0 + 4_000)
    events = said(spool)
    assert [type(event) for event in events] == [
        TaskStarted, GpuUsed, CpuUsed, TokensUsed, GpuUsed, CpuUsed, TaskFinished,
    ]  # fmt: skip
    gpus = [event for event in events if isinstance(event, GpuUsed)]
    assert [(g.number, g.gpu_milli, g.from_ms, g.duration_ms) for g in gpus] == [
        (1, 1500, T0, 2_000),
        (2, 1500, T0 + 2_000, 1_500),
    ]
    assert [id_time_ms(g.record_id) for g in gpus] == [T0, T0 + 2_000]
    ends = {end.meter: (end.last_number, end.used) for end in events[-1].used}
    assert ends == {Meter.TOKENS: (1, 10), Meter.GPU: (2, 5_250), Meter.CPU: (2, 3_500)}
    assert {end.epoch for end in events[-1].used} == {spool.epoch}
    assert events[-1].finished_at_ms == T0 + 3_500


def test_a_task_that_never_ran_has_no_usage(spooled: tuple[Spool, Ledger]) -> None:
    """Given an image error, then TaskFinished stands alone and its meters are at zero."""
    spool, ledger = spooled
    ledger.accept(A)
    ledger.finish(KEY, never_started(Outcome.IMAGE_ERROR, "no such image"), T0)
    (finished,) = said(spool)
    assert (finished.started_at_ms, finished.finished_at_ms) == (None, T0)
    assert [(end.used, end.last_number) for end in finished.used] == [(0, 0), (0, 0)]


def test_nothing_is_said_twice(spooled: tuple[Spool, Ledger]) -> None:
    """Given an ended attempt, when ended or accepted again, then nothing is added."""
    spool, ledger = spooled
    begun(ledger)
    ledger.finish(KEY, done(T0 + 10), T0 + 10)
    before = said(spool)
    ledger.finish(KEY, done(T0 + 99), T0 + 99)
    ledger.accept(A)
    ledger.held(KEY, T0 + 1_000)
    assert said(spool) == before
    assert spool.records[KEY].progress.phase is Phase.ENDED


def test_an_end_nobody_saw_counts_no_time(spooled: tuple[Spool, Ledger]) -> None:
    """Given a body lost with its host, then only what was recorded before stands."""
    spool, ledger = spooled
    begun(ledger)
    ledger.finish(KEY, Ending(Outcome.NODE_LOST, None, "", T0, None), T0 + 9_000)
    assert [type(event) for event in said(spool)] == [TaskStarted, TaskFinished]


def test_an_adopted_body_counts_from_now(spooled: tuple[Spool, Ledger]) -> None:
    """Given a body whose record is lost, then no time is counted twice."""
    spool, ledger = spooled
    ledger.adopt(A, T0 + 5_000)
    ledger.started(KEY, T0)
    ledger.finish(KEY, done(T0 + 6_000), T0 + 6_000)
    (cpu,) = [event for event in said(spool) if isinstance(event, CpuUsed)]
    assert (cpu.from_ms, cpu.duration_ms) == (T0 + 5_000, 1_000)


def test_a_refusal_is_remembered(spooled: tuple[Spool, Ledger]) -> None:
    """Given a refused order, then it is said once and the attempt is over here."""
    spool, ledger = spooled
    ledger.refuse(A, Reason(code=ReasonCode.NODE_HEALTH, message="full"), T0)
    assert [type(event) for event in said(spool)] == [OrderRefused]
    assert spool.records[KEY].progress.phase is Phase.ENDED


def test_the_first_stop_stands(spooled: tuple[Spool, Ledger]) -> None:
    """Given an order acted on, when another comes, then the first gives the outcome."""
    spool, ledger = spooled
    begun(ledger)
    ledger.order_stop(KEY, StopAsked(outcome=Outcome.CANCELLED, message="a", grace_ms=1), T0)
    ledger.order_stop(KEY, StopAsked(outcome=Outcome.PREEMPTED, message="b", grace_ms=2), T0 + 1)
    stop = spool.records[KEY].progress.stop
    assert stop is not None
    assert (stop.outcome, stop.asked_at_ms) == (Outcome.CANCELLED, T0)


def leased(granted: int, base: int = 0) -> DesiredAttempt:
    return an_attempt(1, granted_tokens=granted, lease_base_tokens=base)


def test_the_lease(spooled: tuple[Spool, Ledger]) -> None:
    """Given a grant of which earlier attempts used a part, then the rest is this one's."""
    _, ledger = spooled
    begun(ledger, leased(130, base=100))
    assert ledger.tokens(KEY, "m", TEN, None, T0) == {
        "accepted": True, "number": 1, "used_tokens": 10, "granted_tokens": 30,
        "remaining_tokens": 20, "exhausted": False,
    }  # fmt: skip
    ledger.tokens(KEY, "m", TEN, None, T0)
    last = ledger.tokens(KEY, "m", TEN, None, T0)
    assert (last["remaining_tokens"], last["exhausted"]) == (0, True)


def test_usage_beyond_the_grant_is_recorded(spooled: tuple[Spool, Ledger]) -> None:
    """Given an exhausted lease, when more was used, then it counts: it happened."""
    spool, ledger = spooled
    begun(ledger, leased(5))
    first = ledger.tokens(KEY, "m", TEN, None, T0)
    second = ledger.tokens(KEY, "m", TEN, None, T0)
    assert (first["exhausted"], second["used_tokens"]) == (True, 20)
    assert sum(isinstance(event, TokensUsed) for event in said(spool)) == 2


def test_more_is_asked_for_once_per_grant(spooled: tuple[Spool, Ledger]) -> None:
    """Given a lease, when 80 % is spent, then a top-up is asked, and again for the next grant."""
    spool, ledger = spooled
    begun(ledger, leased(150, base=50))

    def asked() -> list[tuple[int, int]]:
        found = [e for e in said(spool) if isinstance(e, LeaseTopUpRequested)]
        return [(one.used, one.granted_tokens) for one in found]

    ledger.tokens(KEY, "m", TokenClasses(output_text=79), None, T0)
    assert asked() == []
    ledger.tokens(KEY, "m", TokenClasses(output_text=1), None, T0)
    ledger.tokens(KEY, "m", TEN, None, T0)
    assert asked() == [(130, 150)]
    ledger.renew(KEY, 1_050, 50, T0)
    assert asked() == [(130, 150)]
    ledger.renew(KEY, 151, 50, T0)
    assert asked() == [(130, 150), (140, 151)]


def test_a_repeated_report_is_counted_once(spooled: tuple[Spool, Ledger]) -> None:
    """Given a report id, when it comes again, then the first answer; changed, an error."""
    spool, ledger = spooled
    begun(ledger, leased(1_000))
    first = ledger.tokens(KEY, "m", TEN, "call-1", T0)
    ledger.tokens(KEY, "m", TEN, "call-2", T0)
    assert ledger.tokens(KEY, "m", TEN, "call-1", T0 + 5) == first
    assert sum(isinstance(event, TokensUsed) for event in said(spool)) == 2
    with pytest.raises(RepeatedIdError):
        ledger.tokens(KEY, "m", TokenClasses(output_text=7), "call-1", T0)


def test_old_report_ids_make_room(spooled: tuple[Spool, Ledger]) -> None:
    """Given more ids than are kept, then the oldest are forgotten and the newest are not."""
    spool, ledger = spooled
    begun(ledger)
    with spool.change() as change:
        for number in (1, 2, MAX_ANSWERS_PER_ATTEMPT + 1):
            change.keep_answer(KEY, number, f"call-{number}", StoredAnswer("d", "{}"))
        assert change.answer(KEY, "call-1") is None
        assert change.answer(KEY, "call-2") is not None


def test_nothing_is_counted_for_what_is_over(spooled: tuple[Spool, Ledger]) -> None:
    """Given an unknown or ended attempt, then its reports are refused."""
    _, ledger = spooled
    with pytest.raises(EndedError):
        ledger.tokens(KEY, "m", TEN, None, T0)
    begun(ledger)
    ledger.finish(KEY, done(T0 + 1), T0 + 1)
    with pytest.raises(EndedError):
        ledger.tokens(KEY, "m", TEN, None, T0)
    with pytest.raises(EndedError):
        ledger.lease(KEY)


def test_a_total_no_event_can_carry_is_refused(spooled: tuple[Spool, Ledger]) -> None:
    """Given sums near 2**53, then what would pass them is refused, not cut."""
    _, ledger = spooled
    begun(ledger)
    ledger.tokens(KEY, "m", TokenClasses(output_text=MAX_AMOUNT), None, T0)
    with pytest.raises(AmountError):
        ledger.tokens(KEY, "m", TokenClasses(output_text=1), None, T0)


def test_a_top_up_says_no_more_than_an_event_can_carry(spooled: tuple[Spool, Ledger]) -> None:
    """Given earlier attempts that said they used all there is, then this one is counted too."""
    spool, ledger = spooled
    begun(ledger, leased(100, base=MAX_AMOUNT))
    ledger.tokens(KEY, "m", TEN, None, T0)
    ledger.renew(KEY, 200, MAX_AMOUNT, T0)
    found = [event.used for event in said(spool) if isinstance(event, LeaseTopUpRequested)]
    assert found == [MAX_AMOUNT, MAX_AMOUNT]


def test_a_full_spool_takes_no_new_usage_and_drops_nothing(tmp_path: Path) -> None:
    """Given a full spool, then reports wait, repeats are answered, and the end is still said."""
    spool, ledger = opened(tmp_path, max_rows=3)
    begun(ledger)
    first = ledger.tokens(KEY, "m", TEN, "call-1", T0)
    ledger.tokens(KEY, "m", TEN, "call-2", T0)
    assert spool.full
    with pytest.raises(SpoolFullError):
        ledger.tokens(KEY, "m", TEN, "call-3", T0)
    assert ledger.tokens(KEY, "m", TEN, "call-1", T0) == first
    ledger.finish(KEY, done(T0 + 100), T0 + 100)
    assert [type(e) for e in said(spool)][-2:] == [CpuUsed, TaskFinished]
    ledger.drop_through(spool.waiting(10)[-1].seq)
    assert (spool.rows, spool.full) == (0, False)
    spool.close()


def test_bytes_fill_a_spool_too(tmp_path: Path) -> None:
    """Given a limit in bytes, then it counts what waits, also after a restart."""
    spool, ledger = opened(tmp_path, max_bytes=700)
    begun(ledger)
    assert not spool.full
    ledger.tokens(KEY, "m", TEN, None, T0)
    assert spool.full
    spool.close()
    again, _ = opened(tmp_path, max_bytes=700)
    assert again.full
    again.close()


def test_a_disk_that_does_not_take_it_leaves_nothing_behind(spooled: tuple[Spool, Ledger]) -> None:
    """Given a failing disk, then neither number nor record nor message exists."""
    spool, ledger = spooled
    begun(ledger)
    spool._database.execute("PRAGMA max_page_count = 1")  # SQLite raises it to what is in use
    big = "m" * 200

    def fill() -> None:
        for number in range(10_000):
            ledger.tokens(KEY, big, TEN, f"call-{number}", T0)

    with pytest.raises(SpoolError, match="free disk space"):
        fill()
    spool._database.execute("PRAGMA max_page_count = 1000000")
    answer = ledger.tokens(KEY, big, TEN, None, T0)
    numbers = [event.number for event in said(spool) if isinstance(event, TokensUsed)]
    assert numbers == list(range(1, answer["number"] + 1))  # type: ignore[operator]
    assert spool.rows == len(said(spool))


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Given a spool, when opened again, then records, numbers, order and epoch are the same."""
    spool, ledger = opened(tmp_path)
    begun(ledger, leased(100))
    ledger.tokens(KEY, "m", TEN, "call-1", T0)
    ledger.note("acted_on", "1 2")
    before, records, epoch = spool.waiting(10), dict(spool.records), spool.epoch
    spool.close()
    again = Spool(tmp_path / "spool.db", SpoolLimits(), T0 + 77)
    assert (again.waiting(10), dict(again.records), again.epoch) == (before, records, epoch)
    assert again.fact("acted_on") == "1 2"
    assert Ledger(again, "node-1").tokens(KEY, "m", TEN, None, T0)["number"] == 2
    again.close()


def test_a_new_spool_is_a_new_epoch(tmp_path: Path) -> None:
    """Given a lost spool, then its numbers cannot be taken for the old ones."""
    first = Spool(tmp_path / "a.db", SpoolLimits(), T0)
    second = Spool(tmp_path / "b.db", SpoolLimits(), T0 + 1)
    assert first.epoch != second.epoch
    first.close()
    second.close()


def test_forgetting_keeps_what_is_to_be_said(spooled: tuple[Spool, Ledger]) -> None:
    """Given a finished attempt, when forgotten, then its messages still go out."""
    spool, ledger = spooled
    begun(ledger)
    ledger.finish(KEY, done(T0 + 5), T0 + 5)
    before = said(spool)
    ledger.forget(KEY)
    assert said(spool) == before
    assert spool.records == {}


WRITER = """
import sys
from pathlib import Path
from orca_node_agent.ledger import Ledger
from orca_node_agent.spool import Spool, SpoolLimits
from orca_node_agent.testing import an_attempt
from orca_node_agent.records import key_of
from orca_schemas.values import TokenClasses

spool = Spool(Path(sys.argv[1]), SpoolLimits(), 1)
ledger, attempt = Ledger(spool, "node-1"), an_attempt(1)
if key_of(attempt) not in spool.records:
    ledger.accept(attempt)
    ledger.started(key_of(attempt), 1_764_547_200_000)
while True:
    three = TokenClasses(output_text=3)
    answer = ledger.tokens(key_of(attempt), "m", three, None, 1_764_547_200_000)
    print(answer["number"], flush=True)
"""


def test_kill_9_in_the_middle_of_writing(tmp_path: Path) -> None:
    """Given writers that are killed, then every answered number is there, without a hole."""
    answered = 0
    for lines in (20, 1, 50):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "spool.db")]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        for _ in range(lines):
            answered = int(writer.stdout.readline())
        writer.kill()
        rest = writer.stdout.read().split()
        answered = int(rest[-1]) if rest else answered
        writer.wait()
        writer.stdout.close()
    spool, ledger = opened(tmp_path)
    numbers = [event.number for event in said(spool) if isinstance(event, TokensUsed)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) in (answered, answered + 1)
    assert ledger.tokens(KEY, "m", TEN, None, T0)["used_tokens"] == 3 * len(numbers) + 10
    spool.close()


@pytest.mark.parametrize(
    ("through_ms", "now_ms", "duration_ms"),
    [(100, 101, 1), (100, 100, None), (100, 99, None), (100, 5_100, 5_000)],
)
def test_intervals(through_ms: int, now_ms: int, duration_ms: int | None) -> None:
    """Given a clock, then time behind it is waited for and nothing is recorded of nothing."""
    found = next_interval(through_ms, now_ms)
    assert (found.duration_ms if found else None) == duration_ms


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(st.integers(min_value=-3_000, max_value=5_000), max_size=12),
    restarts=st.sets(st.integers(min_value=0, max_value=11)),
    last=st.integers(min_value=0, max_value=5_000),
)
def test_recorded_time_is_contiguous(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], restarts: set[int], last: int
) -> None:
    """Given any clock and any restarts, then intervals touch, never overlap, and add up."""
    path = tmp_path_factory.mktemp("spool")
    spool, ledger = opened(path)
    begun(ledger, GPU_A)
    now_ms = latest_ms = T0
    for index, step in enumerate(steps):
        now_ms += step
        latest_ms = max(latest_ms, now_ms)
        if index in restarts:
            spool.close()
            spool, ledger = opened(path)
        ledger.held(KEY, now_ms)
    end_ms = latest_ms + last
    ledger.finish(KEY, done(end_ms), end_ms)
    for kind, milli in ((GpuUsed, 1500), (CpuUsed, 1000)):
        records = [event for event in said(spool) if isinstance(event, kind)]
        assert [record.number for record in records] == list(range(1, len(records) + 1))
        edges = [T0, *(record.from_ms + record.duration_ms for record in records)]
        assert [record.from_ms for record in records] == edges[:-1]
        assert edges[-1] == end_ms
        meter = Meter.GPU if kind is GpuUsed else Meter.CPU
        (stood,) = [end for end in said(spool)[-1].used if end.meter is meter]
        assert stood.used == milli * (end_ms - T0) // 1000
    spool.close()


def test_envelopes_name_run_and_source(spooled: tuple[Spool, Ledger]) -> None:
    """Given a message, then its envelope says who, when and for which run."""
    spool, ledger = spooled
    begun(ledger)
    (row,) = spool.waiting(1)
    assert row.message.subject == (f"orca.team-alpha.task.{A.task_id}.node.node-1.TaskStarted")
    body = json.loads(row.message.body)
    assert body["correlationid"] == str(A.run_id)
    assert body["source"] == "orca/node-agent/node-1"
    assert body["time"] == "2025-12-01T00:00:00.000+00:00"
    assert body["id"] == row.message.id
