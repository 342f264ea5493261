"""What must be true, as plainly as it can be written: sums over dicts, from the events alone.

Nothing here is shared with the services. Each ``*Book`` folds one stream's events, as JSON, and
raises Violation at the first event that breaks an invariant of ARCHITECTURE.md section 9.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

Json = dict[str, Any]


class Violation(Exception):  # noqa: N818 - it is what it is
    """An invariant does not hold."""


class Event(NamedTuple):
    """An own event: what it says of whom, where it stands, and which input caused it."""

    name: str
    namespace: str
    id: str
    data: Json
    position: str
    cause: Cause


class Cause(NamedTuple):
    """The input that an event answers; a timer has the name ``timer`` and its text as id."""

    name: str
    data: Json
    id: str = ""
    party: str = ""


def must(holds: bool, invariant: str, text: str) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(f"{invariant}: {text}")


class Hold:
    """What a run holds, from its QuotaReserved on."""

    def __init__(self, namespace: str, held: dict[str, int], granted: int | None) -> None:
        self.namespace, self.amounts, self.granted = namespace, held, granted
        self.used = 0
        self.open = {"concurrent", "consumable"}

    def now(self, dimension: str) -> int:
        """What it holds of a dimension now."""
        if dimension == "tokens":
            left = max(0, self.amounts.get("tokens", 0) - self.used)
            return left if "consumable" in self.open else 0
        return self.amounts.get(dimension, 0) if "concurrent" in self.open else 0


def asked_of(spec: Json) -> dict[str, int]:
    """What a spec asks, as the contract says it."""
    gpu = spec["gpu"]
    asked = {
        "tasks": 1,
        "cpu_milli": spec["cpu_milli"],
        "memory_mib": spec["memory_mib"],
        "tokens": spec["token_quota"] or 0,
    }
    if gpu:
        milli = gpu["count"] * 10 * gpu["compute_percent"]
        asked |= {"gpu_milli": milli, f"gpu_milli:{gpu['type']}": milli}
        asked["gpu_memory_mib"] = gpu["count"] * (gpu["memory_mib"] or 0)
    return {dimension: amount for dimension, amount in asked.items() if amount}


class QuotaBook:
    """ADMISSION: I1 and I2."""

    def __init__(self) -> None:
        self.limits: dict[str, dict[str, int | None]] = defaultdict(dict)
        self.holds: dict[str, Hold] = {}
        self.queued: dict[str, Json] = {}
        self.ends: dict[str, str] = {}
        """How each run ended for admission: its rejection, or released."""
        self.stops: set[str] = set()

    def apply(self, own: Event) -> None:
        """Fold one event."""
        found = getattr(self, f"_{own.name}", None)
        if found is not None:
            found(own.namespace, own.data, own.cause)

    def _Noted(self, namespace: str, data: Json, _: Any) -> None:
        fact = data["fact"]
        if fact["kind"] == "limit":
            self.limits[namespace][fact["dimension"]] = fact["limit"]

    def _TaskQueued(self, namespace: str, data: Json, _: Any) -> None:
        run = data["run_id"]
        new = run not in self.queued and run not in self.holds and run not in self.ends
        must(new, "I8", f"run {run} is queued twice")
        must(len(data["blockers"]) > 0, "I7", f"run {run} is queued without a reason")
        self.queued[run] = {"namespace": namespace, "spec": data["spec"]}

    def _TaskRejected(self, _: str, data: Json, __: Any) -> None:
        run = data["run_id"]
        must(run not in self.ends and run not in self.holds, "I7", f"run {run} is rejected late")
        self.queued.pop(run, None)
        self.ends[run] = data["outcome"]

    def _QuotaReserved(self, namespace: str, data: Json, _: Any) -> None:
        run = data["run_id"]
        must(run not in self.holds and run not in self.ends, "I2", f"run {run} is reserved twice")
        self.queued.pop(run, None)
        held = {one["dimension"]: one["amount"] for one in data["held"]}
        must(held == asked_of(data["spec"]), "I1", f"run {run} holds {held}")
        self.holds[run] = Hold(namespace, held, data["granted_tokens"])
        for dimension in held:
            self._within(namespace, dimension, run)

    def _within(self, namespace: str, dimension: str, run: str) -> None:
        limit = self.limits[namespace].get(dimension)
        taken = self.taken(namespace, dimension)
        inside = limit is None or taken <= limit
        must(inside, "I1", f"{run} brings {dimension} of {namespace} to {taken}, limit {limit}")

    def taken(self, namespace: str, dimension: str) -> int:
        """Committed plus held."""
        runs = [one for one in self.holds.values() if one.namespace == namespace]
        committed = sum(one.used for one in runs) if dimension == "tokens" else 0
        return committed + sum(one.now(dimension) for one in runs)

    def _LeaseExtended(self, _: str, data: Json, __: Any) -> None:
        hold = self.holds[data["run_id"]]
        granted, most = data["granted_tokens"], hold.amounts.get("tokens", 0)
        grows = hold.granted is not None and hold.granted < granted <= most
        must(grows, "I1", f"lease of {data['run_id']} from {hold.granted} to {granted} of {most}")
        hold.granted = granted

    def _QuotaSettled(self, _: str, data: Json, __: Any) -> None:
        hold = self.holds[data["run_id"]]
        must(data["used_tokens"] > hold.used, "I2", f"{data['run_id']} settles backwards")
        hold.used = data["used_tokens"]

    def _QuotaReleased(self, _: str, data: Json, cause: Cause) -> None:
        run, part = data["run_id"], data["part"]
        hold = self.holds[run]
        must(part in hold.open, "I2", f"{part} of {run} is released twice")
        must(cause.data.get("run_id") == run, "I2", f"{part} of {run} is released by {cause}")
        expected = "Released" if part == "concurrent" else "UsageSettled"
        must(cause.name == expected, "I2", f"{part} of {run} is released by {cause.name}")
        mine = [d for d in hold.amounts if (d == "tokens") is (part == "consumable")]
        held = {d: hold.now(d) for d in mine if hold.now(d)}
        said = {one["dimension"]: one["amount"] for one in data["amounts"]}
        must(said == held, "I2", f"{part} of {run} gives back {said}, held {held}")
        hold.open.discard(part)
        if part == "concurrent":
            self.ends[run] = "released"

    def _TaskStopRequested(self, _: str, data: Json, __: Any) -> None:
        run = data["run_id"]
        live = run in self.holds and "concurrent" in self.holds[run].open
        must(live, "I8", f"a stop of {run}, which is not live")
        must(run not in self.stops, "I8", f"{run} is stopped twice")
        self.stops.add(run)

    def waits_in_vain(self) -> str | None:
        """A queued run that would fit."""
        for run, waiting in self.queued.items():
            namespace, short = waiting["namespace"], []
            for dimension, amount in asked_of(waiting["spec"]).items():
                limit = self.limits[namespace].get(dimension)
                if limit is not None and self.taken(namespace, dimension) + amount > limit:
                    short.append(dimension)
            if not short:
                return run
        return None


class ClusterBook:
    """PLACEMENT: I4."""

    def __init__(self, quota: QuotaBook) -> None:
        self.quota = quota
        self.inventory: dict[str, Json] = {}
        self.boots: dict[str, str] = {}
        self.lost: set[str] = set()
        self.live: dict[str, Json] = {}
        self.attempts: dict[str, int] = defaultdict(int)
        self.released: dict[str, str] = {}
        self.waiting: dict[str, Any] = {}

    def apply(self, own: Event) -> None:
        """Fold one event."""
        found = getattr(self, f"_{own.name}", None)
        if found is not None:
            found(own.id, own.data, own)

    def _NodeAdmitted(self, node: str, data: Json, _: Event) -> None:
        must(node not in self.inventory, "I8", f"{node} is admitted twice")
        self.inventory[node], self.boots[node] = data["inventory"], data["boot_id"]

    def _NodeUpdated(self, node: str, data: Json, _: Event) -> None:
        self.inventory[node], self.boots[node] = data["inventory"], data["boot_id"]

    def _NodeLost(self, node: str, _: Json, __: Event) -> None:
        must(node not in self.lost, "I8", f"{node} is lost twice")
        self.lost.add(node)

    def _NodeReturned(self, node: str, _: Json, __: Event) -> None:
        must(node in self.lost, "I8", f"{node} returns and was not lost")
        self.lost.discard(node)

    def _Noted(self, _: str, data: Json, __: Event) -> None:
        if data["fact"]["kind"] == "run":
            self.waiting.setdefault(data["fact"]["run_id"], ())

    def _PlacementDeferred(self, _: str, data: Json, __: Event) -> None:
        must(len(data["reasons"]) > 0, "I7", "deferred without a reason")
        must(data["run_id"] not in self.released, "I7", "deferred after its end")
        self.waiting[data["run_id"]] = data["reasons"]

    def _Placed(self, _: str, data: Json, own: Event) -> None:
        run, node = data["run_id"], data["node"]
        must(run not in self.live, "I4", f"{run} has two live attempts")
        must(run not in self.released, "I4", f"{run} is placed after its end")
        self.attempts[run] += 1
        must(data["attempt"] == self.attempts[run], "I4", f"attempt {data['attempt']} of {run}")
        must(node not in self.lost, "I4", f"{run} is placed on {node}, which is lost")
        hold = self.quota.holds.get(run)
        must(
            hold is not None and "concurrent" in hold.open, "I1", f"{run} is placed, holds nothing"
        )
        assert hold is not None
        self._granted(run, data["granted_tokens"], hold)
        self.live[run] = data | {"fence": own.position, "boot": self.boots[node]}
        self.waiting.pop(run, None)
        self._fits(node)

    def _granted(self, run: str, granted: int | None, hold: Hold) -> None:
        most = hold.granted
        inside = granted is None if most is None else granted is not None and granted <= most
        must(inside, "I1", f"{run} may spend {granted}, admission granted {most}")

    def _LeaseUpdated(self, _: str, data: Json, __: Event) -> None:
        run = data["run_id"]
        must(run in self.live, "I4", f"the lease of {run} is told to nobody")
        self._granted(run, data["granted_tokens"], self.quota.holds[run])

    def _fits(self, node: str) -> None:
        here = [one for one in self.live.values() if one["node"] == node]
        inventory = self.inventory[node]
        for what in ("cpu_milli", "memory_mib"):
            taken = sum(one["spec"][what] for one in here)
            must(taken <= inventory[what], "I4", f"{what} of {node}: {taken}")
        for gpu in inventory["gpus"]:
            self._card(node, gpu, [s for one in here for s in one["slots"]])
        known = {gpu["uuid"] for gpu in inventory["gpus"]}
        for one in here:
            uuids = [slot["gpu_uuid"] for slot in one["slots"]]
            wanted = one["spec"]["gpu"]["count"] if one["spec"]["gpu"] else 0
            right = len(uuids) == len(set(uuids)) == wanted and set(uuids) <= known
            must(right, "I4", f"{one['run_id']} wants {wanted} cards, has {uuids}")

    def _card(self, node: str, gpu: Json, slots: list[Json]) -> None:
        here = [slot for slot in slots if slot["gpu_uuid"] == gpu["uuid"]]
        milli = sum(slot["gpu_milli"] for slot in here)
        memory = sum(slot["memory_mib"] for slot in here)
        inside = milli <= 1000 and memory <= gpu["memory_mib"]
        must(inside, "I4", f"{gpu['uuid']} of {node} carries {milli} milli, {memory} MiB")
        alone = len(here) == 1 or not any(slot["exclusive"] for slot in here)
        must(alone, "I4", f"{gpu['uuid']} of {node} is exclusive and shared")

    def _StopOrdered(self, _: str, data: Json, __: Event) -> None:
        live = self.live.get(data["run_id"])
        must(live is not None and live["attempt"] == data["attempt"], "I4", "a stop of nothing")

    def _AttemptEnded(self, _: str, data: Json, own: Event) -> None:
        live = self.live.pop(data["run_id"], None)
        self._may_end(live, own)
        must(live is not None and live["attempt"] == data["attempt"], "I4", "an end of nothing")
        self.waiting[data["run_id"]] = ()

    def _Released(self, _: str, data: Json, own: Event) -> None:
        run = data["run_id"]
        must(run not in self.released, "I2", f"{run} is released twice")
        live = self.live.pop(run, None)
        attempt = 0 if live is None else live["attempt"]
        must(data["attempt"] == attempt, "I4", f"{run} ends attempt {data['attempt']}")
        self._may_end(live, own)
        self.waiting.pop(run, None)
        self.released[run] = data["outcome"]

    def _may_end(self, live: Json | None, own: Event) -> None:
        """A slot is free only by its node's word under its fence, or when the node is fenced."""
        if live is None:
            return
        cause, node = own.cause, live["node"]
        match cause.name:
            case "TaskFinished" | "OrderRefused":
                right = cause.data["fence"] == live["fence"] and cause.party == node
            case "NodeJoined":
                right = cause.id == node and cause.data["boot_id"] != live["boot"]
            case "timer":
                kind = cause.id.split("/")[0]
                right = kind == "reboot" or (kind == "loss" and node in self.lost)
            case _:
                right = False
        must(right, "I4", f"{own.position} frees the slot of {live['fence']} by {cause}")


FORGER = "mallory"
"""The party of a node that is none."""
METERS = {"TokensUsed": "tokens", "GpuUsed": "gpu", "CpuUsed": "cpu"}
BUCKET_MS = 900_000


def record_key(meter: str, node: str, data: Json) -> tuple[Any, ...]:
    """What makes a usage record one record."""
    run, attempt = data["run_id"], data["attempt"]
    return (run, attempt, node, meter, data["epoch"], data["number"])


def record_at_ms(data: Json) -> int:
    """The time in a UUIDv7."""
    return int(data["record_id"].replace("-", "")[:12], 16)


def quantities(record: Json) -> dict[str, int]:
    """Amounts of an accepted record by sku: tokens, or milli x milliseconds."""
    if record["meter"] == "tokens":
        classes = record["classes"].items()
        return {f"tokens:{record['model']}:{name}": amount for name, amount in classes if amount}
    sku = "cpu" if record["meter"] == "cpu" else f"gpu:{record['model']}"
    return {sku: record["milli"] * record["duration_ms"]}


class UsageBook:
    """METERING: each record once, and sums that are sums."""

    def __init__(self) -> None:
        self.records: dict[tuple[Any, ...], Json] = {}
        self.used: dict[str, int] = defaultdict(int)
        self.buckets: dict[tuple[Any, ...], int] = defaultdict(int)
        self.final: set[str] = set()

    def apply(self, own: Event) -> None:
        """Fold one event."""
        if own.name == "UsageQuarantined":
            forged = own.cause.party == FORGER
            must(forged, "I5", f"an honest record is quarantined: {own.data['reason']}")
        elif own.name == "UsageSettled":
            self._settled(own.data, own.cause)

    def _settled(self, data: Json, cause: Cause) -> None:
        run = data["run_id"]
        for record in data["records"]:
            self._record(run, record, cause)
        for total in data["totals"]:
            where = (run, total["meter"], total["model"], total["bucket_start_ms"])
            right = total["used"] == self.buckets[where]
            must(right, "I5", f"total {total} of {run}, the records say {self.buckets[where]}")
        right = data["used_tokens"] == self.used[run]
        must(right, "I5", f"{run} used {data['used_tokens']}, the records say {self.used[run]}")
        must(data["final"] or run not in self.final, "I5", f"{run} was final and is not")
        if data["final"]:
            self.final.add(run)

    def _record(self, run: str, record: Json, cause: Cause) -> None:
        key = record_key(record["meter"], record["node"], record | {"run_id": run})
        must(key not in self.records, "I5", f"{key} is accepted twice")
        name, said = cause.name, cause.data
        same = METERS[name] == record["meter"] and said["record_id"] == record["record_id"]
        must(same, "I5", f"{key} is not what {name} said")
        self.records[key] = record
        amount = sum(quantities(record).values())
        if record["meter"] == "tokens":
            must(record["classes"] == said["classes"], "I5", f"{key} changed")
            self.used[run] += amount
        at_ms = record["at_ms"]
        bucket = at_ms - at_ms % BUCKET_MS
        self.buckets[run, record["meter"], record["model"], bucket] += amount


class MoneyBook:
    """BILLING: I5."""

    def __init__(self) -> None:
        self.prices: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self.totals: dict[str, int] = defaultdict(int)
        self.charged: list[tuple[Json, int]] = []
        """Every record charged, with what was charged for it."""

    def apply(self, own: Event) -> None:
        """Fold one event."""
        fact = own.data.get("fact", {})
        if fact.get("kind") == "price":
            version = int(fact["version"].split("#")[1])
            price = (fact["effective_at_ms"], version, fact["tiers"][0]["price_micro_usd"])
            self.prices[fact["sku"]].append(price)
        elif own.name == "Charged":
            self._charged(own.data, own.cause.data)

    def _charged(self, data: Json, settled: Json) -> None:
        run = data["run_id"]
        must(data["final"] == settled["final"], "I5", f"final of {run} is not metering's")
        records = {record["record_id"]: record for record in settled["records"]}
        for record in records.values():
            mine = [one for one in data["lines"] if one["record_id"] == record["record_id"]]
            amount = sum(one["amount_pico_usd"] for one in mine)
            right = amount == self.cost(record)
            must(right, "I5", f"{record['record_id']} costs {self.cost(record)}, charged {amount}")
            self.charged.append((record, amount))
        must({one["record_id"] for one in data["lines"]} <= set(records), "I5", "a line of nothing")
        self.totals[run] += sum(one["amount_pico_usd"] for one in data["lines"])
        right = data["total_pico_usd"] == self.totals[run]
        must(right, "I5", f"{run} costs {self.totals[run]}, said {data['total_pico_usd']}")

    def cost(self, record: Json) -> int:
        """The record by the prices known now, each in force at the record's own time."""
        total = 0
        for sku, amount in quantities(record).items():
            price = self._price(sku, record["at_ms"])
            if record["meter"] == "tokens":
                total += amount * price
            else:
                total += _half_even(amount * price, 3600)
        return total

    def _price(self, sku: str, at_ms: int) -> int:
        for one in (sku, sku.rpartition(":")[0] + ":*"):
            valid = [price for price in self.prices.get(one, ()) if price[0] <= at_ms]
            if valid:
                return max(valid)[2]
        return 0


def _half_even(number: int, divisor: int) -> int:
    whole, rest = divmod(number, divisor)
    return whole + (rest * 2 > divisor or (rest * 2 == divisor and whole % 2 == 1))
