"""Looks at every message at the moment it is stored; the first that breaks a law ends the world."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from hashlib import blake2b
from typing import Any

from orca_runtime.log import Stored
from orca_runtime.recorded import recorded
from orca_schemas.errors import OrcaError
from orca_schemas.identifiers import derived_id, run_id
from orca_schemas.positions import Position, parse_cursor

from tests.simulation.model import (
    FORGER,
    METERS,
    Cause,
    ClusterBook,
    Event,
    Json,
    MoneyBook,
    QuotaBook,
    UsageBook,
    must,
    record_key,
)

READS: dict[str, dict[str, set[str]]] = {
    "ADMISSION": {
        "CLIENT": {"TaskSubmitted", "TaskCancelRequested"},
        "ADMIN": {"NamespaceSet", "QuotaSet"},
        "PLACEMENT": {"Placed", "AttemptEnded", "Released"},
        "METERING": {"UsageSettled"},
        "NODE": {"LeaseTopUpRequested"},
    },
    "PLACEMENT": {
        "ADMISSION": {"QuotaReserved", "LeaseExtended", "TaskStopRequested"},
        "NODE": {"NodeJoined", "TaskStarted", "TaskFinished", "OrderRefused"},
    },
    "METERING": {"USAGE": set(METERS), "PLACEMENT": {"Placed", "AttemptEnded", "Released"}},
    "BILLING": {"METERING": {"UsageSettled"}, "ADMIN": {"PriceSet"}},
}
"""Which events each service says that it answers (the table of ARCHITECTURE.md section 4)."""

LETTER_REQUESTS = ("RedriveRequested", "DeadLetterDropRequested")
"""Answered by the one service that they name."""
NO_EVENT = "0" * 32
MAX_EVENTS = 100


class Input:
    """A message as an input: what it is, or that it is none."""

    def __init__(self, stored: Stored) -> None:
        tokens = stored.subject.split(".")
        self.stored, self.name = stored, tokens[-1]
        self.namespace, self.id, self.party = tokens[1], tokens[3], tokens[-2]
        try:
            recorded(stored)
            self.data: Json = json.loads(stored.body)["data"]
            self.readable = True
        except OrcaError:
            self.data, self.readable = {}, False


def _kind(data: Json) -> str:
    """What an event of many meanings says, for the counts."""
    if data.get("missing"):
        return "with missing"
    return str(data.get("fact", {}).get("kind") or data.get("outcome") or "")


def is_read(service: str, given: Input) -> bool:
    """Whether a service must answer a message: of a type that it reads, or no event at all."""
    names = READS[service].get(given.stored.stream)
    if given.readable and given.name in LETTER_REQUESTS:
        return (given.namespace, given.id) == ("_cluster", service.lower())
    return names is not None and (not given.readable or given.name in names)


class OwnStream:
    """What is known of a decider's stream: its chain, and which inputs it has answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.previous = NO_EVENT
        self.time = ""
        self.cursor: dict[str, int] = defaultdict(int)
        self.answered: dict[str, int] = defaultdict(int)
        self.pending: dict[str, set[int]] = defaultdict(set)
        """Answered since the last cursor."""
        self.last_cause = ""
        self.index = 0


class Checker:
    """The four books, every input, and the laws of the log."""

    def __init__(self) -> None:
        self.inputs: dict[str, list[Input]] = defaultdict(list)
        self.own = {name: OwnStream(name) for name in READS}
        self.quota = QuotaBook()
        self.cluster = ClusterBook(self.quota)
        self.usage = UsageBook()
        self.money = MoneyBook()
        self.books: dict[str, Any] = {
            "ADMISSION": self.quota,
            "PLACEMENT": self.cluster,
            "METERING": self.usage,
            "BILLING": self.money,
        }
        self.ids: set[str] = set()
        self.answers: dict[str, list[str]] = defaultdict(list)
        """Own events by the position that caused them, as ``STREAM Event``."""
        self.counts: Counter[str] = Counter()
        self.dead_letters: list[str] = []
        self.hash = blake2b(digest_size=16)

    @property
    def events(self) -> int:
        """Own events so far."""
        return sum(self.counts.values())

    def see(self, stored: Stored) -> None:
        """Check one message; raises Violation."""
        self.hash.update(f"{stored.position} {stored.time_ns} {stored.subject} ".encode())
        self.hash.update(stored.body)
        given = Input(stored)
        self.inputs[stored.stream].append(given)
        if stored.stream in self.own:
            self._see_own(given, self.own[stored.stream])

    # -- the laws of the log ------------------------------------------------------------------

    def _see_own(self, given: Input, own: OwnStream) -> None:
        stored, envelope = given.stored, json.loads(given.stored.body)
        must(given.readable, "law 1", f"{stored.position} cannot be read")
        must(envelope["previous"] == own.previous, "law 9", f"{stored.position} does not chain")
        own.previous = blake2b(stored.body, digest_size=16).hexdigest()
        must(envelope["time"] >= own.time, "law 4", f"{stored.position} goes back in time")
        own.time = envelope["time"]
        self.counts[f"{own.name} {given.name} {_kind(given.data)}".strip()] += 1
        cause = self._cause(given, envelope, own)
        self._id(given, envelope, own)
        if given.name == "InputDeadLettered":
            self.dead_letters.append(f"{stored.position}: {given.data['fault']}")
        where = str(stored.position)
        event = Event(given.name, given.namespace, given.id, given.data, where, cause)
        self.books[own.name].apply(event)
        self._run_id(given, envelope)
        if "cursor" in envelope:
            self._cursor(envelope["cursor"], own)

    def _cause(self, given: Input, envelope: Json, own: OwnStream) -> Cause:
        """I8, one half: an input is answered by one decision, and in its stream's order."""
        if "timer" in envelope:
            own.last_cause = ""
            return Cause("timer", {}, envelope["timer"])
        cause, text = Position.parse(envelope["cause"]), envelope["cause"]
        if text != own.last_cause:
            later = cause.sequence > max(own.answered[cause.stream], own.cursor[cause.stream])
            must(later, "I8", f"{given.stored.position} answers {text} again or late")
            own.answered[cause.stream] = cause.sequence
            own.last_cause, own.index = text, 0
        else:
            own.index += 1
            must(own.index < MAX_EVENTS, "law 6", f"the decision about {text} is too long")
        own.pending[cause.stream].add(cause.sequence)
        self.answers[text].append(f"{own.name} {given.name}")
        found = self.inputs[cause.stream][cause.sequence - 1]
        must(found.stored.position == cause, "law 2", f"{text} is not there")
        found = self._redriven(found) or found
        return Cause(found.name, found.data, found.id, found.party)

    def _redriven(self, request: Input) -> Input | None:
        """What an operator asked to decide again: that is what the events answer."""
        if request.name != "RedriveRequested" or not request.readable:
            return None
        stream, _, sequence = Position.parse(request.data["position"])
        inputs = self.inputs.get(stream, [])
        return inputs[sequence - 1] if 0 < sequence <= len(inputs) else None

    def _id(self, given: Input, envelope: Json, own: OwnStream) -> None:
        """Law 5: ids are derived, so that a decision made again is the same event."""
        must(envelope["id"] not in self.ids, "law 5", f"id {envelope['id']} is used twice")
        self.ids.add(envelope["id"])
        if "timer" in envelope:
            return
        cause = Position.parse(envelope["cause"])
        time_ms = self.inputs[cause.stream][cause.sequence - 1].stored.time_ms
        expected = str(derived_id(time_ms, own.name, cause, own.index))
        must(envelope["id"] == expected, "law 5", f"id of {given.stored.position} is not derived")

    def _run_id(self, given: Input, envelope: Json) -> None:
        if given.name in ("TaskQueued", "QuotaReserved") and "timer" not in envelope:
            cause = Position.parse(envelope["cause"])
            found = self.inputs[cause.stream][cause.sequence - 1]
            if found.name == "TaskSubmitted":
                expected = str(run_id(cause, found.stored.time_ms))
                must(given.data["run_id"] == expected, "law 5", f"run id by {cause}")

    def _cursor(self, text: str, own: OwnStream) -> None:
        """I8, the other half: what a cursor passes was answered, or is not read."""
        for stream, (_, through) in parse_cursor(text).items():
            before = own.cursor[stream]
            must(through >= before, "law 2", f"the cursor of {own.name} in {stream} goes back")
            for sequence in range(before + 1, through + 1):
                given = self.inputs[stream][sequence - 1]
                read = is_read(own.name, given)
                must(
                    read is (sequence in own.pending[stream]),
                    "I8",
                    f"{own.name} passed {given.stored.position} {given.name} "
                    f"{'unanswered' if read else 'though it does not read it'}",
                )
            own.cursor[stream] = through
        for stream, answered in own.pending.items():
            over = {sequence for sequence in answered if sequence > own.cursor[stream]}
            must(not over, "law 2", f"{own.name} answered {stream} {over} past its cursor")
        own.pending.clear()

    # -- at the end ---------------------------------------------------------------------------

    def behind(self) -> str | None:
        """An input that no cursor has passed although it must be answered."""
        for own in self.own.values():
            for stream in sorted({*READS[own.name], "ADMIN"}):
                for given in self.inputs[stream][own.cursor[stream] :]:
                    if is_read(own.name, given):
                        return f"{own.name} has not answered {given.stored.position} {given.name}"
        return None

    def unsettled(self) -> str | None:
        """What is not at rest yet; None when everything that began is over and accounted for."""
        open_ = [run for run, hold in self.quota.holds.items() if hold.open]
        if open_:
            return f"run {open_[0]} still holds {self.quota.holds[open_[0]].open}"
        if self.cluster.waiting:
            return f"runs wait for a place: {self.cluster.waiting}"
        if self.cluster.live:
            return f"runs are live: {list(self.cluster.live)}"
        never = set(self.quota.holds) - self.usage.final
        if never:
            return f"usage of {never} is not final"
        fits = self.quota.waits_in_vain()
        return self.behind() or (f"run {fits} waits in vain for quota" if fits else None)

    def finish(self, lost: set[tuple[Any, ...]], produced: set[tuple[Any, ...]]) -> None:
        """I5 and I7 as a whole, once all is at rest."""
        stored = {
            record_key(METERS[one.name], one.party, one.data)
            for one in self.inputs["USAGE"]
            if one.readable and one.name in METERS and one.party != FORGER
        }
        must(produced - lost <= stored, "I5", f"never sent: {list(produced - lost - stored)[:3]}")
        accepted = set(self.usage.records)
        must(accepted == stored, "I5", f"records differ: {list(accepted ^ stored)[:3]}")
        for record, amount in self.money.charged:
            right = amount == self.money.cost(record)
            must(right, "I5", f"{record['record_id']} was charged {amount}, by the final book not")
        charged = {record["record_id"] for record, _ in self.money.charged}
        must(len(charged) == len(self.money.charged) == len(accepted), "I5", "not charged once")
        for given in self.inputs["CLIENT"]:
            self._has_an_end(given)

    def _has_an_end(self, given: Input) -> None:
        """I7: it ended, or has a current named reason why not."""
        if given.name != "TaskSubmitted":
            return
        answers = self.answers[str(given.stored.position)]
        must(len(answers) == 1, "I7", f"{given.stored.position} has the answers {answers}")
        run = str(run_id(given.stored.position, given.stored.time_ms))
        known = run in self.quota.ends or run in self.quota.queued
        refused = answers == ["ADMISSION RequestRefused"]
        # Where not even the subject can be read there is nobody to refuse.
        refused |= answers == ["ADMISSION InputDeadLettered"] and not given.readable
        must(known or refused, "I7", f"{given.stored.position} neither ended nor waits: {answers}")
