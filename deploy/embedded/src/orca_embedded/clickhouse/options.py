"""What the server is told on its command line; it reads nothing from the environment."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MAX_BODY_BYTES = 256 * 1024 * 1024
# Results are held whole before the first byte is sent, so that an error always has its status.
DEFAULT_MAX_RESULT_BYTES = 512 * 1024 * 1024
DEFAULT_MAX_QUERY_MEMORY_BYTES = 4 * 1024 * 1024 * 1024
DEFAULT_MAX_EXECUTION_S = 600
DEFAULT_STOP_GRACE_S = 60
# The engine spreads one query over all cores; these bound how many it juggles at once.
DEFAULT_MAX_RUNNING = 16
DEFAULT_MAX_WAITING = 256

_LIMITS = {
    "--max-body-bytes": DEFAULT_MAX_BODY_BYTES,
    "--max-result-bytes": DEFAULT_MAX_RESULT_BYTES,
    "--max-query-memory-bytes": DEFAULT_MAX_QUERY_MEMORY_BYTES,
    "--max-execution-s": DEFAULT_MAX_EXECUTION_S,
    "--max-running": DEFAULT_MAX_RUNNING,
    "--max-waiting": DEFAULT_MAX_WAITING,
    "--stop-grace-s": DEFAULT_STOP_GRACE_S,
}


@dataclass(frozen=True, slots=True)
class Options:
    """The server's settings: limits in the unit their name ends in, counts without one."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8123
    user: str = "default"
    password: str = ""
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES
    max_query_memory_bytes: int = DEFAULT_MAX_QUERY_MEMORY_BYTES
    max_execution_s: int = DEFAULT_MAX_EXECUTION_S
    max_running: int = DEFAULT_MAX_RUNNING
    max_waiting: int = DEFAULT_MAX_WAITING
    stop_grace_s: int = DEFAULT_STOP_GRACE_S


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; exits with status 2 and the usage on a wrong flag."""
    parser = argparse.ArgumentParser(prog="python -m orca_embedded.clickhouse", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of this server alone")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_port, default=8123, help="0 takes a free one")
    parser.add_argument("--user", default="default")
    parser.add_argument("--password", default="", help="empty asks nobody for one")
    for flag, default in _LIMITS.items():
        parser.add_argument(flag, type=_positive, default=default, help=f"default {default}")
    return Options(**vars(parser.parse_args(arguments)))


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port (0 to 65535)")
    return number
