"""Exit codes, and which error gives which."""

from __future__ import annotations

from orca_schemas.errors import MalformedError, OrcaError
from pydantic import ValidationError

from orca_client.errors import NotFoundError, RefusedError, UnavailableError

FINE = 0
FAILED = 1
"""A task ended otherwise than in success, a check failed, a statement was wrong."""
USAGE = 2
"""The command line, the settings or a manifest is wrong; nothing was sent."""
REFUSED = 3
"""Orca said no: a task was rejected, a request refused."""
UNAVAILABLE = 69
"""Nobody answers (sysexits.h EX_UNAVAILABLE)."""
INTERRUPTED = 130
"""Ctrl-C (128 + SIGINT)."""


def code_of(error: OrcaError) -> int:
    """The exit code that an error ends the command with."""
    match error:
        case MalformedError() | NotFoundError():
            return USAGE
        case RefusedError():
            return REFUSED
        case UnavailableError():
            return UNAVAILABLE
        case _:
            return FAILED


def setting_problem(error: ValidationError) -> str:
    """One line about the first setting that is wrong: its variable, the value, the remedy."""
    detail = error.errors(include_url=False)[0]
    name = "_".join(str(part) for part in detail["loc"]).upper()
    return f"ORCA_{name}: {detail['input']!r}: {detail['msg']}"
