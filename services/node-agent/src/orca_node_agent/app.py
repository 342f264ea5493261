"""The composition root: settings in, a running agent out."""

from __future__ import annotations

import asyncio
import signal

import structlog
from orca_runtime.clock import SystemClock
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.logs import configure
from orca_schemas.errors import MalformedError

from orca_node_agent import metrics
from orca_node_agent.agent import Agent, Options
from orca_node_agent.bus import NatsBus
from orca_node_agent.docker import DockerExecutor
from orca_node_agent.docker_spec import DockerOptions
from orca_node_agent.executor import Executor
from orca_node_agent.gpus import GpuBackend, GpuProbeError, NoGpus
from orca_node_agent.host import host_capacity
from orca_node_agent.identity import DataDirTakenError, Identity
from orca_node_agent.nvml import NvmlGpus
from orca_node_agent.probe_server import UsagePortTakenError
from orca_node_agent.process import ProcessExecutor
from orca_node_agent.settings import ExecutorChoice, Settings
from orca_node_agent.simulated import SimulatedGpus
from orca_node_agent.spool import SpoolLimits

BYTES_PER_MIB = 1 << 20

_log = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; what runs on the host runs on."""
    configure("node-agent", settings.log_level)
    try:
        asyncio.run(_run(settings))
    except (DataDirTakenError, UsagePortTakenError, MalformedError) as error:
        raise SystemExit(f"node agent: {error}") from None


async def _run(settings: Settings) -> None:
    identity = Identity(settings.node_dir)
    try:
        gpus = await choose_gpus(settings)
        bus = NatsBus(lambda: _connect(settings), settings.node)
        executor = executor_of(settings, gpus, identity)
        agent = Agent(options_of(settings), identity, executor, gpus, bus, SystemClock())
        metrics.serve(agent, settings.node, settings.metrics_port)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, agent.stop)
        _log.info("node agent", node=settings.node, executor=settings.executor, gpus=gpus.name)
        await _serve(agent, bus)
    finally:
        identity.close()


async def _serve(agent: Agent, bus: NatsBus) -> None:
    """Run until stopped, or until the broker closes the connection for good."""
    serving = asyncio.create_task(agent.run())
    closed = asyncio.create_task(bus.wait_closed())
    try:
        await asyncio.wait({serving, closed}, return_when=asyncio.FIRST_COMPLETED)
        lost = closed.done()
        agent.stop()
        await serving
    finally:
        closed.cancel()
        await bus.close()
    if lost:
        raise SystemExit("the broker closed the connection; start the node agent again")


async def _connect(settings: Settings) -> JetStreamLog:
    password = settings.nats_password.get_secret_value() if settings.nats_password else None
    return await JetStreamLog.connect(
        settings.nats_url,
        name=f"orca-node-{settings.node}",
        user=settings.nats_user,
        password=password,
        inbox_prefix=settings.inbox_prefix,
    )


def options_of(settings: Settings) -> Options:
    """The operator's decisions."""
    return Options(
        node=settings.node,
        capacity=host_capacity(settings.cpu_milli, settings.memory_mib),
        usage_port=settings.usage_port,
        limits=SpoolLimits(settings.spool_max_rows, settings.spool_max_mib * BYTES_PER_MIB),
        stop_tasks_on_exit=settings.stop_tasks_on_exit,
        docker_host=settings.docker_host,
        lease_ttl_ms=settings.lease_ttl_ms,
    )


async def choose_gpus(settings: Settings) -> GpuBackend:
    """The simulated GPUs if any are set, else NVML if it answers, else none."""
    if settings.simulated_gpus:
        return SimulatedGpus(settings.simulated_gpus, settings.node)
    nvml = NvmlGpus()
    try:
        await nvml.inventory()
    except GpuProbeError as error:
        _log.info("no GPUs", error=str(error))
        return NoGpus()
    return nvml


def executor_of(settings: Settings, gpus: GpuBackend, identity: Identity) -> Executor:
    """The executor of the settings. Only real GPUs are handed into containers."""
    if settings.executor is ExecutorChoice.PROCESS:
        return ProcessExecutor(settings.node_dir / "attempts", settings.task_path)
    options = DockerOptions(
        node_id=settings.node,
        gpu_runtime=gpus.name == NvmlGpus.name,
        network=settings.docker_network,
        pull=settings.docker_pull,
    )
    return DockerExecutor(options, settings.docker_host, identity.host_boot_id)
