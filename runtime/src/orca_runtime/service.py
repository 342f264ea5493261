"""A decider service as a process: the one composition root that all five share."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import structlog
from orca_schemas.asks import Status

from orca_runtime.asks import Ask, AskServer, LogVerb, Verbs
from orca_runtime.clock import SystemClock
from orca_runtime.deadletters import deadletters
from orca_runtime.decider import Decider
from orca_runtime.histories import fingerprint
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.lease import KvLease
from orca_runtime.logs import configure
from orca_runtime.metrics import DeciderMetrics
from orca_runtime.own_mark import FileMark
from orca_runtime.projector import Projector
from orca_runtime.rebuild import Rebuilder
from orca_runtime.settings import ServiceSettings
from orca_runtime.shell import DeciderShell
from orca_runtime.slices import Slicer
from orca_runtime.snapshot import FileSnapshots
from orca_runtime.stream_info import STREAM_INFO
from orca_runtime.tracing import Tracer, exporter_to

STOP_S = 10.0
"""How long a service may take to let go before it is cut off."""

_log = structlog.get_logger(__name__)

Observer = Callable[[DeciderShell[Any], JetStreamLog], Awaitable[None]]


@dataclass(frozen=True)
class Explain:
    """Tells from the log alone, in a process of its own, how something came to be."""

    arguments: Callable[[ArgumentParser], None]
    run: Callable[[JetStreamLog, Namespace], Awaitable[int]]


def _no_projectors(_: ServiceSettings) -> Sequence[Projector]:
    return ()


@dataclass(frozen=True)
class Service:
    """What a service is made of."""

    name: str
    decider: Decider[Any, Any]
    verbs: Verbs
    projectors: Callable[[Any], Sequence[Projector]] = _no_projectors
    observers: Sequence[Observer] = field(default=())
    explains: Mapping[str, Explain] = field(default_factory=dict)
    """What it can explain from the log, by noun: ``orca explain <noun>``."""

    @property
    def package(self) -> str:
        """The Python package of the service (a distribution x-y is the module x_y)."""
        return f"orca_{self.name.replace('-', '_')}"


def snapshots_of(
    service: Service, log: JetStreamLog, settings: ServiceSettings
) -> FileSnapshots[Any]:
    """Where the service keeps its snapshots."""
    return FileSnapshots(
        service.decider,
        log,
        settings.data_dir / "snapshots",
        fingerprint=lambda: fingerprint(service.decider, service.package),
    )


def run(service: Service, settings: ServiceSettings) -> None:
    """Run until SIGTERM or SIGINT. The exit code is 0 after a clean end.

    With arguments, run a tool over the log instead: replay, explain.
    """
    if given := sys.argv[1:]:
        from orca_runtime.tools import main  # noqa: PLC0415 - they need Service themselves

        raise SystemExit(main(service, settings, given))
    configure(service.name, settings.log_level)
    asyncio.run(_run(service, settings))


async def _run(service: Service, settings: ServiceSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    password = settings.nats_password.get_secret_value() if settings.nats_password else None
    log = await JetStreamLog.connect(
        settings.nats_url,
        name=f"orca-{service.name}",
        user=settings.nats_user,
        password=password,
        inbox_prefix=settings.inbox_prefix,
    )
    clock, metrics = SystemClock(), DeciderMetrics(service.name)
    metrics.serve(settings.metrics_port)
    tracer = Tracer(service.name, exporter_to(settings.otlp_endpoint))
    lease = KvLease(log.nc, service.name, _replica(settings), clock)
    shell = DeciderShell(
        service.decider,
        log,
        clock=clock,
        lease=lease,
        metrics=metrics,
        tracer=tracer,
        snapshots=snapshots_of(service, log, settings),
        mark=FileMark(settings.data_dir / "marks" / f"{service.name}.json"),
    )
    verbs = {
        **service.verbs,
        "status": LogVerb(None, _status(service, shell)),
        "deadletters": deadletters(shell),
        "stream": STREAM_INFO,
    }
    projectors = service.projectors(settings)
    if projectors:
        verbs["rebuild"] = Rebuilder(projectors, log, lambda: shell.active).verb()
    asks = AskServer(service.name, shell, verbs, settings, metrics.registry)
    await asks.start()
    tasks = [
        asyncio.create_task(lease.keep(), name="lease"),
        asyncio.create_task(shell.run(), name="shell"),
        asyncio.create_task(log.wait_closed(), name="broker connection"),
        *(asyncio.create_task(p.run(log, lambda: shell.active)) for p in projectors),
        *(asyncio.create_task(_observe(observer, shell, log)) for observer in service.observers),
    ]
    await _until_stopped(stop, tasks)
    await _let_go(tasks, asks, log, tracer)


async def _observe(observer: Observer, shell: DeciderShell[Any], log: JetStreamLog) -> None:
    await observer(shell, log)


async def _until_stopped(stop: asyncio.Event, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for a signal, or for a task that ended though none should."""
    stopper = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({stopper, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    stopper.cancel()
    for task in done - {stopper}:
        _log.error(
            "a part of the service ended", part=task.get_name(), error=repr(task.exception())
        )
        raise SystemExit(1)


async def _let_go(
    tasks: Sequence[asyncio.Task[Any]], asks: AskServer, log: JetStreamLog, tracer: Tracer
) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asks.broker.stop()
            await log.close()
            await asyncio.to_thread(tracer.close)
    except Exception as error:  # noqa: BLE001 - on the way out nothing may hold us
        _log.warning("did not let go cleanly", error=repr(error))


def _status(
    service: Service, shell: DeciderShell[Any]
) -> Callable[[Any, Any, Ask], Awaitable[Status]]:
    slicer = Slicer(service.decider.state_type, service.decider.initial)

    async def status(_log: Any, _query: Any, ask: Ask) -> Status:
        """Say how it is at this moment; the digest is computed beside the decisions."""
        state, waiting = shell.folded.state, shell.waiting()
        ready, active, reason = shell.ready, shell.active, shell.reason
        return Status(
            service=service.name,
            ready=ready,
            active=active,
            reason=reason,
            sequence=ask.sequence,
            digest=await slicer.digest(state),
            lag=waiting,
            version=version("orca-runtime"),
        )

    return status


def _replica(settings: ServiceSettings) -> str:
    return settings.replica or f"{socket.gethostname()}-{os.getpid()}"
