"""The server's life: bind, open the engine, serve until told to stop, finish, close."""

import asyncio
import errno
import os
import signal
import socket
import sys

from aiohttp import web

from orca_embedded.clickhouse.engine import DataDirectoryError, Engine
from orca_embedded.clickhouse.gate import Gate
from orca_embedded.clickhouse.http import HttpInterface
from orca_embedded.clickhouse.options import Options

# sysexits.h: a supervisor restarts after 69, never after 78.
EXIT_UNAVAILABLE = 69
EXIT_CONFIG = 78
_BACKLOG = 256
# ClickHouse's http_max_uri_size and http_max_field_value_size.
_MAX_URI_BYTES = 1024 * 1024
_MAX_FIELD_BYTES = 128 * 1024


def main(options: Options) -> int:
    """Run the server to its end; returns the exit status, having said why on stderr."""
    try:
        listener = _bind(options)
    except OSError as error:
        return _fail(EXIT_UNAVAILABLE, _explain_bind(options, error))
    try:
        engine = Engine.open(options.data)
    except DataDirectoryError as error:
        return _fail(EXIT_CONFIG, str(error))
    for table in engine.broken_parts():
        _say(f"unreadable data was set aside in {table}; rebuild the table from the log")
    with listener:
        finished = asyncio.run(_serve(engine, listener, options))
    if not finished:
        # Threads inside the engine cannot be stopped, and would keep the process for ever.
        _say(f"queries still ran {options.stop_grace_s} s after the stop; they were cut off")
        os._exit(0)
    engine.close()
    return 0


async def _serve(engine: Engine, listener: socket.socket, options: Options) -> bool:
    """Serve until SIGTERM or SIGINT; returns whether all queries came to their end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gate = Gate(options.max_running, options.max_waiting)
    runner = web.AppRunner(
        HttpInterface(engine, gate, options).app(),
        access_log=None,
        auto_decompress=False,
        max_line_size=_MAX_URI_BYTES,
        max_field_size=_MAX_FIELD_BYTES,
        shutdown_timeout=options.stop_grace_s,
    )
    await runner.setup()
    site = web.SockSite(runner, listener, backlog=_BACKLOG)
    await site.start()
    host, port = listener.getsockname()[:2]
    _say(f"ready on {host}:{port}, ClickHouse {engine.version}, data in {options.data}")
    await stop.wait()
    finished = await gate.close(options.stop_grace_s)
    await runner.cleanup()
    return finished


def _bind(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _explain_bind(options: Options, error: OSError) -> str:
    address = f"{options.host}:{options.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is taken; stop the process that listens there, or give another --port"
    return f"cannot listen on {address}: {error.strerror or error}; give another --host or --port"


def _fail(status: int, message: str) -> int:
    _say(message)
    return status


def _say(message: str) -> None:
    print(f"orca-clickhouse: {message}", file=sys.stderr, flush=True)
