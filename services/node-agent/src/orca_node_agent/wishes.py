"""What placement wishes of this node: asked for, checked, and never taken from the past."""

from __future__ import annotations

import json
from uuid import UUID

import structlog
from orca_schemas.asks import Desired, DesiredQuery, Reply
from orca_schemas.errors import MalformedError
from orca_schemas.identifiers import CLUSTER
from orca_schemas.positions import Position
from orca_schemas.subjects import ask_subject
from pydantic import ValidationError

from orca_node_agent.boot import boot_clock_s
from orca_node_agent.ledger import Ledger
from orca_node_agent.ports import AskFailedError, Bus
from orca_node_agent.reconcile import is_older
from orca_node_agent.spool import Spool
from orca_node_agent.spool_thread import SpoolThread

ASK_INTERVAL_S = 2.0
ASK_TIMEOUT_S = 2.0
FRESH_S = 6.0
"""How long an answer may be acted on: well below any lease, so nothing fenced is begun."""
_ACTED_ON = "acted_on"

Place = tuple[int, int]
"""Epoch and sequence of placement's stream."""

_log = structlog.get_logger(__name__)


class Wishes:
    """Asks ``placement.desired`` and keeps the newest answer while it is fresh."""

    def __init__(
        self, who: tuple[str, UUID], bus: Bus, spool: Spool, ledger: Ledger, thread: SpoolThread
    ) -> None:
        """``who`` asks: the node's name and its boot id."""
        node, self._boot_id = who
        self._subject = ask_subject(CLUSTER, node, "placement", "desired")
        self._bus, self._ledger = bus, ledger
        self._thread = thread
        epoch, sequence = (spool.fact(_ACTED_ON) or "0 0").split()
        self.acted_on = (int(epoch), int(sequence))
        self._answer: Desired | None = None
        self._asked_s = -FRESH_S

    def current(self) -> Desired | None:
        """The answer to act on; None where it is too old, or there was none."""
        fresh = boot_clock_s() - self._asked_s < FRESH_S  # also after a suspend
        return self._answer if fresh else None

    async def ask(self) -> bool:
        """Ask once; whether placement answered for this node.

        No answer, or an older one than was acted on, leaves things as they are.
        """
        asked_s = boot_clock_s()  # an answer is as old as its question, however late it is read
        try:
            at, answer = await self._whole()
        except (AskFailedError, MalformedError) as error:
            _log.info("placement does not answer", error=str(error))
            return False
        if is_older(at, self.acted_on):
            _log.warning("older answer ignored", answer=at, acted_on=self.acted_on)
            return False
        if at != self.acted_on:
            await self._thread.quietly(self._ledger.note, _ACTED_ON, f"{at[0]} {at[1]}")
            self.acted_on = at
        self._answer, self._asked_s = answer, asked_s
        return answer.known

    async def _whole(self) -> tuple[Place, Desired]:
        """Every part of the answer; as a whole it is as old as its first.

        What was placed in between may be missing: nothing of it is here yet.
        """
        at, first = await self._part(DesiredQuery(boot_id=self._boot_id))
        attempts, more = list(first.attempts), first.more
        while more and attempts:
            query = DesiredQuery(boot_id=self._boot_id, after=attempts[-1].run_id)
            later, part = await self._part(query)
            if later < at or not part.attempts:
                raise AskFailedError("the parts of an answer do not fit together")
            attempts, more = [*attempts, *part.attempts], part.more
        return at, first.model_copy(update={"attempts": tuple(attempts), "more": False})

    async def _part(self, query: DesiredQuery) -> tuple[Place, Desired]:
        asked = query.model_dump_json(exclude_none=True).encode()
        return _read(await self._bus.ask(self._subject, asked, ASK_TIMEOUT_S))


def _read(body: bytes) -> tuple[Place, Desired]:
    """The answer and its place, (epoch, sequence). Raises MalformedError."""
    try:
        reply = Reply.model_validate_json(body)
        if not reply.ok:
            raise MalformedError("placement.desired", reply.error, "see the remedy in the answer")
        desired = Desired.model_validate_json(json.dumps(reply.data))
    except (ValidationError, ValueError) as error:
        raise MalformedError("placement.desired", str(error), "run one release") from None
    # A stream made anew counts from 1: its epoch, which is later, puts its answers after.
    epoch = Position.parse(reply.position).epoch if reply.position else 0
    return (epoch, desired.sequence), desired
