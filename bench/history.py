"""A log such as a cluster writes, made by the real deciders: no event here is invented.

Users, an operator and one node are scripted; admission, placement, metering and billing decide
for real, in groups, and every own event has its true size, digest chain and cursor.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from harness import NAMESPACES, manifest
from orca_admission.decider import DECIDER as ADMISSION
from orca_billing.decider import DECIDER as BILLING
from orca_client.submit import body_of
from orca_metering.decider import DECIDER as METERING
from orca_placement.decider import DECIDER as PLACEMENT
from orca_runtime.decider import AnyDecider
from orca_runtime.fold import Folded, unfolded
from orca_runtime.inbox import read_input
from orca_runtime.log import Stored
from orca_runtime.recorded import recorded
from orca_runtime.speculate import Speculation, seal, speculate
from orca_schemas.events.admin import NamespaceSet, PriceSet, PriceTier, QuotaSet
from orca_schemas.events.client import TaskSubmitted
from orca_schemas.events.node import NodeJoined, TaskFinished, TaskStarted
from orca_schemas.events.placement import Placed
from orca_schemas.events.usage import CpuUsed
from orca_schemas.identifiers import CLUSTER, derived_id, name_id
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind, Role, Stream, subject
from orca_schemas.values import Inventory, Meter, MeterEnd, Outcome, Period

DECIDERS: tuple[AnyDecider, ...] = (ADMISSION, PLACEMENT, METERING, BILLING)
NODE = "node-1"
ROUND_TASKS = 128
"""Tasks that live at once; a round submits them, runs them and bills them."""
ROUND_MS = 2000
GROUP_INPUTS = 256
GROUP_EVENTS = 800


class History:
    """Every stream of one cluster's life, written round by round.

    ``epochs`` are the streams' creation times in the broker that is to hold them.
    """

    def __init__(self, epochs: Mapping[str, int], days_ago: float = 1.0) -> None:
        self._epochs = epochs
        self.now_ms = int((time.time() - days_ago * 86_400) * 1000)
        self.ends: dict[str, int] = defaultdict(int)
        self.fresh: dict[str, list[Stored]] = defaultdict(list)
        """What was written since the last ``drain``, by stream."""
        self.folds: dict[str, Folded[Any]] = {d.stream: unfolded(d) for d in DECIDERS}
        self._waiting: dict[str, list[Stored]] = defaultdict(list)
        self._tasks = 0
        self._declare()

    def _declare(self) -> None:
        for name in NAMESPACES:
            self._say(Role.ADMIN, "root", (name, Kind.ACCOUNT, name), NamespaceSet())
            quota = QuotaSet(dimension="tasks", limit=30, period=Period.CONCURRENT)
            self._say(Role.ADMIN, "root", (name, Kind.ACCOUNT, name), quota)
        tier = PriceTier(from_quantity=0, price_micro_usd=40_000)
        price = PriceSet(sku="cpu", tiers=(tier,), effective_at_ms=None)
        about = (CLUSTER, Kind.PRICE, str(name_id(Kind.PRICE, "cpu")))
        self._say(Role.ADMIN, "root", about, price)
        inventory = Inventory(
            gpus=(), cpu_milli=10**6, memory_mib=10**7, executor="process", agent_version="bench"
        )
        joined = NodeJoined(boot_id=UUID(int=1), inventory=inventory)
        self._say(Role.NODE, NODE, (CLUSTER, Kind.NODE, NODE), joined)
        self._settle()

    def drain(self) -> dict[str, list[Stored]]:
        """What was written since the last call, by stream."""
        drained, self.fresh = dict(self.fresh), defaultdict(list)
        return drained

    def round(self) -> None:
        """Submit ROUND_TASKS tasks and run them to their bills."""
        for _ in range(ROUND_TASKS):
            document = manifest(self._tasks)
            id_ = str(derived_id(self.now_ms, "bench", self._tasks))
            about = (document["metadata"]["namespace"], Kind.TASK, id_)
            body = {"manifest": document}
            self._say(Role.CLIENT, "alice", about, TaskSubmitted.model_validate(body))
            self._tasks += 1
        self._settle()
        self.now_ms += ROUND_MS

    def rounds_until(self, stream: str, count: int) -> Iterator[dict[str, list[Stored]]]:
        """Go on until ``stream`` holds ``count`` events; yields what each round wrote."""
        while self.ends[stream] < count:
            self.round()
            yield self.drain()

    # -- writing ------------------------------------------------------------------------------

    def _say(self, role: Role, party: str, about: tuple[str, Kind, str], data: EventData) -> None:
        where = subject(*about, role, party, type(data).__name__)
        self._write(where.stream, str(where), body_of(data))

    def _write(self, stream: str, where: str, body: bytes) -> None:
        self.ends[stream] += 1
        time_ns = self.now_ms * 1_000_000 + self.ends[stream]
        stored = Stored(stream, self._epochs[stream], self.ends[stream], time_ns, where, body)
        self.fresh[stream].append(stored)
        for decider in DECIDERS:
            if stream in decider.inputs:
                self._waiting[decider.stream].append(stored)
        if stream == Stream.PLACEMENT and where.endswith(".Placed"):
            self._run(stored)

    # -- deciding -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let the services answer until nothing waits."""
        while any(self._waiting.values()):
            for decider in DECIDERS:
                waiting, self._waiting[decider.stream] = self._waiting[decider.stream], []
                for start in range(0, len(waiting), GROUP_INPUTS):
                    self._decide(decider, waiting[start : start + GROUP_INPUTS])

    def _decide(self, decider: AnyDecider, inputs: Sequence[Stored]) -> None:
        spec: Speculation[Any] = Speculation(
            self.folds[decider.stream], self._epochs[decider.stream]
        )
        for given in inputs:
            if len(spec.outgoing) >= GROUP_EVENTS:
                spec = self._commit(decider, spec)
            spec = speculate(decider, spec, read_input(given), self.now_ms)
        self._commit(decider, spec)

    def _commit(self, decider: AnyDecider, spec: Speculation[Any]) -> Speculation[Any]:
        sealed = seal(decider, spec)
        self.folds[decider.stream] = sealed.folded
        for message in sealed.outgoing:
            assert not message.subject.endswith("InputDeadLettered"), message.body
            self._write(decider.stream, message.subject, message.body)
        return Speculation(sealed.folded, spec.epoch)

    # -- the node -----------------------------------------------------------------------------

    def _run(self, stored: Stored) -> None:
        """The node runs what is placed: started, one CPU record, finished."""
        event = recorded(stored)
        placed = event.data
        assert isinstance(placed, Placed)
        about = (event.subject.namespace, Kind.TASK, event.subject.id)
        head = {
            "run_id": placed.run_id, "attempt": placed.attempt, "fence": str(stored.position),
        }  # fmt: skip
        began_ms, milli, ran_ms = self.now_ms, placed.spec.cpu_milli, 1000
        self._say(Role.NODE, NODE, about, TaskStarted(**head, started_at_ms=began_ms))
        record = CpuUsed(
            **head, record_id=derived_id(began_ms, placed.run_id), epoch=1, number=1,
            cpu_milli=milli, from_ms=began_ms, duration_ms=ran_ms,
        )  # fmt: skip
        self._say(Role.PROBE, NODE, about, record)
        end = MeterEnd(meter=Meter.CPU, epoch=1, used=milli * ran_ms // 1000, last_number=1)
        finished = TaskFinished(
            **head, outcome=Outcome.SUCCEEDED, exit_code=0, message="", started_at_ms=began_ms,
            finished_at_ms=began_ms + ran_ms, used=(end,),
        )  # fmt: skip
        self._say(Role.NODE, NODE, about, finished)
