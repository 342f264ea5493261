"""Random lives of a cluster: after every event no slots overlap, and every run ends once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orca_placement.decider import DECIDER
from orca_placement.state import INITIAL, STATE_TYPE, Phase
from orca_runtime.tables import state_digest
from orca_schemas.manifest import OnNodeLoss, Priority
from orca_schemas.values import Outcome

GIB = 1024
NODES = ("n1", "n2", "n3")
TASKS = tuple(f"t{index}" for index in range(8))

numbers = st.integers(0, 2**16)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit"] * 5
            + ["finish", "fail"] * 3
            + ["node"] * 3
            + ["start", "stop", "refuse", "silent", "heard", "reboot", "resize", "timer", "wait"]
        ),
        numbers,
    ),
    max_size=60,
)


def _submit(world: Any, task: str, number: int, gpu_spec: Any) -> Any:
    gpu = (
        None,
        gpu_spec(1),
        gpu_spec(2),
        gpu_spec(1, 20 * GIB, 30),
        gpu_spec(2, 50 * GIB, 60),
        gpu_spec(3),
        gpu_spec(9),
    )[number % 7]
    return world.submit(
        task,
        gpu=gpu,
        cpu_milli=(1000, 3000, 7000)[number % 3],
        backoff_limit=number % 2,
        on_node_loss=OnNodeLoss.REQUEUE if number % 5 < 2 else OnNodeLoss.WAIT,
        priority=list(Priority)[number % 4],
        active_deadline_ms=20_000 if number % 11 == 0 else None,
    )


def _step(world: Any, verb: str, number: int, gpu_spec: Any) -> Any:
    task, node = TASKS[number % len(TASKS)], NODES[number % len(NODES)]
    attempted = any(e.data.spec.name == task for e in world.scenario.log if _is_placed(e))
    gpus, boot = number % 4, 1 + number % 3
    match verb:
        case "submit":
            return _submit(world, task, number, gpu_spec)
        case "node" | "reboot" | "resize":
            known = world.state.nodes.get(node)
            cards = len(known.inventory.gpus) if known and verb == "reboot" else gpus
            return world.node(
                node, gpus=cards, boot=boot if verb == "reboot" else 1, cpu_milli=8000
            )
        case "silent" | "heard":
            return getattr(world, verb)(node)
        case "stop":
            return world.stop(task)
        case "wait":
            return world.later(number)
        case "timer":
            due = world.scenario.due()
            return world.fire(due[number % len(due)].kind) if due else world
        case "finish" if attempted:
            return world.finish(task)
        case "fail" if attempted:
            return world.finish(task, Outcome.FAILED)
        case "start" | "refuse" if attempted:
            return getattr(world, verb)(task)
    return world


def _is_placed(event: Any) -> bool:
    return bool(event.subject.event == "Placed")


def _check_history(log: Any, faults: Any) -> None:
    """Fold event by event: I4 holds after each, attempts alternate, and an end is the end."""
    state, live, ended = INITIAL, {}, Counter()
    for event in log:
        state = DECIDER.evolve(state, event)
        data, name = event.data, event.subject.event
        assert faults(state) == []
        run = getattr(data, "run_id", None)
        if name == "Placed":
            assert run not in live, "two live attempts of one run"
            assert run not in ended, "placed after its end"
            live[run] = data.attempt
        elif name in ("AttemptEnded", "Released"):
            assert live.pop(run, 0) == data.attempt
            if name == "Released":
                ended[run] += 1
        elif name == "Noted" and data.fact.kind == "forget":
            # The log never repeats a submission; these steps may, once a run is forgotten.
            del ended[data.fact.run_id]
    assert set(ended.values()) <= {1}, "more than one end"


def _check_state(state: Any) -> None:
    """The tables agree with each other, and every waiting run is in the queue once."""
    queued = Counter(ticket.run for group in state.waiting.values() for ticket in group)
    waiting = {key for key, run in state.runs.items() if run.phase is Phase.WAITING}
    assert queued == Counter(waiting)
    live = {key for key, run in state.runs.items() if run.attempt is not None}
    assert live == {key for node in state.nodes.values() for key in node.runs}
    assert all(state.waiting.values()), "an empty group"


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps)
def test_any_life_keeps_the_invariants(world: Any, gpu_spec: Any, faults: Any, steps: Any) -> None:
    """Submits, ends, stops, joins, losses, reboots and timers in any order."""
    for verb, number in steps:
        world = _step(world, verb, number, gpu_spec)
        assert len(world.events) <= 100
    _check_history(world.scenario.log, faults)
    _check_state(world.state)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps)
def test_nothing_waits_that_would_fit(world: Any, gpu_spec: Any, faults: Any, steps: Any) -> None:
    """The passes look at few nodes and few runs; yet a look at all of it finds nothing more."""
    from orca_placement.feasible import fits  # noqa: PLC0415
    from orca_placement.state import run_request  # noqa: PLC0415

    for verb, number in steps:
        world = _step(world, verb, number, gpu_spec)
    world = world.settle()
    for run in world.state.runs.values():
        if run.phase is Phase.WAITING:
            assert not any(fits(node, run_request(run)) for node in world.state.nodes.values())
            assert run.reasons


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps)
def test_a_replay_and_a_snapshot_are_the_live_state(
    world: Any, gpu_spec: Any, faults: Any, steps: Any
) -> None:
    """I3: fold from zero, read back from JSON, or live: one digest."""
    for verb, number in steps:
        world = _step(world, verb, number, gpu_spec)
    replayed = INITIAL
    for event in world.scenario.log:
        replayed = DECIDER.evolve(replayed, event)
    read_back = STATE_TYPE.validate_json(STATE_TYPE.dump_json(world.state))
    assert replayed == world.state
    assert state_digest(STATE_TYPE, read_back) == state_digest(STATE_TYPE, world.state)
    assert read_back == world.state


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps)
def test_timers_follow_what_is_said_to_touch_them(
    world: Any, gpu_spec: Any, faults: Any, steps: Any
) -> None:
    """Refreshing only the touched entities gives the timers of the whole state."""
    for verb, number in steps:
        world = _step(world, verb, number, gpu_spec)
    state, kept = INITIAL, {}
    for event in world.scenario.log:
        state = DECIDER.evolve(state, event)
        for entity in DECIDER.touched(event):
            kept[entity] = DECIDER.timers(state, entity)
        everything = {entity: DECIDER.timers(state, entity) for entity in DECIDER.entities(state)}
        assert {e: t for e, t in kept.items() if t} == {e: t for e, t in everything.items() if t}
