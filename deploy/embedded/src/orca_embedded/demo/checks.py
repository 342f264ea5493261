"""Whether what the demo promises really happened: one check per promise."""

from __future__ import annotations

from dataclasses import dataclass

from orca_schemas.values import Outcome, ReasonCode

from orca_embedded.demo.bill import Bill
from orca_embedded.demo.play import Play, Played
from orca_embedded.demo.story import FIRST


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, whether it was kept, and what was seen."""

    what: str
    ok: bool
    seen: str


def checks(play: Play, bill: Bill) -> list[Check]:
    """Every promise."""
    return [
        _refused(play),
        *(_ended(task) for task in play.tasks if task.part is not FIRST),
        *(_waited(task) for task in play.tasks if task.part.waits is not None),
        Check(
            "the bill equals ClickHouse's to the last digit",
            bill.equal,
            f"{sum(line.equal for line in bill.lines)} of {len(bill.lines)} lines equal",
        ),
    ]


def _name(task: Played) -> str:
    return f"{task.part.team}/{task.part.name}"


def _refused(play: Play) -> Check:
    task = next(task for task in play.tasks if task.part is FIRST)
    codes = [reason.code for reason in task.view.reasons]
    idle = play.idle_gpus == play.all_gpus > 0
    ok = task.view.state == FIRST.outcome and codes == [ReasonCode.QUOTA_TOKENS] and idle
    seen = f"{', '.join(codes)}; {play.idle_gpus} of {play.all_gpus} GPUs idle"
    return Check(f"{_name(task)} is refused for tokens, GPUs idle", ok, seen)


def _ended(task: Played) -> Check:
    wanted = task.part.outcome
    used = task.view.used_tokens >= task.part.token_quota
    ok = task.view.state == wanted and used == (wanted == Outcome.QUOTA_EXHAUSTED)
    seen = f"{task.view.state} after {task.view.used_tokens:,} tokens"
    return Check(f"{_name(task)} ends {wanted}", ok, seen)


def _waited(task: Played) -> Check:
    assert task.part.waits is not None
    event, code = task.part.waits
    names = [one.event for one in task.events]
    data = task.first(event) or {}
    codes = [reason["code"] for reason in data.get("blockers") or data.get("reasons") or []]
    ran = event in names and "TaskStarted" in names
    started_ms = next((e.time_ms for e in task.events if e.event == "TaskStarted"), 0)
    waited_ms = next((e.time_ms for e in task.events if e.event == event), started_ms)
    ok = ran and code in codes and waited_ms < started_ms
    seen = f"{event}, began {started_ms - waited_ms} ms later"
    return Check(f"{_name(task)} waits: {code}, runs later", ok, seen)
