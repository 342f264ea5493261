"""The last screen: what happened, and a bill that a person can check by hand."""

from __future__ import annotations

from typing import Any

from orca_client.cli.words import duration
from orca_client.money import micro_usd, usd
from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from orca_embedded.demo.bill import COST_SQL, Bill, Line
from orca_embedded.demo.checks import Check
from orca_embedded.demo.play import Play, Played
from orca_embedded.demo.story import PRICES, QUOTAS

WIDTH = 108
CODE_STYLES = {"succeeded": "green", "quota_exhausted": "yellow", "refused": "red"}
DEFAULTS = (
    "Development defaults in use: broker open on 127.0.0.1, single user, no authentication · "
    "process executor: plain processes, image ignored, no isolation · "
    "simulated GPUs: 2 x A100, 2 x H100, none is real · the programs replay token counts of a "
    "public trace (Azure LLM inference 2023, CC BY 4.0) and run no model"
)
WRAPPED = ("how, and why", "seen", "promise")
SOURCES = (
    "used: tokens as the programs counted them in their own output; the nodes' times from "
    "TaskStarted to TaskFinished x the share asked for. By hand: ms / 3,600,000 x price an hour, "
    "tokens / 1,000,000 x price; nothing is rounded."
)
UNITS = {"gpu": "GPU-hour", "cpu": "core-hour", "tokens": "M tokens"}


def render(play: Play, bill: Bill, found: list[Check], took: dict[str, float]) -> Group:
    """The whole screen."""
    ok = all(check.ok for check in found)
    return Group(
        Rule(Text("Orca: one scheduler for GPUs and tokens", "bold")),
        _tasks(play),
        Text(),
        _bill(bill),
        Text(SOURCES, "dim"),
        Text.assemble(("asked of ClickHouse: ", "dim"), (COST_SQL, "cyan")),
        Text(),
        _checks(found),
        Panel(Text(DEFAULTS, "dim"), border_style="yellow", padding=(0, 1)),
        _verdict(ok, took),
    )


def _new_table(title: str, *columns: tuple[str, str]) -> Table:
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False,
        header_style="dim", padding=(0, 2, 0, 0),
    )  # fmt: skip
    for name, justify in columns:
        made.add_column(name, justify=justify, no_wrap=name not in WRAPPED)  # type: ignore[arg-type]
    return made


def _tasks(play: Play) -> Table:
    made = _new_table(
        "What happened", ("team", "left"), ("task", "left"), ("asked: GPUs, tokens", "left"),
        ("ended", "left"), ("used", "right"), ("how, and why", "left"),
    )  # fmt: skip
    for task in play.tasks:
        state = task.view.state
        made.add_row(
            task.part.team,
            task.part.name,
            task.part.asks(),
            Text(state, CODE_STYLES.get(state, "red")),
            f"{task.view.used_tokens:,}",
            how(task, play),
        )
    return made


def how(task: Played, play: Play) -> str:
    """What happened to a task, in words, with the reason that Orca gave."""
    if task.view.state == "refused":
        reason = task.view.reasons[0]
        return f"limit {reason.limit:,}; {play.idle_gpus} of {play.all_gpus} GPUs idle"
    waited = f"{_waiting(task)}, " if task.part.waits else ""
    stop = task.first("TaskStopRequested")
    why = f"; {stop['message'].partition(' (')[0]}" if stop else ""
    return f"{waited}{task.view.node}{why}"


def _waiting(task: Played) -> str:
    assert task.part.waits is not None
    event, code = task.part.waits
    began_ms = next(one.time_ms for one in task.events if one.event == event)
    started_ms = next(one.time_ms for one in task.events if one.event == "TaskStarted")
    word = "queued" if event == "TaskQueued" else "deferred"
    return f"{word} {duration(started_ms - began_ms)}: {code}"


def _bill(bill: Bill) -> Table:
    digits = max(decimals(one) for one in (bill.total_pico_usd, *_amounts(bill)))
    made = _new_table(
        "The bill: used x price by plain arithmetic, and what ClickHouse has",
        ("team", "left"), ("what", "left"), ("used", "right"), ("price", "right"),
        ("used x price", "right"), ("ClickHouse", "right"), ("", "left"),
    )  # fmt: skip
    for team in QUOTAS:
        for line in (line for line in bill.lines if line.team == team):
            made.add_row(*_cells(line, digits))
        made.add_row(*_total(team, bill.team(team), digits), end_section=True)
    totals = bill.total_pico_usd, bill.found_total_pico_usd
    made.add_row(*_total("all", totals, digits))
    return made


def _total(whose: str, totals: tuple[int, int], digits: int) -> list[Text]:
    computed, found = totals
    words = (whose, "total", "", "", money(computed, digits), money(found, digits))
    return [*(Text(word, "bold") for word in words), _mark(computed == found)]


def _amounts(bill: Bill) -> list[int]:
    return [amount for line in bill.lines for amount in (line.pico_usd, line.found_pico_usd)]


def decimals(pico_usd: int) -> int:
    """How many decimals of a dollar an amount needs, at least two."""
    return len(usd(pico_usd).partition(".")[2])


def money(pico_usd: int, digits: int) -> str:
    """Dollars with ``digits`` decimals: zeros are added, nothing is cut."""
    return usd(pico_usd) + "0" * (digits - decimals(pico_usd))


def _cells(line: Line, digits: int) -> tuple[Any, ...]:
    kind = line.sku.partition(":")[0]
    return (
        line.team,
        line.sku.removeprefix("tokens:"),
        used_words(line),
        f"{micro_usd(line.price_micro_usd)} / {UNITS[kind]}",
        money(line.pico_usd, digits),
        money(line.found_pico_usd, digits),
        _mark(line.equal),
    )


def used_words(line: Line) -> str:
    """A quantity in tokens, GPU ms or core ms, with every digit."""
    if line.sku.startswith("tokens:"):
        return f"{line.quantity:,} tokens"
    whole, rest = divmod(line.quantity, 1000)
    decimals = f".{rest:03d}".rstrip("0") if rest else ""
    return f"{whole:,}{decimals} {'core' if line.sku == 'cpu' else 'GPU'} ms"


def _mark(ok: bool) -> Text:
    return Text("✓", "bold green") if ok else Text("✗", "bold red")


def _checks(found: list[Check]) -> Table:
    made = _new_table("Checked", ("", "left"), ("promise", "left"), ("seen", "left"))
    for check in found:
        made.add_row(_mark(check.ok), check.what, check.seen)
    return made


def _verdict(ok: bool, took: dict[str, float]) -> Text:
    times = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items())
    word = ("everything as promised", "bold green") if ok else ("not as promised", "bold red")
    return Text.assemble(word, f" · {times}")


def as_json(play: Play, bill: Bill, found: list[Check], took: dict[str, float]) -> dict[str, Any]:
    """The same as one JSON object; money as exact decimal text."""
    return {
        "ok": all(check.ok for check in found),
        "seconds": {what: round(seconds, 3) for what, seconds in took.items()},
        "idle_gpus_at_refusal": play.idle_gpus,
        "tasks": [_task_json(task, play) for task in play.tasks],
        "prices_usd": PRICES,
        "bill": [_line_json(line) for line in bill.lines],
        "total_usd": usd(bill.total_pico_usd).lstrip("$"),
        "clickhouse_total_usd": usd(bill.found_total_pico_usd).lstrip("$"),
        "sql": COST_SQL,
        "checks": [{"what": c.what, "ok": c.ok, "seen": c.seen} for c in found],
        "development_defaults": DEFAULTS,
    }


def _task_json(task: Played, play: Play) -> dict[str, Any]:
    return {
        "id": str(task.view.task_id), "team": task.part.team, "name": task.part.name,
        "asked": task.part.asks(), "state": task.view.state, "node": task.view.node,
        "used_tokens": task.view.used_tokens, "how": how(task, play),
    }  # fmt: skip


def _line_json(line: Line) -> dict[str, Any]:
    return {
        "team": line.team, "sku": line.sku, "quantity": line.quantity,
        "price_usd": micro_usd(line.price_micro_usd).lstrip("$"),
        "usd": usd(line.pico_usd).lstrip("$"),
        "clickhouse_quantity": line.found_quantity,
        "clickhouse_usd": usd(line.found_pico_usd).lstrip("$"), "equal": line.equal,
    }  # fmt: skip


def show(made: Group) -> None:
    """Print the screen: as wide as it needs, whatever the window."""
    console = Console(highlight=False)
    if not console.is_terminal or console.width < WIDTH:
        console = Console(highlight=False, width=WIDTH)
    console.print(made)
