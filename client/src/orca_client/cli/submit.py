"""``orca submit``: check everything, send everything, follow it to the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from orca_schemas.errors import MalformedError
from orca_schemas.yaml_load import MAX_MANIFEST_BYTES, load_documents
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orca_client.cli import exits, screen, words
from orca_client.cli.context import settings_of, with_connection
from orca_client.connection import Connection
from orca_client.errors import UnavailableError
from orca_client.follow import ONE_BY_ONE, final_cost_of, follow
from orca_client.money import usd
from orca_client.submit import Submission, submission, submit, submit_many
from orca_client.view import SUBMITTED, TaskView

STDIN = "-"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "submit",
        help="Submit tasks from YAML or JSON files ('-': stdin) and follow them to their ends. "
        "Exit code: 0 all succeeded, 1 a task ended otherwise, 2 a manifest is wrong, "
        "3 refused, 69 nobody answers, 130 Ctrl-C (the tasks go on).",
    )(_submit)


def _submit(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Manifests, one or many documents each")],
    no_wait: bool = typer.Option(False, "--no-wait", help="Print the ids and return"),
) -> int:
    user = settings_of(context).user
    documents = read_all(files)
    for where, document in documents:
        _check(where, document, user)

    async def work(connection: Connection) -> int:
        sent = await _send(connection, [document for _, document in documents])
        if no_wait:
            for one in sent:
                screen.line(str(one.task_id))
            return exits.FINE
        return await watch(connection, sent)

    try:
        return with_connection(context, work)
    except KeyboardInterrupt:
        screen.note("interrupted; submitted tasks go on: orca get tasks, orca cancel ID")
        return exits.INTERRUPTED


def read_all(files: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Every document with where it stands. Raises MalformedError."""
    found = []
    for name in files:
        try:
            documents = load_documents(_read(name))
        except MalformedError as error:
            raise _LocatedError(name, error) from None
        many = len(documents) > 1
        found += [
            (f"{name} document {i}" if many else name, document)
            for i, document in enumerate(documents, start=1)
        ]
    return found


def _read(name: str) -> bytes:
    if name == STDIN:
        return sys.stdin.buffer.read(MAX_MANIFEST_BYTES + 1)
    try:
        with Path(name).open("rb") as file:
            return file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise MalformedError(
            "file", name, f"{error.strerror}; name a file, or - for stdin"
        ) from None


def _check(where: str, document: dict[str, Any], user: str) -> None:
    try:
        submission(document, user)
    except MalformedError as error:
        raise _LocatedError(where, error) from None


class _LocatedError(MalformedError):
    """A MalformedError that also says in which document; its value is shown already."""

    def __init__(self, where: str, error: MalformedError) -> None:
        super().__init__(error.field, error.value, error.remedy)
        self.value = error.value
        self.args = (f"{where}: {error.field}: {error.value}: {error.remedy}",)


async def _send(connection: Connection, documents: Sequence[Any]) -> Sequence[Submission]:
    if len(documents) > ONE_BY_ONE:
        return await submit_many(connection, documents)
    return [await submit(connection, document) for document in documents]


async def watch(connection: Connection, sent: Sequence[Submission]) -> int:
    """Show the tasks until all have ended; return the exit code."""
    many = len(sent) > ONE_BY_ONE
    show = _Summary(sent) if many else _Lines(sent)
    known: Mapping[UUID, TaskView] = {}
    with show:
        async for known in follow(connection, [(one.task_id, one.namespace) for one in sent]):
            show.update(known)
    if not many:
        _point_to_why(known)
        await _bills(connection, known)
    return exit_code([known[one.task_id] for one in sent])


def exit_code(views: Sequence[TaskView]) -> int:
    """0 all succeeded; 3 something was refused and nothing else went wrong; else 1."""
    bad = [view for view in views if not view.succeeded]
    if not bad:
        return exits.FINE
    return exits.REFUSED if all(view.refused for view in bad) else exits.FAILED


def _point_to_why(views: Mapping[UUID, TaskView]) -> None:
    """Where to look for what the table cannot say: a task that ended badly without a reason."""
    for task_id, view in views.items():
        if not view.succeeded and not view.reasons:
            id_ = words.short(task_id)
            screen.note(
                f"{words.label(view)}: {view.state}; why: orca describe task {id_}; "
                f"what it wrote: orca logs {id_}"
            )


async def _bills(connection: Connection, views: Mapping[UUID, TaskView]) -> None:
    """What the tasks cost, as soon as it is final; silence of billing holds nobody up."""
    for task_id, view in views.items():
        if view.attempt == 0:
            continue
        try:
            cost = await final_cost_of(connection, task_id)
        except UnavailableError:
            return
        if cost is not None:
            so_far = "" if cost.final else " so far"
            unpriced = f", {words.unpriced(cost.unpriced)}" if cost.unpriced else ""
            screen.line(f"{words.label(view)}: cost {usd(cost.total_pico_usd)}{so_far}{unpriced}")


class _Lines:
    """One live line per task on a terminal; on a pipe a line for each change of a task."""

    def __init__(self, sent: Sequence[Submission]) -> None:
        self._sent, self._began_s = sent, time.monotonic()
        self._said: dict[UUID, str] = {}
        self._live = Live(console=screen.console(), auto_refresh=False, transient=False)

    def __enter__(self) -> _Lines:
        if screen.is_terminal():
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, known: Mapping[UUID, TaskView]) -> None:
        """Show what is known now."""
        if screen.is_terminal():
            self._live.update(self._table(known), refresh=True)
            return
        for one in self._sent:
            text = plain_line(one, known.get(one.task_id))
            if self._said.get(one.task_id) != text:
                self._said[one.task_id] = text
                screen.line(text)
        sys.stdout.flush()

    def _table(self, known: Mapping[UUID, TaskView]) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in ("ID", "TASK", "STATE", "NODE", "TOKENS", "ELAPSED", "WHY"):
            made.add_column(column, overflow="fold")
        for one in self._sent:
            view = known.get(one.task_id)
            made.add_row(
                words.short(one.task_id),
                f"{one.namespace}/{one.name}",
                screen.styled(view.state if view else SUBMITTED),
                (view and view.node) or "-",
                words.tokens(view.used_tokens, view.token_quota) if view else "-",
                words.duration(self._elapsed_ms(view)),
                Text(words.why(view.reasons) if view else ""),
            )
        return made

    def _elapsed_ms(self, view: TaskView | None) -> float:
        if view is not None and view.ended:
            return max(0, view.since_ms - view.submitted_at_ms)
        return (time.monotonic() - self._began_s) * 1000


def plain_line(one: Submission, view: TaskView | None) -> str:
    """A task's state as a line that changes only when the state, the node or the reason does."""
    head = f"{one.task_id}{screen.GAP}{one.namespace}/{one.name}{screen.GAP}"
    if view is None:
        return f"{head}{SUBMITTED}"
    node = f" on {view.node}" if view.node else ""
    codes = ", ".join(dict.fromkeys(reason.code.value for reason in view.reasons))
    why = ""
    if view.reasons:
        why = f": {codes}" if not view.ended else f": {words.why(view.reasons)}"
    return f"{head}{view.state}{node}{why}"


class _Summary:
    """How many tasks are in which state: one live line on a terminal, else a line a change."""

    def __init__(self, sent: Sequence[Submission]) -> None:
        self._sent, self._said = sent, ""
        self._live = Live(console=screen.console(), auto_refresh=False)

    def __enter__(self) -> _Summary:
        if screen.is_terminal():
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, known: Mapping[UUID, TaskView]) -> None:
        """Show what is known now."""
        states = Counter(
            known[one.task_id].state if one.task_id in known else SUBMITTED for one in self._sent
        )
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        text = f"{len(self._sent)} tasks: {counts}"
        if screen.is_terminal():
            self._live.update(Text(text), refresh=True)
        elif text != self._said:
            screen.line(text)
            sys.stdout.flush()
        self._said = text
