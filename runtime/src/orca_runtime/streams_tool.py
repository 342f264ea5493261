"""``python -m orca_runtime.streams_tool apply|check``: what ``orca streams`` runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence

from nats.errors import Error as NatsError
from orca_schemas.errors import OrcaError
from orca_schemas.subjects import Stream
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from orca_runtime import streams
from orca_runtime.errors import LogUnavailableError
from orca_runtime.jetstream import JetStreamLog, RefusedError
from orca_runtime.jetstream.api import StreamMissingError
from orca_runtime.logs import configure
from orca_runtime.settings import ServiceSettings
from orca_runtime.survey import Survey, survey
from orca_runtime.text import table

FINE, FAILED, USAGE, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 69, 130
COLUMNS = ("STREAM", "FIRST", "LAST", "MESSAGES", "WHOLE TO", "CUT")
CONNECT_S = 5.0


class StreamsSettings(ServiceSettings):
    """What apply and check need besides a connection."""

    model_config = SettingsConfigDict(env_prefix="ORCA_", frozen=True, extra="ignore")

    max_store_bytes: int | None = Field(
        None, ge=1, description="Room for the log on disk, in bytes: the broker's max_file_store"
    )


def main(given: Sequence[str] | None = None) -> int:
    """Run; returns the exit code: 0 fine, 1 something differs, 2 usage, 69 no broker."""
    options = _parser().parse_args(given)
    configure("streams", "ERROR")
    logging.getLogger("orca_runtime").setLevel(logging.ERROR)
    try:
        settings = StreamsSettings()
        if options.store_bytes is not None:
            settings = settings.model_copy(update={"max_store_bytes": options.store_bytes})
        work = _apply if options.command == "apply" else _check
        return asyncio.run(_connected(settings, options, work))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        return _say(f"ORCA_{detail['loc'][0]!s}: {detail['msg']}".upper(), USAGE)
    except LogUnavailableError as error:
        return _say(str(error), UNAVAILABLE)
    except (NatsError, TimeoutError) as error:
        return _say(f"JetStream does not answer: {error or type(error).__name__}", UNAVAILABLE)
    except OrcaError as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"orca: {text}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orca streams", description="The streams of the log.")
    commands = parser.add_subparsers(dest="command", required=True)
    apply = commands.add_parser("apply", help="create what is missing, change what may change")
    check = commands.add_parser("check", help="say whether all is as declared, whole, consistent")
    check.add_argument("--json", action="store_true", help="one JSON document")
    check.add_argument("--deep", action="store_true", help="read all that services wrote")
    for command in (apply, check):
        text = "room for the log in bytes [ORCA_MAX_STORE_BYTES]"
        command.add_argument("--store-bytes", type=int, help=text)
        command.add_argument("--replicas", type=int, default=1, help="copies of each stream")
    return parser


Work = Callable[[JetStreamLog, StreamsSettings, argparse.Namespace], Awaitable[int]]


async def _connected(settings: StreamsSettings, options: argparse.Namespace, work: Work) -> int:
    password = settings.nats_password.get_secret_value() if settings.nats_password else None
    log = await JetStreamLog.connect(
        settings.nats_url, name="orca-streams", user=settings.nats_user, password=password,
        inbox_prefix=settings.inbox_prefix, wait_s=CONNECT_S,
    )  # fmt: skip
    try:
        if not await _may_ask(log):
            who = settings.nats_user or "this user"
            remedy = "connect as the services do: ORCA_NATS_USER=service and its password"
            return _say(f"{who} may not ask the broker about streams; {remedy}", FAILED)
        return await work(log, settings, options)
    finally:
        await log.close()


async def _may_ask(log: JetStreamLog) -> bool:
    try:
        await log.state(Stream.CLIENT)
    except StreamMissingError:
        return True
    except RefusedError:
        return False
    return True


async def _apply(log: JetStreamLog, settings: StreamsSettings, options: argparse.Namespace) -> int:
    if settings.max_store_bytes is None:
        return _say("say how much room the log has: --store-bytes or ORCA_MAX_STORE_BYTES", USAGE)
    done = await streams.apply(log.nc, settings.max_store_bytes, options.replicas)
    print("\n".join(done) or "nothing to do: the streams are as declared")
    return FINE


async def _check(log: JetStreamLog, settings: StreamsSettings, options: argparse.Namespace) -> int:
    found = await survey(
        log, deep=options.deep, store_bytes=settings.max_store_bytes, replicas=options.replicas
    )
    if options.json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        _show(found, options.deep)
    return FAILED if found.problems else FINE


def _show(found: Survey, deep: bool) -> None:
    rows = [
        (one.name, *map(str, (one.first, one.last, one.messages, one.whole_through, one.cut)))
        for one in found.streams
    ]
    if rows:
        print(table(COLUMNS, rows, " rrrrr"))
    if deep:
        print(f"{found.chains_checked} own events follow each other and their causes exist")
    if not found.problems:
        print("the streams are as declared, whole, and hold every cause that is recorded")
        return
    for problem in found.problems:
        print(f"fail  {problem}")
    if any(one.cut < one.last or one.whole_through < one.last for one in found.streams):
        print("restore all streams from one backup, each at most to its CUT, then start again")


if __name__ == "__main__":
    sys.exit(main())
