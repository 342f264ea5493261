"""Reasons with numbers: what was asked, what is free, what the limit is, what to do."""

from __future__ import annotations

from collections.abc import Callable

from orca_schemas.values import MAX_REASON_CHARS, Reason, ReasonCode

from orca_admission import ledger
from orca_admission.ledger import UNTOUCHED, Asked, Balance, Balances

_CODES = {
    ledger.TASKS: ReasonCode.QUOTA_TASKS,
    ledger.TOKENS: ReasonCode.QUOTA_TOKENS,
    ledger.CPU_MILLI: ReasonCode.QUOTA_CPU,
    ledger.MEMORY_MIB: ReasonCode.QUOTA_MEMORY,
    ledger.GPU_MILLI: ReasonCode.QUOTA_GPU,
    ledger.GPU_MEMORY_MIB: ReasonCode.QUOTA_GPU,
}
_FIELDS = {
    ledger.TOKENS: "spec.resources.tokenQuota",
    ledger.CPU_MILLI: "spec.resources.cpu",
    ledger.MEMORY_MIB: "spec.resources.memory",
    ledger.GPU_MILLI: "spec.resources.gpu.count",
    ledger.GPU_MEMORY_MIB: "spec.resources.gpu.memoryLimit",
}

_Say = Callable[[str, str, Balance, int], str]


def reason(code: ReasonCode, message: str, field: str | None = None) -> Reason:
    """A reason without numbers; a message that is too long is cut."""
    return Reason(code=code, message=message[:MAX_REASON_CHARS], field=field)


def blockers(account: str, balances: Balances, asked: Asked) -> tuple[Reason, ...]:
    """Every amount that does not fit now."""
    return tuple(
        _shortage(account, name, balances.get(name, UNTOUCHED), amount, _waits)
        for name, amount in ledger.short(balances, asked)
    )


def never_fits(account: str, balances: Balances, asked: Asked) -> tuple[Reason, ...]:
    """Every amount that the limits in force rule out, whoever ends before."""
    return tuple(
        _shortage(account, name, balances.get(name, UNTOUCHED), amount, _impossible)
        for name, amount in ledger.never_fitting(balances, asked)
    )


def _waits(account: str, dimension: str, balance: Balance, asked: int) -> str:
    return (
        f"asks {asked} {dimension}; {balance.free} of {balance.ceiling} are free in {account} "
        f"({balance.held} held, {balance.committed} used)"
    )


def _impossible(account: str, dimension: str, balance: Balance, asked: int) -> str:
    return (
        f"asks {asked} {dimension}; {account} can have at most {balance.reachable} "
        f"(limit {balance.ceiling}, {balance.committed} used); "
        "ask for less or have the limit raised"
    )


def _shortage(account: str, dimension: str, balance: Balance, asked: int, say: _Say) -> Reason:
    kind = dimension.partition(":")[0]
    return Reason(
        code=_CODES[kind],
        message=say(account, dimension, balance, asked),
        field="spec.resources.gpu.type" if kind != dimension else _FIELDS.get(kind),
        account=account,
        dimension=dimension,
        asked=asked,
        available=balance.free,
        limit=balance.limit,
    )
