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
from orca_schemas.events.admin import NamespaceSet, PriceSet, PriceTier, QuotaSet
from orca_schemas.events.client import TaskCancelRequested
from orca_schemas.identifiers import CLUSTER, name_id
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind, Role, Subject
from orca_schemas.values import Period

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
                await self._say(self._quota(namespace, dimension))
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
        if drawn < 0.87:
            return self._nonsense()
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

    def _quota(self, namespace: str, dimension: str) -> Outgoing:
        factor = self.rng.choice((0, 0.5, 1, 1, 1, 2))
        limit = None if self.rng.random() < 0.15 else int(AMPLE[dimension] * factor)
        period = Period.TOTAL if dimension == "tokens" else Period.CONCURRENT
        data = QuotaSet(dimension=dimension, limit=limit, period=period)
        return self._of_account(namespace, data)

    def _price(self, sku: str) -> Outgoing:
        at_ms = self.clock.now_ms() + self.rng.choice((-5000, 100, 5000, 60_000))
        tier = PriceTier(from_quantity=0, price_micro_usd=self.rng.randint(0, 5_000_000))
        data = PriceSet(sku=sku, tiers=(tier,), effective_at_ms=at_ms)
        id_ = str(name_id(Kind.PRICE, sku))
        return self._message(Subject(CLUSTER, Kind.PRICE, id_, Role.ADMIN, "root", "PriceSet"), data)

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

    def _nonsense(self) -> Outgoing:
        rng = self.rng
        task = rng.choice((str(UUID(int=rng.getrandbits(128), version=4)), "no-uuid", "NO"))
        name = rng.choice(("TaskSubmitted", "TaskCancelRequested", "TaskWished", "QuotaReserved"))
        role = rng.choice(("client", "client", "admin", "node", "probe"))
        namespace = rng.choice((*NAMESPACES, "team-x", "_cluster"))
        subject = f"orca.{namespace}.task.{task}.{role}.alice.{name}"
        return Outgoing(subject, rng.choice(NONSENSE), f"nonsense/{rng.getrandbits(64)}")
