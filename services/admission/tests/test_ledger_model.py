"""The ledger against a model that is obvious: a list of tasks, added up anew each time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from orca_admission.decider import DECIDER
from orca_admission.ledger import fits
from orca_admission.state import STATE_TYPE, Phase
from orca_runtime.tables import state_digest
from orca_schemas.events.admission import QuotaReleased, QuotaReserved

TEAM = "team-alpha"
CPUS = {"1": 1000, "2": 2000}


@dataclass
class Task:
    """What the model knows of a task that was submitted."""

    cpu_milli: int
    tokens: int
    reserved: bool = False
    devices: bool = False
    open_tokens: bool = False
    used: int = 0

    @property
    def tokens_held(self) -> int:
        return max(0, self.tokens - self.used) if self.open_tokens else 0


def machine_of(world: Any) -> type[RuleBasedStateMachine]:
    class Ledger(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.world = world.quota("tokens", 1000).quota("cpu_milli", 4000)
            self.limits = {"tasks": 2, "tokens": 1000, "cpu_milli": 4000}
            self.tasks: dict[str, Task] = {}
            self.released: Counter[Any] = Counter()

        def _after(self, then: Any) -> None:
            """Take what was decided into the model, event by event, and check I1 at each."""
            self.world = then
            by_run = {then.run_id(name): task for name, task in self.tasks.items()}
            for event in then.said:
                if isinstance(event, QuotaReserved):
                    task = by_run[event.run_id]
                    assert not task.reserved
                    task.reserved = task.devices = task.open_tokens = True
                    self._within_limits(task)
                if isinstance(event, QuotaReleased):
                    self.released[event.run_id, event.part] += 1
                    assert self.released[event.run_id, event.part] == 1

        def _sums(self) -> dict[str, int]:
            live = [task for task in self.tasks.values() if task.devices]
            return {
                "tasks": len(live),
                "cpu_milli": sum(task.cpu_milli for task in live),
                "tokens": sum(task.tokens_held for task in self.tasks.values()),
            }

        def _within_limits(self, task: Task) -> None:
            sums = self._sums()
            sums["tokens"] += sum(one.used for one in self.tasks.values())
            asked = {"tasks": 1, "cpu_milli": task.cpu_milli, "tokens": task.tokens}
            for dimension, limit in self.limits.items():
                if asked[dimension] and limit is not None:
                    assert sums[dimension] <= limit, dimension

        def _pick(self, data: st.DataObject) -> str:
            return data.draw(st.sampled_from(sorted(self.tasks)))

        @rule(cpu=st.sampled_from(sorted(CPUS)), tokens=st.sampled_from([None, 1, 300, 1001]))
        def submit(self, cpu: str, tokens: int | None) -> None:
            name = f"t{len(self.tasks)}"
            wanted = {} if tokens is None else {"tokenQuota": tokens}
            self.tasks[name] = Task(CPUS[cpu], tokens or 0)
            self._after(self.world.submit(name, cpu=cpu, **wanted))

        @precondition(lambda self: self.tasks)
        @rule(data=st.data())
        def submit_again(self, data: st.DataObject) -> None:
            then = self.world.submit(self._pick(data))
            assert then.state == self.world.state
            self._after(then)

        @precondition(lambda self: self.tasks)
        @rule(data=st.data())
        def release(self, data: st.DataObject) -> None:
            name = self._pick(data)
            self.tasks[name].devices = False
            self._after(self.world.released(name))
            self._repeat_changes_nothing(self.world.released(name))

        @precondition(lambda self: self.tasks)
        @rule(data=st.data(), used=st.integers(0, 400), final=st.booleans())
        def settle(self, data: st.DataObject, used: int, final: bool) -> None:
            name = self._pick(data)
            task = self.tasks[name]
            if task.reserved:
                task.used = max(task.used, used)
                task.open_tokens = task.open_tokens and not final
            self._after(self.world.settled(name, used, final))
            # Whoever the release let in is another run: this one's repeat says nothing new.
            self._repeat_changes_nothing(self.world.settled(name, used, final))

        def _repeat_changes_nothing(self, again: Any) -> None:
            assert again.state == self.world.state

        @precondition(lambda self: self.tasks)
        @rule(data=st.data())
        def cancel(self, data: st.DataObject) -> None:
            self._after(self.world.cancel(self._pick(data)))

        @rule(
            dimension=st.sampled_from(["tasks", "tokens", "cpu_milli"]),
            limit=st.sampled_from([None, 0, 1, 3, 500, 1000, 4000]),
        )
        def set_limit(self, dimension: str, limit: int | None) -> None:
            self.limits[dimension] = limit
            self._after(self.world.quota(dimension, limit))

        @invariant()
        def the_holds_are_those_of_the_live_runs(self) -> None:
            for dimension, amount in self._sums().items():
                balance = self.world.state.account(TEAM).balances[dimension]
                assert balance.held == amount, dimension
            used = sum(task.used for task in self.tasks.values())
            assert self.world.committed("tokens") == used

        @invariant()
        def nobody_waits_who_fits(self) -> None:
            balances = self.world.state.account(TEAM).balances
            waiting = self.world.state.queue(TEAM)
            assert not [asked for asked in waiting.groups if fits(balances, asked)]
            queued = sum(len(group) for group in waiting.groups.values())
            runs = self.world.state.runs.values()
            assert queued == sum(run.phase is Phase.QUEUED for run in runs)

        def teardown(self) -> None:
            """The fold of the log from nothing, and the state read back, are the state."""
            folded = DECIDER.initial
            for event in self.world.log:
                folded = DECIDER.evolve(folded, event)
            assert folded == self.world.state
            read_back = STATE_TYPE.validate_json(STATE_TYPE.dump_json(folded))
            assert read_back == folded
            assert state_digest(STATE_TYPE, read_back) == state_digest(STATE_TYPE, folded)

    return Ledger


def test_the_ledger_keeps_its_invariants(world: Any) -> None:
    """I1 at every reservation; I2, and the sums, after every step; repeats change nothing."""
    run_state_machine_as_test(
        machine_of(world),
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )
