"""The invariants, as a small obvious fold of the log's bytes: no code of the services is used."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orca_runtime.log import Stored
from orca_schemas.subjects import Stream

Key = tuple[str, str]


def event_of(stored: Stored) -> tuple[str, dict[str, Any]]:
    """An event's name and data."""
    return stored.subject.rsplit(".", 1)[1], json.loads(stored.body)["data"]


@dataclass
class Ledger:
    """Quota as ADMISSION tells it."""

    limits: dict[Key, int | None] = field(default_factory=dict)
    committed: Counter[Key] = field(default_factory=Counter)
    held: dict[str, Counter[Key]] = field(default_factory=dict)
    quota: dict[str, int] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    released: Counter[tuple[str, str]] = field(default_factory=Counter)

    def fold(self, name: str, data: dict[str, Any]) -> None:
        """Take one event in; asserts I1 and I2."""
        run = data.get("run_id", "")
        if name == "Noted" and data["fact"]["kind"] == "limit":
            fact = data["fact"]
            self.limits[fact["account"], fact["dimension"]] = fact["limit"]
        elif name == "QuotaReserved":
            assert run not in self.held, f"{run} is reserved twice"
            self.held[run] = Counter(
                {(hold["account"], hold["dimension"]): hold["amount"] for hold in data["held"]}
            )
            self._within_limits(self.held[run])
        elif name == "QuotaSettled":
            self._settle(run, data["used_tokens"])
        elif name == "QuotaReleased":
            self._release(run, data)

    def _within_limits(self, asked: Mapping[Key, int]) -> None:
        for key, amount in asked.items():
            limit = self.limits.get(key)
            if limit is not None and amount:
                taken = self.total_held(key) + self.committed[key]
                assert taken <= limit, f"I1: {key} takes {taken} of {limit}"

    def total_held(self, key: Key) -> int:
        """What all runs hold of one dimension."""
        return sum(holds[key] for holds in self.held.values())

    def _settle(self, run: str, used: int) -> None:
        """Tokens used move from what is held to what is committed."""
        delta, self.used[run] = used - self.used[run], used
        assert delta >= 0, f"{run} used less than before"
        key = (next(iter(self.held[run]))[0], "tokens")
        self.committed[key] += delta
        self.held[run][key] -= min(self.held[run][key], delta)

    def _release(self, run: str, data: dict[str, Any]) -> None:
        self.released[run, data["part"]] += 1
        assert self.released[run, data["part"]] == 1, f"I2: {run} {data['part']} released twice"
        for hold in data["amounts"]:
            key = (hold["account"], hold["dimension"])
            assert self.held[run][key] == hold["amount"], (
                f"I2: {run} gives back what it lacks: {key}"
            )
            self.held[run][key] = 0

    def leaks(self) -> dict[str, Counter[Key]]:
        """Runs that still hold something."""
        return {run: +holds for run, holds in self.held.items() if +holds}


def check_ledger(stored: Sequence[Stored]) -> Ledger:
    """Fold ADMISSION, asserting I1 and I2 at every event."""
    ledger = Ledger()
    for one in stored:
        ledger.fold(*event_of(one))
    return ledger


def check_slots(stored: Sequence[Stored]) -> None:
    """Fold PLACEMENT, asserting I4: no two live slots overlap, one live attempt a run."""
    memory = _gpu_memory(stored)
    live: dict[str, list[dict[str, Any]]] = {}
    for one in stored:
        name, data = event_of(one)
        if name == "Placed":
            assert data["run_id"] not in live, f"I4: two live attempts of {data['run_id']}"
            live[data["run_id"]] = data["slots"]
            _no_overlap(live, memory)
        elif name in ("AttemptEnded", "Released"):
            live.pop(data["run_id"], None)


def _gpu_memory(stored: Sequence[Stored]) -> dict[str, int]:
    found = {}
    for one in stored:
        name, data = event_of(one)
        if name in ("NodeAdmitted", "NodeUpdated"):
            found |= {gpu["uuid"]: gpu["memory_mib"] for gpu in data["inventory"]["gpus"]}
    return found


def _no_overlap(live: Mapping[str, list[dict[str, Any]]], memory: Mapping[str, int]) -> None:
    by_gpu: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for slots in live.values():
        for slot in slots:
            by_gpu[slot["gpu_uuid"]].append(slot)
    for gpu, slots in by_gpu.items():
        assert sum(slot["gpu_milli"] for slot in slots) <= 1000, f"I4: {gpu} is over-filled"
        assert sum(slot["memory_mib"] for slot in slots) <= memory[gpu], f"I4: memory of {gpu}"
        assert len(slots) == 1 or not any(slot["exclusive"] for slot in slots), f"I4: {gpu}"


@dataclass
class Totals:
    """What was used and charged, from unique records."""

    tokens: Counter[str] = field(default_factory=Counter)
    gpu_milli_ms: Counter[str] = field(default_factory=Counter)
    cpu_milli_ms: Counter[str] = field(default_factory=Counter)
    pico_usd: Counter[str] = field(default_factory=Counter)


def usage_totals(stored: Sequence[Stored]) -> Totals:
    """Fold USAGE by namespace; a record sent twice counts once."""
    totals, seen = Totals(), set()
    for one in stored:
        name, data = event_of(one)
        namespace = one.subject.split(".")[1]
        if data["record_id"] in seen:
            continue
        seen.add(data["record_id"])
        if name == "TokensUsed":
            totals.tokens[namespace] += sum(data["classes"].values())
        elif name == "GpuUsed":
            totals.gpu_milli_ms[namespace] += data["gpu_milli"] * data["duration_ms"]
        else:
            totals.cpu_milli_ms[namespace] += data["cpu_milli"] * data["duration_ms"]
    return totals


def charged_totals(stored: Sequence[Stored]) -> Totals:
    """Fold BILLING by namespace; each record's sku is charged once."""
    totals, seen = Totals(), set()
    for one in stored:
        name, data = event_of(one)
        namespace = one.subject.split(".")[1]
        for line in data["lines"] if name == "Charged" else ():
            key = (line["record_id"], line["sku"])
            assert key not in seen, f"I5: {key} is charged twice"
            seen.add(key)
            totals.pico_usd[namespace] += line["amount_pico_usd"]
            sums = {
                "tokens": totals.tokens, "gpu": totals.gpu_milli_ms, "cpu": totals.cpu_milli_ms,
            }[line["meter"]]  # fmt: skip
            sums[namespace] += line["quantity"]
    return totals


def check_log(events: Mapping[str, Sequence[Stored]]) -> Ledger:
    """I1, I2, I4 and I5 over a whole log, and nothing dead-lettered."""
    ledger = check_ledger(events[Stream.ADMISSION])
    check_slots(events[Stream.PLACEMENT])
    used, charged = usage_totals(events[Stream.USAGE]), charged_totals(events[Stream.BILLING])
    assert used.tokens == charged.tokens, "I5: tokens used and charged differ"
    assert used.gpu_milli_ms == charged.gpu_milli_ms, "I5: GPU time used and charged differ"
    assert used.cpu_milli_ms == charged.cpu_milli_ms, "I5: CPU time used and charged differ"
    letters = [
        one.body
        for stream in events.values()
        for one in stream
        if "InputDeadLettered" in one.subject
    ]
    assert letters == []
    return ledger
