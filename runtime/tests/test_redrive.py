"""Dead letters and what operators ask about them, over the log in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from orca_runtime import shell as shell_module
from orca_runtime.decider import Decider
from orca_runtime.fold import fold_one, unfolded
from orca_runtime.lease import SoleLease
from orca_runtime.log import Outgoing
from orca_runtime.recorded import Decided, recorded
from orca_runtime.redrive import MAX_LETTERS, NO_LETTERS, follow_letters
from orca_runtime.shell import DeciderShell
from orca_runtime.snapshot import FileSnapshots
from orca_runtime.testing_shell import Bench
from orca_runtime.testing_toy import TOY, Toy, add, after
from orca_schemas.codec import encode
from orca_schemas.envelope import Envelope
from orca_schemas.events.admin import DeadLetterDropRequested, RedriveRequested
from orca_schemas.events.common import InputDeadLettered, LetterNoted, Noted
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import Kind, Role, Stream, Subject
from orca_schemas.values import Fault


def asked(data: EventData, service: str = "metering") -> Outgoing:
    """An operator's request about a letter of a service."""
    name = type(data).__name__
    subject = Subject(CLUSTER, Kind.ACCOUNT, service, Role.ADMIN, "root", name)
    return Outgoing(str(subject), encode(Envelope(type=data.type_name(), data=data)), "")


def redrive(position: Position, service: str = "metering") -> Outgoing:
    return asked(RedriveRequested(position=str(position)), service)


def drop(position: Position) -> Outgoing:
    return asked(DeadLetterDropRequested(position=str(position)))


def _cured(state: Toy, command: Any, now_ms: int) -> list[Decided]:
    return TOY.decide(state, "41" if command == "fail" else command, now_ms)


CURED: Decider[Toy, Any] = replace(TOY, decide=_cured)
"""The toy in a release that can handle what failed before."""
BLIND: Decider[Toy, Any] = replace(TOY, inputs=(Stream.CLIENT, Stream.NODE), read_first={})
"""The toy as a service to which ADMIN is no input."""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits a second for a retry."""
    for name in ("RETRY_S", "NOT_READY_RETRY_S", "IDLE_S"):
        monkeypatch.setattr(shell_module, name, 0.005)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.stop()


async def letter(bench: Bench) -> tuple[DeciderShell[Toy], Position]:
    """A toy that dead-lettered one input, and where that stands."""
    shell = bench.start()
    (position,) = await bench.say(add("fail"))
    await bench.until(lambda: str(position) in shell.folded.letters)
    return shell, position


async def restarted(bench: Bench, decider: Decider[Toy, Any]) -> DeciderShell[Toy]:
    await bench.stop()
    bench.tasks.clear()
    return bench.start(decider)


def causes(bench: Bench) -> list[tuple[str, str]]:
    """Each own event's name and cause."""
    return [(recorded(one).subject.event, recorded(one).cause or "") for one in bench.log.own()]


async def test_a_letter_is_open_until_a_redrive_decides_it(bench: Bench) -> None:
    """Given a letter and a release that can handle it, when redriven, then it is decided once.

    Its events name the request as their cause, and the last says that the letter is settled.
    """
    _, position = await letter(bench)
    shell = await restarted(bench, CURED)
    (request,) = await bench.say(redrive(position))
    await bench.settled(shell, {"ADMIN": 1})
    assert shell.folded.state.total == 41
    assert shell.folded.letters == NO_LETTERS
    assert causes(bench)[-2:] == [("Noted", str(request))] * 2
    settled = recorded(bench.log.own()[-1]).data
    assert isinstance(settled, Noted)
    assert settled.fact == LetterNoted(position=str(position), end="redriven")


async def test_a_second_redrive_is_refused(bench: Bench) -> None:
    """Given two requests for one letter, even in one turn, then the second changes nothing."""
    _, position = await letter(bench)
    await bench.stop()
    await bench.say(redrive(position), add("1"), redrive(position), drop(position))
    shell = await restarted(bench, CURED)
    await bench.settled(shell, {"ADMIN": 3, "CLIENT": 2})
    assert shell.folded.state.total == 42
    refusals = [one for one in shell.folded.state.said if "not settled" in one]
    assert len(refusals) == 2
    assert f"{position} is no open dead letter of metering" in refusals[0]


async def test_what_fails_again_is_a_letter_again(bench: Bench) -> None:
    """Given a letter that still cannot be handled, when redriven, then it stays open, newly."""
    shell, position = await letter(bench)
    before = shell.folded.letters[str(position)]
    (request,) = await bench.say(redrive(position))
    await bench.settled(shell, {"ADMIN": 1})
    assert shell.folded.letters[str(position)] > before
    assert causes(bench)[-1] == ("InputDeadLettered", str(request))
    fault = recorded(bench.log.own()[-1]).data
    assert isinstance(fault, InputDeadLettered)
    assert fault.fault.position == str(position)


async def test_dropping_settles_a_letter_without_deciding(bench: Bench) -> None:
    """Given a letter, when it is dropped, then it is open no more and nothing else changed."""
    shell, position = await letter(bench)
    await bench.say(drop(position))
    await bench.settled(shell, {"ADMIN": 1})
    assert shell.folded.letters == NO_LETTERS
    assert shell.folded.state.total == 0


async def test_a_position_that_is_no_letter_is_refused_by_an_event(bench: Bench) -> None:
    """Given an input that was decided, when its redrive is asked, then nothing is added twice."""
    shell = bench.start()
    (position,) = await bench.say(add("7"))
    await bench.settled(shell, {"CLIENT": 1})
    await bench.say(redrive(position))
    await bench.settled(shell, {"ADMIN": 1})
    assert shell.folded.state.total == 7
    assert "is no open dead letter" in shell.folded.state.said[-1]


async def test_a_request_to_another_service_is_not_read(bench: Bench) -> None:
    """Given a letter here, when another service is asked to redrive, then nothing is said here."""
    shell, position = await letter(bench)
    await bench.say(redrive(position, service="billing"))
    await bench.settled(shell, {"ADMIN": 1})
    assert len(bench.log.own()) == 1


async def test_a_service_without_admin_as_input_hears_of_its_letters_alone(bench: Bench) -> None:
    """Given a service to which ADMIN is no input, then it answers redrives alone."""
    await bench.say(Outgoing("orca.team.account.team.admin.root.Nonsense", b"{", ""))
    shell = bench.start(BLIND)
    (position,) = await bench.say(add("fail"))
    await bench.until(lambda: str(position) in shell.folded.letters)
    await bench.say(drop(position))
    await bench.settled(shell, {"ADMIN": 2})
    assert [name for name, _ in causes(bench)] == ["InputDeadLettered", "Noted"]


async def test_what_still_lacks_its_need_is_not_redriven(bench: Bench) -> None:
    """Given an input dead-lettered for a forged fence, when redriven, then the need is named."""
    shell = bench.start()
    (first,) = await bench.say(add("1"))
    forged = first._replace(sequence=99)
    (position,) = await bench.say(after(forged))
    await bench.until(lambda: str(position) in shell.folded.letters)
    await bench.say(redrive(position))
    await bench.settled(shell, {"ADMIN": 1})
    assert f"needs {forged}, which is not there" in shell.folded.state.said[-1]
    assert str(position) in shell.folded.letters


async def test_an_input_that_the_log_no_longer_holds_is_refused(bench: Bench) -> None:
    """Given a letter whose input expired since, when redriven, then only dropping it helps."""
    shell, position = await letter(bench)
    bench.log.erase("CLIENT", position.sequence)
    await bench.say(redrive(position), drop(position))
    await bench.settled(shell, {"ADMIN": 2})
    assert f"the log no longer holds {position}" in shell.folded.state.said[-2]
    assert shell.folded.letters == NO_LETTERS


async def test_open_letters_survive_a_fold_and_a_snapshot(bench: Bench, tmp_path: Path) -> None:
    """Given an open letter, then a fold from zero and one from a snapshot know it."""
    shell, position = await letter(bench)
    folded = unfolded(TOY)
    for stored in bench.log.own():
        folded, _ = fold_one(TOY, folded, stored)
    snapshots = FileSnapshots(TOY, bench.log, tmp_path)
    snapshots.write(shell.folded, shell.epoch)
    loaded = await snapshots.load()
    assert loaded is not None
    assert folded.letters == loaded.letters == shell.folded.letters
    assert dict(folded.letters) == {str(position): 1}


def test_open_letters_are_bounded() -> None:
    """Given more letters than a service remembers, then the oldest is forgotten."""
    letters = NO_LETTERS
    for sequence in range(1, MAX_LETTERS + 2):
        fault = Fault(position=f"CLIENT@1#{sequence}", subject="x", error="x", body_sha256="0" * 64)
        letters = follow_letters(letters, InputDeadLettered(fault=fault), sequence)
    assert len(letters) == MAX_LETTERS
    assert "CLIENT@1#1" not in letters


async def test_a_crash_between_redrive_and_answer_decides_once(bench: Bench) -> None:
    """Given an append that was stored though its writer died, when it starts again, then once."""
    _, position = await letter(bench)
    await bench.stop()
    bench.tasks.clear()

    class DiedError(BaseException):
        pass

    bench.log.after = DiedError  # type: ignore[assignment]
    await bench.say(redrive(position))
    dying = DeciderShell(CURED, bench.log, clock=bench.clock, lease=SoleLease())
    with pytest.raises(DiedError):
        await dying.run()
    bench.log.after = lambda: None
    shell = bench.start(CURED)
    await bench.say(add("1"))
    await bench.settled(shell, {"ADMIN": 1, "CLIENT": 2})
    assert shell.folded.state.total == 42
