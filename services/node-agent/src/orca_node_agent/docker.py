"""Attempts as Docker containers: the engine keeps the state, this object only a few hints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from weakref import WeakValueDictionary

import aiodocker

from orca_node_agent.boot import host_boot_id
from orca_node_agent.docker_engine import (
    CONFLICT,
    DEFAULT_DOCKER_HOST,
    NOT_FOUND,
    REFUSALS,
    START_TIMEOUT_S,
    Engine,
)
from orca_node_agent.docker_logs import LogReader
from orca_node_agent.docker_spec import (
    LABEL_NODE,
    DockerOptions,
    container_config,
    container_name,
    foreign_labels,
    observed_of,
)
from orca_node_agent.docker_stop import Stopper
from orca_node_agent.executor import (
    AttemptObserved,
    AttemptSpec,
    ExecutorUnavailableError,
    ImageError,
    LogChunk,
)

PULL_TIMEOUT_S = 1_800.0  # a model image of 30 GB at 20 MB/s
PULL_FAILURES = range(400, 600)  # a registry that cannot be reached is the engine's 500


class NameTakenError(ImageError):
    """A container of the attempt's name exists and is not the attempt's: left as it is."""


class DockerExecutor:
    """Runs each attempt as one container, ``orca-<key>``, known again by its labels.

    A new object on the same host finds what an older one started. An attempt that once ran is
    never started again. ``boot_id`` names this boot of the host.
    """

    name = "docker"

    def __init__(
        self,
        options: DockerOptions,
        docker_host: str = DEFAULT_DOCKER_HOST,
        boot_id: str | None = None,
    ) -> None:
        self._options = options
        self._boot_id = host_boot_id() if boot_id is None else boot_id
        self._engine = Engine(docker_host)
        self._stopper = Stopper(self._engine)
        self._logs = LogReader(self._engine)
        self._start_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self, spec: AttemptSpec) -> None:
        """Create and start, or find already started; may pull, which takes up to PULL_TIMEOUT_S.

        Raises ImageError (image missing, command refused, or NameTakenError),
        ExecutorUnavailableError.
        """
        lock = self._start_locks.setdefault(spec.key, asyncio.Lock())
        async with lock:  # two starts at once could run a short command twice
            if await self._status(spec) is None:
                await self._create(spec)
            if await self._status(spec) == "created":
                await self._run(spec)

    async def observe(self) -> Mapping[str, AttemptObserved]:
        """Every attempt of this node by key. Raises ExecutorUnavailableError."""
        filters = json.dumps({"label": [f"{LABEL_NODE}={self._options.node_id}"]})
        async with self._engine.call("list containers") as docker:
            containers = await docker.containers.list(all="1", filters=filters)
        observed = {}
        for container in containers:
            inspected = await self._engine.inspect(container.id)
            attempt = inspected and observed_of(inspected, self._boot_id)
            if attempt:
                observed[attempt.key] = attempt
        return observed

    async def stop(self, key: str, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after ``grace_s`` from a task of this object's own.

        What was created and never started is removed. Raises ExecutorUnavailableError.
        """
        if await self._stopper.stop(key, grace_s):
            return
        inspected = await self._engine.inspect(container_name(key))
        if inspected and inspected["State"]["Status"] == "created":
            await self._delete(key)

    async def read_log(self, key: str, offset: int, limit_bytes: int) -> LogChunk:
        """Output from ``offset``, as docker_logs gives it. Raises ExecutorUnavailableError."""
        inspected = await self._engine.inspect(container_name(key))
        if inspected is None or inspected["State"]["Status"] == "created":
            return LogChunk(offset, b"")
        running = bool(inspected["State"]["Running"])
        return LogChunk(offset, await self._logs.read(key, offset, limit_bytes, running))

    async def remove(self, key: str) -> None:
        """Remove an exited container with its output and anonymous volumes.

        Raises ExecutorUnavailableError, and RuntimeError while it runs.
        """
        self._stopper.forget(key)
        await self._logs.forget(key)
        await self._delete(key)

    async def close(self) -> None:
        """Drop deadlines and connections; containers run on."""
        await self._stopper.close()
        await self._logs.close()
        await self._engine.close()

    async def _status(self, spec: AttemptSpec) -> str | None:
        """Status of the attempt's container, None if there is none. Raises NameTakenError."""
        name = container_name(spec.key)
        inspected = await self._engine.inspect(name)
        if inspected is None:
            return None
        foreign = foreign_labels(spec, inspected["Config"]["Labels"] or {})
        if foreign:
            raise NameTakenError(
                f"container {name} is not of this attempt: {'; '.join(foreign)}; "
                f"look at it, then: docker rm {name}"
            )
        return str(inspected["State"]["Status"])

    async def _create(self, spec: AttemptSpec) -> None:
        """Create the container; another's create of the same name counts as ours."""
        refusal = await self._try_create(spec)
        if refusal is not None and refusal.status == NOT_FOUND and self._options.pull:
            await self._pull(spec.image)
            refusal = await self._try_create(spec)
        if refusal is None or refusal.status == CONFLICT:
            return
        raise ImageError(_image_text(spec.image, refusal)) from refusal

    async def _try_create(self, spec: AttemptSpec) -> aiodocker.DockerError | None:
        config = container_config(spec, self._options, self._boot_id)
        try:
            async with self._engine.call(f"create {spec.key}", REFUSALS, START_TIMEOUT_S) as docker:
                await docker.containers.create(config, name=container_name(spec.key))
        except aiodocker.DockerError as refusal:
            return refusal
        return None

    async def _run(self, spec: AttemptSpec) -> None:
        name = container_name(spec.key)
        try:
            async with self._engine.call(f"start {name}", REFUSALS, START_TIMEOUT_S) as docker:
                await docker.containers.container(name).start()
        except aiodocker.DockerError as error:
            if error.status == NOT_FOUND:
                raise ExecutorUnavailableError(f"{name} was removed while starting") from error
            await self._delete(spec.key)
            raise ImageError(
                f"image {spec.image}, command {list(spec.command)}: {error.message}"
            ) from error

    async def _pull(self, image: str) -> None:
        # Without a tag the engine would fetch every tag there is.
        tagged = "@" in image or ":" in image.rpartition("/")[2]
        try:
            async with self._engine.call(f"pull {image}", PULL_FAILURES, PULL_TIMEOUT_S) as docker:
                await docker.images.pull(image if tagged else f"{image}:latest")
        except aiodocker.DockerError as error:
            raise ImageError(f"image {image} cannot be pulled: {error.message}") from error

    async def _delete(self, key: str) -> None:
        name = container_name(key)
        try:
            async with self._engine.call(f"remove {name}", (NOT_FOUND, CONFLICT)) as docker:
                await docker.containers.container(name).delete(v=True)
        except aiodocker.DockerError as error:
            if error.status == CONFLICT and "already in progress" not in error.message:
                raise RuntimeError(f"{name} is not removed: {error.message}") from error


def _image_text(image: str, refusal: aiodocker.DockerError) -> str:
    if refusal.status != NOT_FOUND:
        return f"image {image}: {refusal.message}"
    return (
        f"image {image} is not on this host and pulling is off: load it (docker pull {image}, "
        "docker load, docker build) or allow pulls on this node"
    )
