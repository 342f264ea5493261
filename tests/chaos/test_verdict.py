"""The verdict can fail: each check meets the fault it is for, planted in a recorded history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks import charged_totals, check_ledger, check_slots, event_of
from orca_runtime.errors import IntegrityError
from orca_runtime.log import Stored
from orca_schemas.subjects import Stream

from tests.chaos.verdict import check_inputs_answered_once, check_witness, fold_from_zero
from tests.replay.shelf import messages

Log = dict[Stream, list[Stored]]


@pytest.fixture
def log() -> Log:
    """A history of the running stack, to be harmed."""
    return {stream: messages("v1", stream) for stream in Stream}


def find(log: Log, stream: Stream, name: str, wanted: Callable[[Any], bool] = bool) -> Stored:
    """The first event of this name whose data are wanted."""
    return next(
        one
        for one in log[stream]
        if event_of(one)[0] == name and wanted(json.loads(one.body)["data"])
    )


def changed(one: Stored, **data: Any) -> Stored:
    """The event with other data."""
    body = json.loads(one.body)
    body["data"] |= data
    return replace(one, body=json.dumps(body).encode())


def test_the_history_itself_is_in_order(log: Log, tmp_path: Path) -> None:
    """Given no fault, no check objects."""
    assert check_ledger(log[Stream.ADMISSION]).leaks() == {}
    check_slots(log[Stream.PLACEMENT])
    charged_totals(log[Stream.BILLING])
    check_inputs_answered_once(log)
    assert fold_from_zero("admission", log).sequence == len(log[Stream.ADMISSION])


def test_more_than_the_limit_is_found(log: Log) -> None:
    """Given a reservation beyond every limit, I1 is broken."""
    own = log[Stream.ADMISSION]
    one = find(log, Stream.ADMISSION, "QuotaReserved")
    held = [hold | {"amount": 10**12} for hold in event_of(one)[1]["held"]]
    own[own.index(one)] = changed(one, held=held)
    with pytest.raises(AssertionError, match="I1"):
        check_ledger(own)


def test_a_second_release_is_found(log: Log) -> None:
    """Given a release that stands twice, I2 is broken."""
    own = log[Stream.ADMISSION]
    own.append(find(log, Stream.ADMISSION, "QuotaReleased", lambda data: data["amounts"]))
    with pytest.raises(AssertionError, match="I2"):
        check_ledger(own)


def test_a_leaked_hold_is_found(log: Log) -> None:
    """Given a last release that is missing, its run still holds."""
    own = log[Stream.ADMISSION]
    holding = [one for one in own if event_of(one)[1].get("amounts")]
    own.remove(holding[-1])
    assert check_ledger(own).leaks() != {}


def test_a_second_live_attempt_is_found(log: Log) -> None:
    """Given a placement that stands twice, I4 is broken."""
    own = log[Stream.PLACEMENT]
    one = find(log, Stream.PLACEMENT, "Placed")
    own.insert(own.index(one), one)
    with pytest.raises(AssertionError, match="I4"):
        check_slots(own)


def test_a_command_that_began_twice_is_found(log: Log, tmp_path: Path) -> None:
    """Given two lines of one attempt on disk, I4 is broken."""
    witness = tmp_path / "began"
    one = find(log, Stream.PLACEMENT, "Placed")
    line = f"{one.subject.split('.')[3]} {event_of(one)[1]['attempt']}\n"
    witness.write_text(line)
    check_witness(log, [], witness)
    witness.write_text(line * 2)
    with pytest.raises(AssertionError, match="I4"):
        check_witness(log, [], witness)


def test_a_second_charge_is_found(log: Log) -> None:
    """Given a charge that stands twice, I5 is broken."""
    own = log[Stream.BILLING]
    own.append(find(log, Stream.BILLING, "Charged", lambda data: data["lines"]))
    with pytest.raises(AssertionError, match="I5"):
        charged_totals(own)


@pytest.mark.parametrize("times", [0, 2])
def test_an_input_decided_never_or_twice_is_found(log: Log, times: int) -> None:
    """Given a submission whose decision is missing or stands again, I8 is broken."""
    own = log[Stream.ADMISSION]
    one = find(log, Stream.ADMISSION, "QuotaReserved")
    cause = json.loads(one.body)["cause"]
    of_it = [other for other in own if json.loads(other.body)["cause"] == cause]
    log[Stream.ADMISSION] = [other for other in own if other not in of_it]
    if times:
        log[Stream.ADMISSION] = [*of_it, *log[Stream.ADMISSION], *of_it]
    with pytest.raises(AssertionError, match="I8"):
        check_inputs_answered_once(log)


def test_a_changed_byte_is_found(log: Log) -> None:
    """Given one digit of one event changed, the fold refuses what follows."""
    own = log[Stream.METERING]
    own[3] = replace(own[3], body=own[3].body.replace(b":1", b":2", 1))
    with pytest.raises(IntegrityError):
        fold_from_zero("metering", log)
