"""Users and operators: tasks, repeats, cancels, nonsense, quotas and prices."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any
from uuid import UUID

from orca_runtime.errors import LogError
from orca_runtime.log import Outgoing
from orca_schemas.codec import encode
from orca_schemas.envelope import Envelope
from orca_schemas.events.admin import (
    DeadLetterDropRequested,
    NamespaceSet,
    PriceSet,
    PriceTier,
    QuotaSet,
    RedriveRequested,
)
from orca_schemas.events.client import TaskCancelRequested
from orca_schemas.events.node import LeaseTopUpRequested
from orca_schemas.events.usage import TokensUsed
from orca_schemas.identifiers import CLUSTER, derived_id, name_id
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import Kind, Role, Stream, Subject
from orca_schemas.values import Meter, Period, TokenClasses

from tests.simulation.model import FORGER
from tests.simulation.nodes import MODELS
from tests.simulation.replicas import SimClock
from tests.simulation.simlog import View

NAMESPACES = ("team-a", "team-b", "team-c")
USERS = ("alice", "bob")
AMPLE = {
    "tasks": 6, "cpu_milli": 30_000, "memory_mib": 64_000, "gpu_milli": 3000,
    "gpu_milli:A100": 2000, "gpu_memory_mib": 120_000, "tokens": 3_000_000,
}  # fmt: skip
SKUS = ("cpu", "gpu:A100", "gpu:H100", *(f"tokens:{model}:*" for model in MODELS),
        f"tokens:{MODELS[0]}:output_text")  # fmt: skip
NONSENSE = (
    b"", b"not json", b"[]", b"{}", b'{"type":"orca.TaskSubmitted.v1"}', b"\xff\xfe",
    b'{"type":"orca.TaskSubmitted.v9","data":{}}', b'{"type":"orca.TaskSubmitted.v1","data":{}}',
    b'{"type":"orca.TaskCancelRequested.v1","data":{"reason":7}}',
)  # fmt: skip


class People:
    """Everyone who is no service and no node."""

    def __init__(self, view: View, clock: SimClock, rng: Random) -> None:
        self.view, self.clock, self.rng = view, clock, rng
        self.tasks: list[tuple[str, str, str]] = []
        """Namespace, task id and user of what was submitted."""
        self._bodies: dict[str, Outgoing] = {}

    async def begin(self) -> None:
        """Name the namespaces, give them quota, set prices."""
        for namespace in NAMESPACES:
            if self.rng.random() < 0.7:
                await self._say(self._of_account(namespace, NamespaceSet(admins=("root",))))
            for dimension in AMPLE:
                await self._say(self._quota(namespace, dimension, (0.5, 1, 1, 2)))
        for sku in SKUS:
            await self._say(self._price(sku))

    async def run(self) -> None:
        """Act at random until cancelled."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1.2))
            await self._say(self._something())

    def _something(self) -> Outgoing:
        drawn = self.rng.random()
        if drawn < 0.62 or not self.tasks:
            return self._submit()
        if drawn < 0.70:
            return self._bodies[self.rng.choice(self.tasks)[1]]
        if drawn < 0.80:
            return self._cancel()
        if drawn < 0.85:
            return self._nonsense()
        if drawn < 0.88:
            return self._forge()
        if drawn < 0.90:
            return self._redrive()
        if drawn < 0.95:
            return self._quota(self.rng.choice(NAMESPACES), self.rng.choice(list(AMPLE)))
        return self._price(self.rng.choice(SKUS))

    async def _say(self, message: Outgoing) -> None:
        """Publish until it is acknowledged, as a client does that must be sure."""
        while True:
            try:
                await self.view.publish(message)
            except LogError:
                await asyncio.sleep(self.rng.random())
            else:
                return

    def _message(self, subject: Subject, data: EventData) -> Outgoing:
        body = encode(Envelope(type=data.type_name(), data=data))
        return Outgoing(str(subject), body, f"{subject}/{self.rng.getrandbits(64)}")

    def _of_account(self, namespace: str, data: EventData) -> Outgoing:
        name = type(data).__name__
        subject = Subject(namespace, Kind.ACCOUNT, namespace, Role.ADMIN, "root", name)
        return self._message(subject, data)

    def _quota(
        self, namespace: str, dimension: str, factors: tuple[float, ...] = (0, 0.3, 1, 1, 1, 1, 2)
    ) -> Outgoing:
        factor = self.rng.choice(factors)
        limit = None if self.rng.random() < 0.15 else int(AMPLE[dimension] * factor)
        period = Period.TOTAL if dimension == "tokens" else Period.CONCURRENT
        data = QuotaSet(dimension=dimension, limit=limit, period=period)
        return self._of_account(namespace, data)

    def _price(self, sku: str) -> Outgoing:
        at_ms = self.clock.now_ms() + self.rng.choice((-5000, 100, 5000, 60_000))
        tier = PriceTier(from_quantity=0, price_micro_usd=self.rng.randint(0, 5_000_000))
        data = PriceSet(sku=sku, tiers=(tier,), effective_at_ms=at_ms)
        id_ = str(name_id(Kind.PRICE, sku))
        return self._message(
            Subject(CLUSTER, Kind.PRICE, id_, Role.ADMIN, "root", "PriceSet"), data
        )

    def _submit(self) -> Outgoing:
        namespace, user = self.rng.choice(NAMESPACES), self.rng.choice(USERS)
        task = str(UUID(int=self.rng.getrandbits(128), version=4))
        document = {
            "apiVersion": "orca.ai/v1",
            "kind": "AITask",
            "metadata": {"name": f"t{len(self.tasks)}", "namespace": namespace},
            "spec": self._spec(),
        }
        subject = Subject(namespace, Kind.TASK, task, Role.CLIENT, user, "TaskSubmitted")
        body = {"type": "orca.TaskSubmitted.v1", "data": {"manifest": document}}
        id_ = f"submit/{self.rng.getrandbits(64)}"
        message = Outgoing(str(subject), json.dumps(body).encode(), id_)
        if self.tasks and self.rng.random() < 0.04:
            # Somebody else's task id, or one's own again with another manifest.
            stolen = self.rng.choice(self.tasks)[1]
            subject = subject._replace(id=stolen)
            return Outgoing(str(subject), json.dumps(body).encode(), id_)
        self.tasks.append((namespace, task, user))
        self._bodies[task] = message
        return message

    def _spec(self) -> dict[str, Any]:
        rng = self.rng
        resources: dict[str, Any] = {
            "cpu": rng.choice(("100m", "1", "4", "8")),
            "memory": rng.choice(("512Mi", "4Gi", "16Gi")),
        }
        if rng.random() < 0.6:
            resources["gpu"] = self._gpu()
        if rng.random() < 0.6:
            resources["tokenQuota"] = rng.choice((500, 20_000, 150_000, 600_000))
        spec: dict[str, Any] = {
            "taskType": "batch",
            "resources": resources,
            "image": "sim:1",
            "command": ["run"],
            "retries": {
                "backoffLimit": rng.choice((0, 0, 1, 3)),
                "onNodeLoss": rng.choice(("wait", "requeue")),
            },
            "schedulerHints": {"priority": rng.choice(("low", "normal", "high", "urgent"))},
        }
        if rng.random() < 0.2:
            spec["activeDeadline"] = rng.choice(("5s", "30s", "90s"))
        return spec

    def _gpu(self) -> dict[str, Any]:
        rng = self.rng
        gpu: dict[str, Any] = {"type": rng.choice(("A100", "A100", "H100", "L4"))}
        if rng.random() < 0.5:
            return gpu | {"count": rng.choice((1, 1, 2))}
        share = {"computePercent": rng.choice((10, 33, 50)), "sharing": "shared"}
        memory = rng.choice(("5Gi", "20Gi"))
        return gpu | share | {"count": rng.choice((1, 1, 2)), "memoryLimit": memory}

    def _cancel(self) -> Outgoing:
        namespace, task, user = self.rng.choice(self.tasks)
        who = user if self.rng.random() < 0.7 else self.rng.choice(("root", "alice", "mallory"))
        subject = Subject(namespace, Kind.TASK, task, Role.CLIENT, who, "TaskCancelRequested")
        return self._message(subject, TaskCancelRequested(reason="no longer needed"))

    def _forge(self) -> Outgoing:
        """What a node says that is none, of a run and a fence that may come to be."""
        rng, log = self.rng, self.view.log
        ahead = log.last(Stream.PLACEMENT) + rng.choice((-3, 1, 2, 5, 1000))
        fence = str(Position(Stream.PLACEMENT, log.epoch(Stream.PLACEMENT), max(1, ahead)))
        namespace, task, _ = rng.choice(self.tasks)
        head = {"run_id": self._some_run(), "attempt": 1, "fence": fence}
        data: EventData
        if rng.random() < 0.6:
            record_id = derived_id(self.clock.now_ms(), "forged", rng.getrandbits(64))
            classes = TokenClasses(output_text=rng.randint(1, 10**6))
            more = {"record_id": record_id, "epoch": 1, "number": 1, "model": MODELS[0]}
            role, data = Role.PROBE, TokensUsed(**head, **more, classes=classes)
        else:
            more = {"meter": Meter.TOKENS, "used": 1, "granted_tokens": 1}
            role, data = Role.NODE, LeaseTopUpRequested(**head, **more)
        name = type(data).__name__
        return self._message(Subject(namespace, Kind.TASK, task, role, FORGER, name), data)

    def _redrive(self) -> Outgoing:
        """A dead letter to be decided again or dropped; at times one that is none."""
        rng, log = self.rng, self.view.log
        service = rng.choice((Stream.ADMISSION, Stream.PLACEMENT, Stream.METERING))
        letters = [one for one in log.all(service) if one.subject.endswith("InputDeadLettered")]
        position = str(Position(Stream.CLIENT, log.epoch(Stream.CLIENT), 1))
        if letters and rng.random() < 0.9:
            position = json.loads(rng.choice(letters).body)["data"]["fault"]["position"]
        kind = rng.choice((RedriveRequested, DeadLetterDropRequested))
        id_ = service.lower()
        subject = Subject(CLUSTER, Kind.ACCOUNT, id_, Role.ADMIN, "root", kind.__name__)
        return self._message(subject, kind(position=position))

    def _some_run(self) -> UUID:
        """The run of a Placed that stands in the log, or of nothing."""
        known = [one for one in self.view.log.all(Stream.PLACEMENT) if b"Placed" in one.body]
        if not known or self.rng.random() < 0.2:
            return derived_id(0, "nobody's")
        return UUID(json.loads(self.rng.choice(known).body)["data"].get("run_id", str(UUID(int=1))))

    def _nonsense(self) -> Outgoing:
        rng = self.rng
        task = rng.choice((str(UUID(int=rng.getrandbits(128), version=4)), "no-uuid", "NO"))
        name = rng.choice(("TaskSubmitted", "TaskCancelRequested", "TaskWished", "QuotaReserved"))
        role = rng.choice(("client", "client", "admin", "node", "probe"))
        namespace = rng.choice((*NAMESPACES, "team-x", "_cluster"))
        subject = f"orca.{namespace}.task.{task}.{role}.alice.{name}"
        return Outgoing(subject, rng.choice(NONSENSE), f"nonsense/{rng.getrandbits(64)}")
