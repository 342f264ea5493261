"""``orca replay`` and ``orca explain`` on a real stack: what they tell equals what stands."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from orca_admission.app import SERVICE
from orca_admission.settings import Settings
from orca_client.connection import Connection
from orca_client.submit import cancel, submit
from orca_runtime.fold import unfolded
from orca_runtime.past import Moment, folds
from orca_runtime.service import snapshots_of
from orca_schemas.asks import Quotas
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, ended, eventually, make_namespace, manifest, set_prices
from test_main_job import PRICES, documented

TEAM = "team-alpha"
TOKENS = 1149
"""What the documented task uses."""


@pytest.fixture(scope="module")
def tasks(stack: RunningStack) -> tuple[uuid.UUID, uuid.UUID]:
    """The documented task, charged in full, and one that alice cancelled."""
    return asyncio.run(_run(stack))


async def _run(stack: RunningStack) -> tuple[uuid.UUID, uuid.UUID]:
    async with await Connection.open(stack.nats_url, "alice") as alice:
        await make_namespace(alice, TEAM, {"tokens": 1_000_000, "gpu_milli": 2000, "tasks": 5})
        await set_prices(alice, PRICES)
        done = (await submit(alice, documented())).task_id
        long = (await submit(alice, manifest("long", TEAM, ["sleep", "60"]))).task_id
        await asyncio.sleep(2)
        await cancel(alice, TEAM, long, "not needed")
        for task in (done, long):
            await ended(alice, task)
        await eventually("both are charged in full", lambda: _final_charges(stack, 2))
        await eventually("and projected", lambda: _same_sums(stack))
        return done, long


async def _final_charges(stack: RunningStack, wanted: int) -> bool:
    events = (await stack.events(Stream.BILLING))[Stream.BILLING]
    return sum(b'"final":true' in one.body for one in events) == wanted


async def _same_sums(stack: RunningStack) -> bool:
    events = (await stack.events(Stream.BILLING))[Stream.BILLING]
    lines = [line for one in events for line in json.loads(one.body)["data"].get("lines", ())]
    pico = sum(line["amount_pico_usd"] for line in lines)
    return _clickhouse_usd(stack) == Decimal(pico).scaleb(-12)


def _clickhouse_usd(stack: RunningStack) -> Decimal:
    query = f"SELECT sum(amount_usd) FROM charges FINAL WHERE namespace = '{TEAM}'"
    found = stack.sql(query)[0][0]
    assert isinstance(found, Decimal)
    return found


def orca_json(stack: RunningStack, *arguments: str) -> Any:
    """What a command answers."""
    done = stack.orca(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestReplay:
    """A fresh process reaches the state that the service has."""

    @pytest.mark.parametrize("service", ["admission", "placement", "metering", "billing"])
    def test_the_fold_from_zero_is_the_live_state(
        self, stack: RunningStack, tasks: object, service: str
    ) -> None:
        """Given a service that ran a while, then its digest is that of the fold of its log."""
        found = orca_json(stack, "replay", service, "--verify")
        live = {one["what"]: one for one in found["verdicts"]}
        assert live["live"]["same"], live
        assert found["sequence"] == found["events"] > 0

    async def test_a_snapshot_that_says_something_else_is_found_out(
        self, stack: RunningStack, tasks: object
    ) -> None:
        """Given a good snapshot, then verify says so; given one whose state is another, it exits
        1 and says where they parted."""
        path = await _write_snapshot(stack, 12)
        found = orca_json(stack, "replay", "admission", "--verify")
        assert [one["same"] for one in found["verdicts"]] == [True, True]
        assert orca_json(stack, "replay", "admission")["start"] == 12
        assert orca_json(stack, "replay", "admission", "--from-zero")["start"] == 0
        _harm(path)
        done = stack.orca("replay", "admission", "--verify")
        assert done.returncode == 1
        assert len(done.stdout.splitlines()) == 5
        assert "DIFFERS: parted at or before ADMISSION#12, and after ADMISSION#0" in done.stdout
        path.unlink()

    def test_what_cannot_be_replayed_is_one_line(self, stack: RunningStack, tasks: object) -> None:
        """Given a moment past the end, or a broker that is not there, then one line says it."""
        done = stack.orca("replay", "admission", "--until", "99999999")
        assert done.returncode == 2
        assert done.stderr.startswith("orca: moment: '99999999': ADMISSION ends at ")
        assert len(done.stderr.splitlines()) == 1


async def _write_snapshot(stack: RunningStack, sequence: int) -> Path:
    settings = Settings(data_dir=stack.home / "services" / "admission")
    async with stack.log() as log:
        folded, until = unfolded(SERVICE.decider), Moment(sequence=sequence)
        async for after, _, _ in folds(SERVICE.decider, log, folded, until):
            folded = after
        epoch = (await log.state(Stream.ADMISSION)).epoch
        return snapshots_of(SERVICE, log, settings).write(folded, epoch)


def _harm(path: Path) -> None:
    from hashlib import blake2b  # noqa: PLC0415

    head, _, state = path.read_bytes().partition(b"\n")
    changed = state.replace(b'"limit":1000000', b'"limit":1000001')
    assert changed != state
    digest = blake2b(changed, digest_size=16).hexdigest()
    path.write_bytes(json.dumps(json.loads(head) | {"digest": digest}).encode() + b"\n" + changed)


@pytest.fixture(scope="module")
def quota(stack: RunningStack, tasks: object) -> Any:
    """What is told of the team's balances, once all is done."""
    return orca_json(stack, "explain", "quota", TEAM)


class TestExplain:
    """Each number with the events that made it."""

    async def test_a_balance_is_the_sum_of_its_events(self, alice: Connection, quota: Any) -> None:
        """Given the balances that admission answers, then the events sum to each of them."""
        found = quota
        rows = {row.dimension: row for row in (await alice.ask(Quotas, "admission", "quota")).rows}
        assert found["balances"].keys() == rows.keys()
        for name, balance in found["balances"].items():
            assert balance["equal"]
            assert (balance["sum_held"], balance["sum_committed"], balance["limit"]) == (
                rows[name].held, rows[name].committed, rows[name].limit,
            )  # fmt: skip
        assert found["balances"]["tokens"]["committed"] == TOKENS

    def test_every_move_says_who_and_why(self, quota: Any) -> None:
        """Given the tokens of the task, then alice set the limit, and its use came from a probe."""
        told = {(one["event"], one["by"], one["why"]) for one in quota["moves"]}
        assert ("QuotaReserved", "alice (client)", "reserved for llm-inference-job-001") in told
        assert any(event == "Noted" and by == "alice (admin)" for event, by, _ in told)
        assert ("QuotaSettled", "node-1 (probe)", "1,149 tokens used by the run in all") in told

    def test_a_balance_of_an_earlier_moment_is_what_it_was(
        self, stack: RunningStack, quota: Any
    ) -> None:
        """Given the moment of the reservation, then the tokens were held and none was used."""
        reserved = next(one for one in quota["moves"] if one["event"] == "QuotaReserved")
        sequence = reserved["position"].rsplit("#", 1)[1]
        text = stack.orca("explain", "quota", TEAM, "--at", sequence, "--dimension", "tokens")
        assert "tokens +500,000" in text.stdout
        *_, sums = text.stdout.rstrip().splitlines()
        expected = ["tokens", "1,000,000", "2", "500,000", "500,000", "0", "0", "500,000", "equal"]
        assert sums.split() == expected

    def test_money_is_the_sum_of_its_records_and_what_clickhouse_sums(
        self, stack: RunningStack, tasks: object
    ) -> None:
        """Given every charge line of the month, then each is quantity x price of the version that
        alice set, they sum to the total, and ClickHouse sums to the same to the last digit."""
        month = datetime.now(UTC).strftime("%Y-%m")
        done = stack.orca("explain", "money", TEAM, "--period", month, "--json")
        *lines, sums = map(json.loads, done.stdout.splitlines())
        assert sums["adds_up"]
        assert sums["lines"] == len(lines) > 0
        assert sum(line["amount_pico_usd"] for line in lines) == sums["total_pico_usd"]
        assert Decimal(sums["total_usd"]) == _clickhouse_usd(stack)
        assert {group["set_by"] for group in sums["groups"] if group["price"]} == {"alice"}
        text = stack.orca("explain", "money", TEAM, "--period", month).stdout
        assert "TOTAL" in text
        assert f"${sums['total_usd']}" in text
        assert all(line["record_id"] in text for line in lines)

    def test_a_month_without_charges_says_so(self, stack: RunningStack, tasks: object) -> None:
        """Given a month long past, then nothing was charged in it."""
        done = stack.orca("explain", "money", TEAM, "--period", "2001-01")
        assert done.returncode == 0
        assert done.stdout == f"{TEAM} in 2001-01: nothing was charged\n"

    def test_a_task_tells_its_life_with_who_and_why(
        self, stack: RunningStack, tasks: tuple[uuid.UUID, uuid.UUID]
    ) -> None:
        """Given the cancelled task, found by how its id begins, then its events name alice, her
        reason, and the end that came of it."""
        _, long = tasks
        events = orca_json(stack, "explain", "task", str(long)[:8])
        assert events[0]["event"] == "TaskSubmitted"
        cancelled = next(one for one in events if one["event"] == "TaskCancelRequested")
        assert (cancelled["by"], cancelled["why"]) == ("alice (client)", "not needed")
        released = next(one for one in events if one["event"] == "Released")
        assert "cancelled" in released["why"]
        text = stack.orca("explain", "task", str(long)).stdout
        assert all(one["event"] in text for one in events)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("quota", "nobody"), "nothing was ever said of it by then"),
            (("money", TEAM, "--period", "2026-13"), "write a month such as 2026-11"),
            (("task", "00000000-0000-4000-8000-000000000001"), "no event is about it"),
        ],
        ids=["unknown account", "no month", "unknown task"],
    )
    def test_what_cannot_be_explained_is_one_line(
        self, stack: RunningStack, tasks: object, arguments: tuple[str, ...], words: str
    ) -> None:
        """Given a question about nothing, then one line names the field, the value, the remedy."""
        done = stack.orca("explain", *arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
