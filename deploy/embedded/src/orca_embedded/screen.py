"""What a person sees of the embedded stack."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from orca_embedded.access import CLIENT, FOLDER, OPERATOR, password_path
from orca_embedded.settings import ExecutorName, StackSettings


class Progress:
    """A line that says what is being started; plain lines where no terminal is."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._status: Status | None = None

    def step(self, text: str) -> None:
        """Say what happens now."""
        if not self._console.is_terminal:
            self._console.print(f"orca: {text}", highlight=False)
        elif self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def done(self) -> None:
        """Clear the line."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def show_ready(settings: StackSettings) -> None:
    """Say that the stack is ready, where, and what of it is for development only."""
    console = Console(file=sys.stderr, highlight=False)
    console.print("[bold green]orca is up[/]")
    table = Table.grid(padding=(0, 2))
    table.add_row("broker", settings.nats_url(), _broker_note(settings))
    table.add_row("clickhouse", settings.clickhouse_url(), "embedded engine, user default")
    table.add_row("executor", settings.executor.value, _executor_note(settings.executor))
    for node, gpus in settings.node_gpus().items():
        table.add_row(
            node, gpus or "the GPUs of this host", "simulated GPUs and host" if gpus else ""
        )
    table.add_row("data", str(settings.home()), "kept over restarts")
    console.print(table)
    if elsewhere := _elsewhere(settings):
        console.print(f"for orca and its clients: export {elsewhere}", soft_wrap=True)
    if settings.auth:
        for user, what in ((OPERATOR, "sets quotas and prices"), (CLIENT, "submits tasks")):
            path = password_path(settings.home(), user)
            console.print(
                f"{what}: export ORCA_NATS_USER={user} ORCA_NATS_PASSWORD=$(cat {path})",
                soft_wrap=True,
            )


def _elsewhere(settings: StackSettings) -> str:
    """What a client must be told because the stack does not listen where clients look."""
    fields = StackSettings.model_fields
    told = (
        ("nats_port", f"ORCA_NATS_URL={settings.nats_url()}"),
        ("clickhouse_port", f"ORCA_CLICKHOUSE_URL={settings.clickhouse_url()}"),
    )
    return " ".join(text for name, text in told if getattr(settings, name) != fields[name].default)


def _broker_note(settings: StackSettings) -> str:
    if settings.auth:
        return f"asks for a user; passwords are in {settings.home() / FOLDER}"
    return "open, single user on loopback"


def _executor_note(executor: ExecutorName) -> str:
    if executor is ExecutorName.PROCESS:
        return "development: plain processes, image ignored"
    return "containers"


def show_status(state: dict[str, Any]) -> None:
    """The processes of a running stack."""
    table = Table(title=f"orca: {state['phase']}", title_justify="left")
    for column in ("process", "pid", "restarts", "last exit", "log"):
        table.add_column(column, overflow="fold")
    for process in state["processes"]:
        exit_code = "" if process["last_exit"] is None else str(process["last_exit"])
        pid = str(process["pid"] or "[red]down[/]")
        table.add_row(process["name"], pid, str(process["restarts"]), exit_code, process["log"])
    Console().print(table)
