"""The arithmetic of quota: what is asked, whether it fits, and what holding and using change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.spec import TaskSpec
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Hold, Period

TASKS = "tasks"
TOKENS = "tokens"
CPU_MILLI = "cpu_milli"
MEMORY_MIB = "memory_mib"
GPU_MILLI = "gpu_milli"
GPU_MEMORY_MIB = "gpu_memory_mib"
GPU_TYPE_PREFIX = "gpu_milli:"

Asked = tuple[tuple[str, int], ...]
"""A request: ``(dimension, amount)`` by dimension, amounts positive. Equal requests are equal."""


@dataclass(frozen=True, slots=True)
class Balance:
    """One dimension of an account. ``limit`` None: nobody limits it."""

    limit: int | None = None
    held: int = 0
    committed: int = 0

    @property
    def ceiling(self) -> int:
        """The limit, or the largest amount that an answer can carry."""
        return MAX_AMOUNT if self.limit is None else self.limit

    @property
    def free(self) -> int:
        """What may still be held now."""
        return max(0, self.ceiling - self.committed - self.held)

    @property
    def reachable(self) -> int:
        """What could be held if all holds were given back unused."""
        return max(0, self.ceiling - self.committed)


Balances = Table[str, Balance]
"""The balances of one account by dimension; a dimension that is absent is free and unlimited."""

UNTOUCHED = Balance()


def period_of(dimension: str) -> Period:
    """The one period over which this dimension counts: total for tokens, else concurrent."""
    return Period.TOTAL if dimension == TOKENS else Period.CONCURRENT


def asked_of(spec: TaskSpec) -> Asked:
    """What the task asks for. Nothing is held of a dimension that it does not use."""
    amounts = {
        TASKS: 1,
        CPU_MILLI: spec.cpu_milli,
        MEMORY_MIB: spec.memory_mib,
        TOKENS: spec.token_quota or 0,
    }
    if spec.gpu is not None:
        amounts[GPU_MILLI] = spec.gpu.gpu_milli
        amounts[GPU_TYPE_PREFIX + spec.gpu.type] = spec.gpu.gpu_milli
        amounts[GPU_MEMORY_MIB] = spec.gpu.count * (spec.gpu.memory_mib or 0)
    return tuple(sorted((dimension, amount) for dimension, amount in amounts.items() if amount))


def concurrent(asked: Asked) -> Asked:
    """The part that is given back when the task ends."""
    return tuple(one for one in asked if one[0] != TOKENS)


def tokens_in(asked: Asked) -> int:
    """The tokens of a request, 0 if it has none."""
    return next((amount for dimension, amount in asked if dimension == TOKENS), 0)


def fits(balances: Balances, asked: Asked) -> bool:
    """Whether every amount may be held now."""
    return all(amount <= balances.get(name, UNTOUCHED).free for name, amount in asked)


def short(balances: Balances, asked: Asked) -> Asked:
    """The amounts that may not be held now."""
    return tuple(one for one in asked if one[1] > balances.get(one[0], UNTOUCHED).free)


def never_fitting(balances: Balances, asked: Asked) -> Asked:
    """The amounts that may not be held even once every hold is given back."""
    return tuple(one for one in asked if one[1] > balances.get(one[0], UNTOUCHED).reachable)


def hold(balances: Balances, asked: Asked) -> Balances:
    """Hold a request."""
    return _move_held(balances, asked)


def release(balances: Balances, amounts: Asked) -> Balances:
    """Give held amounts back."""
    return _move_held(balances, tuple((name, -amount) for name, amount in amounts))


def _move_held(balances: Balances, changes: Asked) -> Balances:
    changed = balances.mutate()
    for name, change in changes:
        balance = changed.get(name, UNTOUCHED)
        assert balance.held + change >= 0, f"{name}: more given back than held"
        changed[name] = replace(balance, held=balance.held + change)
    return changed.finish()


def settle(balances: Balances, used: int, was_held: int, still_held: int) -> Balances:
    """Commit ``used`` more tokens; the run's token hold shrinks from one amount to the other."""
    tokens = balances.get(TOKENS, UNTOUCHED)
    return balances.set(
        TOKENS,
        replace(
            tokens,
            held=tokens.held - was_held + still_held,
            committed=tokens.committed + used,
        ),
    )


def limit(balances: Balances, dimension: str, amount: int | None) -> Balances:
    """Set a limit; what is held and used stays."""
    return balances.set(dimension, replace(balances.get(dimension, UNTOUCHED), limit=amount))


def as_holds(account: str, asked: Asked) -> tuple[Hold, ...]:
    """Write amounts as events carry them."""
    return tuple(
        Hold(account=account, dimension=name, period=period_of(name), amount=amount)
        for name, amount in asked
    )


def from_holds(holds: Iterable[Hold]) -> Asked:
    """Read what as_holds wrote."""
    return tuple((one.dimension, one.amount) for one in holds)


NO_BALANCES: Map[str, Balance] = Map()
