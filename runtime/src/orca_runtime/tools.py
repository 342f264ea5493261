"""What a service's program does besides serving: ``replay`` and ``explain``, in a fresh process.

Apps are run, never imported: so the ``orca`` command runs ``python -m orca_<service> replay``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from orca_schemas.errors import MalformedError, OrcaError

from orca_runtime import replay
from orca_runtime.errors import LogUnavailableError
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.logs import configure
from orca_runtime.service import Service, snapshots_of
from orca_runtime.settings import ServiceSettings

CONNECT_S = 5.0
"""A person waits."""
FAILED, USAGE, UNAVAILABLE, INTERRUPTED = 1, 2, 69, 130

Work = Callable[[JetStreamLog], Awaitable[int]]


def main(service: Service, settings: ServiceSettings, given: Sequence[str]) -> int:
    """Run one tool; returns its exit code. A problem is one line on stderr."""
    configure(service.name, "ERROR")
    options = _parser(service).parse_args(given)
    try:
        return asyncio.run(_connected(settings, _work(service, settings, options)))
    except OrcaError as error:
        sys.stderr.write(f"orca: {error}\n")
        return _code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _code(error: OrcaError) -> int:
    match error:
        case MalformedError():
            return USAGE
        case LogUnavailableError():
            return UNAVAILABLE
        case _:
            return FAILED


def _parser(service: Service) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("orca", description=f"Look at what {service.name} decided.")
    tools = parser.add_subparsers(dest="tool", required=True)
    doc = "rebuild the state from the log in a fresh process"
    one = tools.add_parser("replay", prog=f"orca replay {service.name}", help=doc, description=doc)
    replay.arguments(one)
    if service.explains:
        doc = "tell which events made it so"
        nouns = tools.add_parser("explain", help=doc).add_subparsers(dest="noun", required=True)
        for noun, explain in service.explains.items():
            explain.arguments(nouns.add_parser(noun, prog=f"orca explain {noun}"))
    return parser


def _work(service: Service, settings: ServiceSettings, options: argparse.Namespace) -> Work:
    async def work(log: JetStreamLog) -> int:
        if options.tool == "explain":
            return await service.explains[options.noun].run(log, options)
        snapshots = snapshots_of(service, log, settings)
        return await replay.main(service.decider, log, snapshots, options)

    return work


async def _connected(settings: ServiceSettings, work: Work) -> int:
    password = settings.nats_password.get_secret_value() if settings.nats_password else None
    log = await JetStreamLog.connect(
        settings.nats_url, name="orca-replay", user=settings.nats_user, password=password,
        inbox_prefix=settings.inbox_prefix, wait_s=CONNECT_S,
    )  # fmt: skip
    try:
        return await work(log)
    finally:
        await log.close()
