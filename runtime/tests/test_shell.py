"""The shell over the log in memory: what it appends, in which order, and what stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from orca_runtime import shell as shell_module
from orca_runtime.errors import ConflictError, LogUnavailableError, StreamFullError
from orca_runtime.inbox import QUEUE_LIMIT
from orca_runtime.log import Outgoing
from orca_runtime.shell import DeciderShell
from orca_runtime.speculate import Observation
from orca_runtime.tables import state_digest
from orca_runtime.testing_shell import OWN, START_MS, Bench, HandLease
from orca_runtime.testing_toy import TASK, TOY, Toy, add, admin, after
from orca_schemas.positions import Position


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits a second for a retry."""
    for name in ("RETRY_S", "NOT_READY_RETRY_S", "IDLE_S"):
        monkeypatch.setattr(shell_module, name, 0.005)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    found = Bench()
    yield found
    await found.stop()


# -- groups -----------------------------------------------------------------------------------


async def test_inputs_that_wait_become_one_append_with_the_cursor_on_its_last_event(
    bench: Bench,
) -> None:
    """Given three inputs, when the shell starts, then one append of three ends in a cursor."""
    await bench.say(add(1), add(2), add(3))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 3})
    assert bench.log.appends == [3]
    assert [b'"cursor"' in one.body for one in bench.log.own()] == [False, False, True]
    assert bench.folded().cursor["CLIENT"][1] == 3
    assert shell.folded == bench.folded()


async def test_a_group_stays_within_one_atomic_batch(bench: Bench) -> None:
    """Given decisions of 100 events each, when many wait, then no append is over 1,000."""
    await bench.say(*[add(f"many {100}") for _ in range(25)])
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 25})
    assert sum(bench.log.appends) == 2500
    assert max(bench.log.appends) <= 900
    assert shell.folded.state.total == 2500


async def test_a_group_is_bounded_in_bytes_as_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given inputs whose events pass the bound together, then they go in several appends."""
    monkeypatch.setattr(shell_module, "GROUP_BYTES", 1500)
    await bench.say(*[add(number) for number in range(1, 9)])
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 8})
    assert sum(bench.log.appends) == 8
    assert len(bench.log.appends) > 1
    assert bench.folded() == shell.folded


async def test_a_decision_over_its_bound_is_dead_lettered(bench: Bench) -> None:
    """Given a decision of 101 events or of one that is too large, then a dead letter answers it."""
    await bench.say(add("many 101"), add("large"), add(5))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 3})
    assert shell.folded.state.total == 5
    assert [line.split(":")[0] for line in bench.said()] == ["dead", "dead", "5"]
    assert bench.folded() == shell.folded


async def test_inputs_that_are_not_read_are_passed_over_in_the_cursor(bench: Bench) -> None:
    """Given inputs of no interest before one of interest, then the next append's cursor is past
    them."""
    await bench.say(add("not read"), add("not read"))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 2})
    assert bench.log.own() == []
    await bench.say(add(7))
    await bench.settled(shell, {"CLIENT": 3})
    assert bench.folded().cursor["CLIENT"][1] == 3
    assert len(bench.log.own()) == 1


async def test_a_flood_in_one_stream_does_not_starve_another(bench: Bench) -> None:
    """Given thousands of CLIENT messages, then a NODE message is among the first decisions."""
    (first,) = await bench.say(add(1))
    await bench.say(*[add(1) for _ in range(3000)], after(first))
    shell = bench.start()
    await bench.until(lambda: bool(bench.log.own()))
    assert max(shell.waiting().values()) <= QUEUE_LIMIT + 512
    await bench.settled(shell, {"CLIENT": 3001, "NODE": 1})
    assert next(i for i, line in enumerate(bench.said()) if line.startswith("after")) < 256
    assert shell.folded.state.total == 3001


# -- failures of an append --------------------------------------------------------------------


async def test_a_refused_append_stores_nothing_and_is_decided_again(bench: Bench) -> None:
    """Given a rival's event at the expected place, when the append conflicts, then the shell
    stands down, folds the rival's event and decides again on it."""
    other = Bench()
    await other.say(add(40))
    rival = other.start()
    await other.settled(rival, {"CLIENT": 1})
    await other.stop()
    theirs = [Outgoing(s.subject, s.body, "rival") for s in other.log.own()]

    def conflict() -> Exception | None:
        bench.log.before = lambda: None
        bench.log._streams[OWN].store(theirs, 1)
        return None

    bench.log.before = conflict
    (place,) = await bench.say(add(2))
    rebased = theirs[0].body.replace(str(_epoch(other)).encode(), str(place.epoch).encode())
    theirs = [replace(theirs[0], body=rebased)]
    shell = bench.start()
    await bench.until(lambda: shell.folded.sequence >= 1 and shell.active)
    assert bench.said() == ("40",)  # the rival did that input; it is not done twice
    await bench.say(add(3))
    await bench.settled(shell, {"CLIENT": 2})
    assert shell.folded.state.total == 43


def _epoch(bench: Bench) -> int:
    return bench.log._streams["CLIENT"].epoch


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
async def test_an_append_of_unknown_outcome_is_resolved_by_reading(
    bench: Bench, stored: bool
) -> None:
    """Given an append whose answer is lost, then the input is done once, stored or not."""

    def once() -> Exception | None:
        bench.log.before = bench.log.after = lambda: None
        return LogUnavailableError("no answer")

    if stored:
        bench.log.after = once
    else:
        bench.log.before = once
    await bench.say(add(1), add(2))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 2})
    assert bench.said() == ("1", "2")


async def test_a_full_stream_is_waited_for(bench: Bench) -> None:
    """Given a full own stream, then nothing is decided, the lease is given up, and room helps."""
    full = StreamFullError(OWN, "maximum bytes")
    bench.log.before = lambda: full
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.say(add(1))
    await bench.until(lambda: lease.given_up > 0)
    assert "is full" in shell.reason
    bench.log.before = lambda: None
    lease.give()
    await bench.settled(shell, {"CLIENT": 1})
    assert bench.said() == ("1",)


async def test_a_broker_away_at_the_start_is_waited_for(bench: Bench) -> None:
    """Given no broker when the snapshot is to be checked, then run goes on trying."""

    class NeedsBroker:
        async def load(self) -> Any:
            await bench.log.state(OWN)

        def offer(self, folded: Any, epoch: int) -> None: ...

    bench.log.unavailable = True
    shell = bench.start()
    shell.snapshots = NeedsBroker()
    await asyncio.sleep(0.03)
    assert not bench.tasks[0].done()
    assert "away" in shell.reason
    bench.log.unavailable = False
    await bench.say(add(1))
    await bench.settled(shell, {"CLIENT": 1})


@pytest.mark.parametrize("steps", range(1, 60))
async def test_a_crash_at_any_await_does_nothing_twice(bench: Bench, steps: int) -> None:
    """Given a shell cancelled after any number of steps, when another starts, then every input
    is done once and the ids are those that the first would have written."""
    await bench.say(add(1), admin(), add(2), add("fail"), add(3))
    bench.start()
    for _ in range(steps):
        await asyncio.sleep(0)
    await bench.stop()
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 4, "ADMIN": 1})
    assert shell.folded.state.total == 6
    assert sorted(bench.said()) == ["1", "2", "3", "admin", "dead: ValueError: told to fail"]
    ids = [one.body.split(b'"id":"')[1][:36] for one in bench.log.own()]
    assert len(set(ids)) == 5


async def test_ids_are_the_same_when_decided_again(bench: Bench) -> None:
    """Given a crash before the append, then the next shell's events have the same ids."""
    sent: list[list[str]] = []
    append = bench.log.append

    async def note(stream: str, expected: int, messages: Sequence[Outgoing]) -> int:
        sent.append([one.id for one in messages])
        if len(sent) == 1:
            await asyncio.Event().wait()
        return await append(stream, expected, messages)

    bench.log.append = note  # type: ignore[method-assign]
    await bench.say(add("many 3"), add(1))
    bench.start()
    await bench.until(lambda: bool(sent))
    await bench.stop()
    bench.clock.ms += 5000
    bench.start()
    await bench.until(lambda: len(sent) == 2)
    assert sent[0] == sent[1]
    assert len(set(sent[0])) == 4


# -- one active, one standby ------------------------------------------------------------------


async def test_a_standby_follows_and_takes_over(bench: Bench) -> None:
    """Given two replicas, when the active one is gone, then the standby has its state and goes on
    where it ended."""
    lease_a, lease_b = HandLease(), HandLease(held=False)
    active, standby = bench.start(lease=lease_a), bench.start(lease=lease_b)
    await bench.say(add(1), add(2))
    await bench.until(lambda: standby.folded.state.total == 3)
    assert active.active
    assert not standby.active
    bench.tasks[0].cancel()
    lease_b.give()
    await bench.say(add(3))
    await bench.until(lambda: standby.folded.state.total == 6)
    assert bench.said() == ("1", "2", "3")


async def test_two_that_both_believe_to_be_active_do_nothing_twice(bench: Bench) -> None:
    """Given two holders of the lease, then the fence lets each input be decided once."""
    shells = [bench.start(), bench.start()]
    for number in range(40):
        await bench.say(add(number))
        await asyncio.sleep(0.001)
    await bench.until(lambda: all(one.folded.done("CLIENT") == 40 for one in shells))
    assert bench.said() == tuple(str(number) for number in range(40))


async def test_who_loses_the_lease_stands_down(bench: Bench) -> None:
    """Given a lease that lapses, then the replica stops deciding and follows."""
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.say(add(1))
    await bench.settled(shell, {"CLIENT": 1})
    lease.give(False)
    await bench.until(lambda: not shell.active)
    await bench.say(add(2))
    await asyncio.sleep(0.02)
    assert bench.said() == ("1",)


async def test_what_an_earlier_term_saw_is_forgotten(bench: Bench) -> None:
    """Given an observation not yet decided when the term ends, then the next term ignores it:
    silence counts from the take-over on."""
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.until(lambda: shell.active)
    origin = Position(OWN, shell.epoch, 0)
    shell.observe(Observation("silent n1", "silent/n1", origin))
    lease.give(False)
    await bench.until(lambda: not shell.active)
    shell.observe(Observation("silent n2", "silent/n2", origin))
    lease.give()
    await bench.until(lambda: shell.active)
    shell.observe(Observation("silent n3", "silent/n3", origin))
    await bench.until(lambda: bool(bench.said()))
    assert bench.said() == ("silent n3",)


# -- inputs that cannot be handled ------------------------------------------------------------


async def test_an_unreadable_input_is_answered_and_the_stream_moves_on(bench: Bench) -> None:
    """Given bytes that are no event, then an own event names their position and the next input is
    decided."""
    bad = replace(add(1), body=b"not json", id="bad")
    place, _ = await bench.say(bad, add(2))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 2})
    assert len(bench.said()) == 2
    assert "not JSON" in bench.said()[0]
    assert f'"cause":"{place}"'.encode() in bench.log.own()[0].body


async def test_a_decision_that_raises_is_dead_lettered_and_the_stream_moves_on(
    bench: Bench,
) -> None:
    """Given a decider with a bug, then its input is set aside with the error."""
    await bench.say(add("fail"), add(2))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 2})
    assert bench.said() == ("dead: ValueError: told to fail", "2")


async def test_a_timer_whose_decision_raises_is_dead_lettered_once(bench: Bench) -> None:
    """Given a timer that the decider cannot answer, then it does not fill the stream: it rests
    until the next term, and other inputs go on."""
    shell = bench.start()
    await bench.say(add("trap 0"))
    await bench.until(lambda: len(bench.log.own()) >= 2)
    await bench.say(add(1))
    await bench.until(lambda: shell.folded.state.total == 1)
    await asyncio.sleep(0.05)
    assert [line.split(":")[0] for line in bench.said()][0::2] == [bench.said()[0], "1"]
    assert len(bench.log.own()) == 3


# -- needs and order across streams -----------------------------------------------------------


async def test_an_input_waits_for_the_position_that_it_names(bench: Bench) -> None:
    """Given a NODE input that names a CLIENT position, then that is decided first."""
    places = await bench.say(*[add(1) for _ in range(700)])
    await bench.say(after(places[-1]))
    shell = bench.start()
    await bench.settled(shell, {"NODE": 1})
    assert bench.said().index(f"after {places[-1]}") >= 700


async def test_a_need_that_no_stream_holds_makes_the_input_unreadable(bench: Bench) -> None:
    """Given a forged fence, then its input is answered and what is behind it goes on."""
    (place,) = await bench.say(add(1))
    forged = place._replace(sequence=99)
    await bench.say(after(forged), after(place))
    shell = bench.start()
    await bench.settled(shell, {"NODE": 2})
    assert any(line.startswith("dead: data.fence") for line in bench.said())
    assert f"after {place}" in bench.said()


async def test_a_forged_fence_is_ruled_out_while_other_inputs_flow(bench: Bench) -> None:
    """Given inputs without end, then a forged fence still holds its stream up only briefly."""
    (place,) = await bench.say(add(1))
    await bench.say(after(place._replace(sequence=10**6)))
    shell = bench.start()
    for _ in range(200):
        await bench.say(add(1))
        if shell.folded.done("NODE"):
            break
        await asyncio.sleep(0)
    assert shell.folded.done("NODE") == 1


async def test_a_place_once_forged_may_be_named_rightly_later(bench: Bench) -> None:
    """Given a forged fence for a place that is empty, when an event comes to stand there, then an
    honest input that names it is believed."""
    (place,) = await bench.say(add(1))
    future = place._replace(sequence=2)
    await bench.say(after(future))
    shell = bench.start()
    await bench.settled(shell, {"NODE": 1})
    await bench.say(add(5), replace(after(future), id="another message"))
    await bench.settled(shell, {"NODE": 2})
    assert bench.said()[-1] == f"after {future}"


async def test_a_stream_that_is_read_first_is_read_to_its_end(bench: Bench) -> None:
    """Given ADMIN before CLIENT, then what ADMIN holds is decided before any CLIENT input."""
    await bench.say(add(1), *[admin() for _ in range(600)])
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 1})
    await bench.until(lambda: len(bench.log.own()) > 600)
    assert bench.said()[-1] == "1" or bench.said().index("1") >= bench.log._streams["ADMIN"].last


# -- timers and time --------------------------------------------------------------------------


async def test_a_timer_fires_once_when_its_time_comes(bench: Bench) -> None:
    """Given an alarm, when the clock passes it, then it rings once, with what set it as cause."""
    shell = bench.start()
    await bench.say(add("alarm 500"))
    await bench.settled(shell, {"CLIENT": 1})
    await asyncio.sleep(0.03)
    assert len(bench.log.own()) == 1
    bench.clock.ms += 500
    await bench.until(lambda: len(bench.log.own()) == 2)
    await asyncio.sleep(0.03)
    assert [line.split()[0] for line in bench.said()] == ["alarm", "ring"]
    assert f'"cause":"{Position(OWN, shell.epoch, 1)}","timer"'.encode() in bench.log.own()[1].body


async def test_timers_wait_until_the_inputs_are_read_to_their_ends(bench: Bench) -> None:
    """Given an alarm that is overdue at the start and an input that unsets it, then it does not
    ring, however long the stream before that input is."""
    shell = bench.start()
    await bench.say(add("alarm 500"))
    await bench.settled(shell, {"CLIENT": 1})
    await bench.stop()
    bench.clock.ms += 60_000
    await bench.say(*[add(0) for _ in range(1500)], add("unset"))
    shell = bench.start()
    await bench.settled(shell, {"CLIENT": 1502})
    await asyncio.sleep(0.03)
    assert not any(line.startswith("ring") for line in bench.said())


async def test_a_timer_taken_back_in_the_same_append_does_not_fire(bench: Bench) -> None:
    """Given an input that unsets an alarm gathered with it, then the alarm is not decided."""
    shell = bench.start()
    await bench.say(add("alarm 0"))
    await bench.stop()
    shell = bench.start()
    await bench.until(lambda: shell.active)
    (due,) = TOY.timers(replace(Toy(), alarm_ms=1, origin=Position(OWN, 1, 1)), "alarm")
    spec = shell._decide([due])
    assert spec.outgoing == ()


async def test_now_is_never_before_the_last_own_event(bench: Bench) -> None:
    """Given a replica whose clock is behind its predecessor's, then its events are not earlier."""
    bench.clock.ms += 60_000
    shell = bench.start()
    await bench.say(add(1))
    await bench.settled(shell, {"CLIENT": 1})
    await bench.stop()
    bench.clock.ms -= 60_000
    shell = bench.start()
    await bench.say(add(2), add("alarm 100"))
    await bench.settled(shell, {"CLIENT": 3})
    assert shell.folded.time_ms == START_MS + 60_000
    assert shell.folded.state.alarm_ms == START_MS + 60_100


# -- streams that are not what they were ------------------------------------------------------


async def _not_ready(bench: Bench, shell: DeciderShell[Any], lease: HandLease, why: str) -> None:
    await bench.until(lambda: not shell.ready)
    assert why in shell.reason
    assert not shell.active
    assert lease.given_up > 0
    count = len(bench.log.own())
    lease.give()
    await bench.say(add(1000))
    await asyncio.sleep(0.03)
    assert not shell.active
    assert len(bench.log.own()) == count


async def _three_done(bench: Bench) -> None:
    shell = bench.start()
    await bench.say(add(1), admin(), add(2))
    await bench.settled(shell, {"CLIENT": 2, "ADMIN": 1})
    await bench.stop()


async def test_a_missing_event_in_the_own_stream_stops_the_service(bench: Bench) -> None:
    """Given a hole in the own stream, then the service is not ready and says where."""
    await _three_done(bench)
    bench.log.erase(OWN, 2)
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.until(lambda: "sequence 2" in shell.reason)
    assert not shell.ready
    assert "restore" in shell.reason
    assert not shell.active


@pytest.mark.parametrize(
    ("subject", "body", "why"),
    [
        pytest.param(None, b"{}", "a foreign message", id="no event"),
        pytest.param(None, None, "does not follow its predecessor", id="an event again"),
        pytest.param(
            f"orca.team.task.{TASK}.metering.-.FromTheFuture",
            b'{"type":"orca.FromTheFuture.v1","data":{}}',
            "start a release that reads it",
            id="unknown event",
        ),
        pytest.param(
            None,
            b'{"type":"orca.Noted.v2","data":{}}',
            "start a release that reads it",
            id="unknown version",
        ),
    ],
)
@pytest.mark.parametrize("replica", ["at start", "standby", "active"])
async def test_a_strange_message_in_the_own_stream_stops_the_service(
    bench: Bench, subject: str | None, body: bytes | None, why: str, replica: str
) -> None:
    """Given a message that this service did not write, or of a newer release, then no replica
    decides: neither one that starts, nor a standby, nor the active one once it meets it."""
    await _three_done(bench)
    last = bench.log.own()[-1]
    strange = Outgoing(subject or last.subject, last.body if body is None else body, "strange")
    lease = HandLease(held=replica != "standby")
    if replica != "at start":
        shell = bench.start(lease=lease)
        await bench.until(lambda: shell.ready and shell.active is (replica == "active"))
    bench.log._streams[OWN].store([strange], 1)
    if replica == "at start":
        shell = bench.start(lease=lease)
        await bench.until(lambda: why in shell.reason)
    elif replica == "active":
        await bench.say(add(5))
        await bench.until(lambda: lease.given_up > 0)
    await bench.until(lambda: not shell.ready)
    await _not_ready(bench, shell, lease, why)


@pytest.mark.parametrize("harm", ["rolled back", "made anew", "made anew and longer"])
async def test_an_input_stream_that_lost_what_was_decided_stops_the_service(
    bench: Bench, harm: str
) -> None:
    """Given an input stream that no longer holds what the cursor says, then nothing is decided."""
    await _three_done(bench)
    if harm == "rolled back":
        bench.log.roll_back("CLIENT", 1)
    else:
        bench.clock.ms += 1000
        bench.log.declare("CLIENT", "orca.*.*.*.client.*.*")
        if harm.endswith("longer"):
            await bench.say(*[add(1) for _ in range(9)])
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.until(lambda: "CLIENT" in shell.reason)
    assert not shell.ready
    assert not shell.active
    assert bench.said() in (("1", "2", "admin"), ("admin", "1", "2"))


async def test_an_input_stream_made_anew_while_active_stops_the_service(bench: Bench) -> None:
    """Given an active service, when an input stream is made anew, then it stops deciding."""
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.say(add(1), add(2))
    await bench.settled(shell, {"CLIENT": 2})
    bench.clock.ms += 1000
    bench.log.declare("CLIENT", "orca.*.*.*.client.*.*")
    await bench.say(*[add(50) for _ in range(9)])
    await bench.until(lambda: not shell.ready)
    assert bench.said() == ("1", "2")


async def test_an_own_stream_rolled_back_stops_the_service(bench: Bench) -> None:
    """Given a replica that saw more than the own stream holds, then it is not ready."""
    lease = HandLease()
    shell = bench.start(lease=lease)
    await bench.say(add(1), add(2))
    await bench.settled(shell, {"CLIENT": 2})
    bench.log.roll_back(OWN, 1)
    await bench.say(add(3))
    await bench.until(lambda: not shell.ready)
    assert "yet" in shell.reason or "rolled back" in shell.reason or "was read" in shell.reason


# -- what is told -----------------------------------------------------------------------------


async def test_listeners_hear_every_own_event_once(bench: Bench) -> None:
    """Given a listener, then it hears each event in order, whoever wrote it."""
    lease = HandLease(held=False)
    active, standby = bench.start(), bench.start(lease=lease)
    heard: list[int] = []
    standby.on_event.append(lambda event: heard.append(event.position.sequence))
    await bench.say(*[add(1) for _ in range(5)])
    await bench.until(lambda: standby.folded.sequence == 5)
    lease.give()
    bench.tasks[0].cancel()
    await bench.until(lambda: standby.active)
    await bench.say(*[add(1) for _ in range(5)])
    await bench.until(lambda: standby.folded.sequence == 10)
    assert heard == list(range(1, 11))
    assert active.folded.sequence >= 5


async def test_live_state_and_the_fold_from_zero_have_one_digest(bench: Bench) -> None:
    """I3 for the toy: given any inputs, then the live digest is that of the fold."""
    shell = bench.start()
    await bench.say(add(1), add("alarm 1"), admin(), add("fail"), add("many 9"))
    await bench.settled(shell, {"CLIENT": 4, "ADMIN": 1})
    live = state_digest(TOY.state_type, shell.folded.state)
    assert live == state_digest(TOY.state_type, bench.folded().state)


def test_a_conflict_names_both_sequences() -> None:
    """Given a conflict, then its text says what was expected and what was found."""
    assert "expected last sequence 3, found 5" in str(ConflictError("X", 3, 5))
