"""The orca command: reads the command line and turns every problem into one line and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from orca_schemas.errors import OrcaError
from typer.exceptions import TyperException

from orca_client.cli import (
    admin,
    cancel,
    deadletter,
    describe,
    doctor,
    exits,
    get,
    logs,
    past,
    rebuild,
    screen,
    sql,
    stack,
    streams,
    submit,
)
from orca_client.cli.context import make_settings

NO_ARGUMENTS = "NoArgsIsHelpError"

app = typer.Typer(
    name="orca",
    help="One scheduler for GPUs and tokens.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _options(
    context: typer.Context,
    nats_url: str | None = typer.Option(None, help="Where the broker listens [ORCA_NATS_URL]"),
    clickhouse_url: str | None = typer.Option(
        None, help="ClickHouse over HTTP [ORCA_CLICKHOUSE_URL]"
    ),
    user: str | None = typer.Option(None, help="Who asks; default: the login name [ORCA_USER]"),
    nats_user: str | None = typer.Option(None, help="The broker's user [ORCA_NATS_USER]"),
    nats_password: str | None = typer.Option(
        None, help="Its password; better in the environment [ORCA_NATS_PASSWORD]"
    ),
) -> None:
    """Flags of every command; each has an environment variable."""
    context.obj = make_settings(
        nats_url=nats_url,
        clickhouse_url=clickhouse_url,
        user=user,
        nats_user=nats_user,
        nats_password=nats_password,
    )


for _group in (
    stack,
    submit,
    get,
    describe,
    logs,
    cancel,
    deadletter,
    admin,
    past,
    streams,
    rebuild,
    sql,
    doctor,
):
    _group.register(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; problems are one line on stderr."""
    try:
        code = app(list(arguments), prog_name="orca", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.FINE
    except TyperException as error:
        if type(error).__name__ == NO_ARGUMENTS:  # its message is the whole help
            screen.line(error.format_message())
            return exits.USAGE
        screen.note(f"{error.format_message().rstrip('.')}; see {_help_of(error)}")
        return error.exit_code
    except OrcaError as error:
        screen.note(str(error))
        return exits.code_of(error)
    except (KeyboardInterrupt, typer.Abort):
        screen.note("interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FINE


def _help_of(error: TyperException) -> str:
    """The help that lists what could have been written instead."""
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'orca'} --help"


def main() -> None:
    """Entry point of the orca command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
