"""Why a balance is what it is: each event that moved it, by how much, through whom, and why.

Read from the log alone: the fold of ADMISSION's own events, its state before and after each.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from orca_runtime import text
from orca_runtime.authors import Author, Authors
from orca_runtime.fold import Folded, unfolded
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import EventLog, Stored
from orca_runtime.past import Moment, folds
from orca_runtime.recorded import Recorded
from orca_runtime.service import Explain
from orca_schemas.errors import MalformedError
from orca_schemas.events import admission as e
from orca_schemas.events.common import Noted
from orca_schemas.identifiers import check_label

from orca_admission.decider import DECIDER
from orca_admission.ledger import UNTOUCHED, Balance
from orca_admission.state import State

LAST = 40
"""Events shown: a screen. What came before is in the sums."""
MAX_LAST = 10_000
UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Change:
    """What one event did to one balance."""

    dimension: str
    held: int
    committed: int
    limit: int | None
    limit_changed: bool


@dataclass(frozen=True, slots=True)
class Move:
    """One event that changed the account, and what it changed."""

    stored: Stored
    event: Recorded
    changes: tuple[Change, ...]
    task: str = "-"
    """The task it was about and its user."""


@dataclass
class Sums:
    """The changes of one balance, added up."""

    held: int = 0
    committed: int = 0
    events: int = 0

    def add(self, change: Change) -> None:
        """One more."""
        self.held += change.held
        self.committed += change.committed
        self.events += 1


@dataclass
class Ledger:
    """The account's moves up to a moment: all of them as sums, the last as they are."""

    account: str
    last: int
    folded: Folded[State]
    sums: dict[str, Sums] = field(default_factory=dict)
    moves: deque[Move] = field(default_factory=deque)
    count: int = 0

    def add(self, move: Move) -> None:
        """One more; of the moves themselves only the last are kept."""
        self.count += 1
        for change in move.changes:
            self.sums.setdefault(change.dimension, Sums()).add(change)
        self.moves.append(move)
        if len(self.moves) > self.last:
            self.moves.popleft()

    def balances(self) -> dict[str, Balance]:
        """The account's balances at the moment, by dimension."""
        return dict(sorted(self.folded.state.account(self.account).balances.items()))

    def adds_up(self, dimension: str) -> bool:
        """Whether the changes sum to the balance."""
        balance, sums = self.balances()[dimension], self.sums.get(dimension, Sums())
        return (balance.held, balance.committed) == (sums.held, sums.committed)


def changes(before: State, after: State, account: str) -> Iterator[Change]:
    """What differs between two states in the account's balances."""
    old, new = before.account(account).balances, after.account(account).balances
    if old is new:
        return
    for name in sorted({*old, *new}):
        was, now = old.get(name, UNTOUCHED), new.get(name, UNTOUCHED)
        if was != now or (name in new and name not in old):
            yield Change(
                name,
                now.held - was.held,
                now.committed - was.committed,
                now.limit,
                limit_changed=was.limit != now.limit,
            )


async def ledger(log: EventLog, account: str, until: Moment, last: int) -> Ledger:
    """Fold the log to the moment and keep what moved the account."""
    found = Ledger(account, last, unfolded(DECIDER))
    async with aclosing(folds(DECIDER, log, found.folded, until)) as reading:
        async for folded, event, stored in reading:
            moved = tuple(changes(found.folded.state, folded.state, account))
            found.folded = folded
            if moved:
                found.add(Move(stored, event, moved, _task(folded.state, event)))
    return found


def _task(state: State, event: Recorded) -> str:
    """The task that an event is about, by name, and whose it is."""
    run = state.run_of(event.subject.id)
    return "-" if run is None else f"{run.name} ({run.user})"


def why(event: Recorded) -> str:
    """What the event says of its reason."""
    match event.data:
        case e.QuotaReserved(spec=spec):
            return f"reserved for {spec.name}"
        case e.QuotaSettled(used_tokens=used):
            return f"{used:,} tokens used by the run in all"
        case e.QuotaReleased(part=part, outcome=outcome):
            return f"{part} part given back" + (f": {outcome}" if outcome else "")
        case Noted(about=about):
            return about
        case _:
            return type(event.data).__name__


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("account", help="the namespace")
    parser.add_argument("--at", help="a sequence of ADMISSION, or a time; default: the end")
    parser.add_argument("--dimension", help="only this one, such as tokens")
    parser.add_argument("--last", type=int, default=LAST, help="how many events to show")
    parser.add_argument("--json", action="store_true", help="one JSON document")


async def _run(log: JetStreamLog, options: Namespace) -> int:
    check_label("account", options.account)
    if not 1 <= options.last <= MAX_LAST:
        raise MalformedError("last", str(options.last), f"use 1 to {MAX_LAST}")
    until = Moment.parse(options.at) if options.at else Moment()
    found = await ledger(log, options.account, until, options.last)
    if not found.count:
        raise MalformedError("account", options.account, "nothing was ever said of it by then")
    authors = Authors(log)
    named = [(move, await authors.of(move.stored)) for move in found.moves]
    print(json.dumps(_as_json(found, named)) if options.json else _shown(found, named, options))
    return 0 if all(map(found.adds_up, found.balances())) else 1


QUOTA = Explain(_arguments, _run)


# -- how it reads -----------------------------------------------------------------------------


def _shown(found: Ledger, named: list[tuple[Move, Author]], options: Namespace) -> str:
    only = options.dimension
    at = f"{DECIDER.stream}#{found.folded.sequence}, {text.clock(found.folded.time_ms)} UTC"
    earlier = found.count - len(named)
    more = f", the last {len(named)} shown (--last)" if earlier else ""
    return "\n\n".join(
        (
            f"{found.account} at {at}: {found.count:,} events moved it{more}",
            text.table(
                ("TIME (UTC)", "EVENT", "CHANGE", "TASK", "BY", "WHY"),
                [_row(move, author, only) for move, author in named if _has(move, only)],
            ),
            text.table(
                ("DIMENSION", "LIMIT", "EVENTS", "SUM HELD", "= HELD", "SUM USED", "= USED",
                 "FREE", ""),
                [_sum(found, name) for name in found.balances() if only in (None, name)],
                right=" rrrrrrr",
            ),
        )
    )  # fmt: skip


def _has(move: Move, only: str | None) -> bool:
    return only is None or any(change.dimension == only for change in move.changes)


def _row(move: Move, author: Author, only: str | None) -> tuple[str, ...]:
    about = move.event.subject
    moved = [_words(one) for one in move.changes if only in (None, one.dimension)]
    return (
        text.clock(move.event.time_ms),
        f"#{move.event.position.sequence} {about.event}",
        ", ".join(moved),
        move.task,
        author.words(),
        why(move.event),
    )


def _words(change: Change) -> str:
    """``tokens +500`` is held, ``tokens used +500`` committed."""
    parts = []
    if change.held:
        parts.append(f"{change.dimension} {change.held:+,}")
    if change.committed:
        parts.append(f"{change.dimension} used {change.committed:+,}")
    if change.limit_changed or not parts:
        parts.append(f"{change.dimension} limit {_limit(change.limit)}")
    return ", ".join(parts)


def _limit(limit: int | None) -> str:
    return UNLIMITED if limit is None else f"{limit:,}"


def _sum(found: Ledger, name: str) -> tuple[str, ...]:
    balance, sums = found.balances()[name], found.sums.get(name, Sums())
    free = UNLIMITED if balance.limit is None else f"{balance.free:,}"
    good = "equal" if found.adds_up(name) else "DIFFERS"
    return (
        name, _limit(balance.limit), f"{sums.events:,}", f"{sums.held:,}", f"{balance.held:,}",
        f"{sums.committed:,}", f"{balance.committed:,}", free, good,
    )  # fmt: skip


def _as_json(found: Ledger, named: list[tuple[Move, Author]]) -> dict[str, Any]:
    return {
        "account": found.account,
        "sequence": found.folded.sequence,
        "time_ms": found.folded.time_ms,
        "events": found.count,
        "balances": {
            name: {
                "limit": balance.limit,
                "held": balance.held,
                "committed": balance.committed,
                "sum_held": found.sums[name].held,
                "sum_committed": found.sums[name].committed,
                "equal": found.adds_up(name),
            }
            for name, balance in found.balances().items()
        },
        "moves": [_move_json(move, author) for move, author in named],
    }


def _move_json(move: Move, author: Author) -> dict[str, Any]:
    return {
        "position": str(move.event.position),
        "time_ms": move.event.time_ms,
        "event": move.event.subject.event,
        "id": move.event.subject.id,
        "task": move.task,
        "changes": [
            {"dimension": one.dimension, "held": one.held, "committed": one.committed,
             "limit": one.limit, "limit_changed": one.limit_changed}
            for one in move.changes
        ],
        "by": author.words(),
        "first_cause": author.position,
        "why": why(move.event),
    }  # fmt: skip
