"""Who made something happen: an event's causes, followed back to where they came from outside."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass

from orca_schemas.errors import MalformedError
from orca_schemas.positions import Position
from orca_schemas.subjects import NOBODY, Role, parse_subject

from orca_runtime.log import EventLog, Stored

MAX_STEPS = 8
"""The longest chain in use: usage, settled, charged, blocked, asked to stop, ordered, ended."""
REMEMBERED = 4096
OUTSIDE = frozenset((Role.CLIENT, Role.ADMIN, Role.NODE, Role.PROBE))
"""Who speaks for somebody outside the deciders: the party of the subject."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who is behind an event: ``by`` said it, ``for_`` is the party outside that set it off.

    ``position`` is where the first cause stands, ``event`` its name.
    """

    by: str
    position: str
    event: str
    for_: str | None = None
    timer: str | None = None

    def words(self) -> str:
        """In one phrase: ``alice``, ``node node-1``, ``a timer of admission``."""
        if self.timer is not None:
            kind = self.timer.split("/")[0]
            return f"timer {kind}"
        return self.for_ or self.by


class Authors:
    """Finds authors; remembers the latest looked at."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._known: OrderedDict[Position, Author] = OrderedDict()

    async def of(self, stored: Stored) -> Author:
        """The author of an event of the log."""
        return await self._of(stored, MAX_STEPS)

    async def _of(self, stored: Stored, steps: int) -> Author:
        if (known := self._known.get(stored.position)) is not None:
            return known
        found = await self._search(stored, steps)
        self._known[stored.position] = found
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found

    async def _search(self, stored: Stored, steps: int) -> Author:
        here = _said(stored)
        cause, timer = _cause(stored)
        if here.for_ is not None or cause is None or steps == 0:
            return here
        if timer is not None:
            return Author(here.by, here.position, here.event, timer=timer)
        try:
            before = await self._log.get(cause.stream, cause.sequence)
        except Exception:  # noqa: BLE001 - a stream of another epoch: say who is known
            return here
        if before is None:  # CLIENT, NODE and USAGE expire by age
            return Author(here.by, str(cause), "expired")
        return await self._of(before, steps - 1)


def _said(stored: Stored) -> Author:
    try:
        subject = parse_subject(stored.subject)
    except MalformedError:
        return Author("?", str(stored.position), stored.subject)
    outside = subject.role in OUTSIDE and subject.party != NOBODY
    for_ = f"{subject.party} ({subject.role})" if outside else None
    return Author(subject.role.value, str(stored.position), subject.event, for_)


def _cause(stored: Stored) -> tuple[Position | None, str | None]:
    try:
        body = json.loads(stored.body)
        return Position.parse(body["cause"]), body.get("timer")
    except (ValueError, KeyError, TypeError, MalformedError):
        return None, None
