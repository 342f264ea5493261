"""The supervisor: starts the layers in order, keeps them running, stops them in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from orca_embedded.child import Child
from orca_embedded.place import check_engine, check_ports, prepare, tail
from orca_embedded.problems import EX_CONFIG, EX_UNAVAILABLE, StackProblem
from orca_embedded.programs import programs
from orca_embedded.readiness import (
    broker_answers,
    clickhouse_answers,
    declare_streams,
    services_not_ready,
    wait_for,
)
from orca_embedded.settings import StackSettings

START_S = 60.0
STATE_FILE = "stack.json"


class Stack:
    """The embedded stack of one data directory."""

    def __init__(self, settings: StackSettings, say: Callable[[str], None]) -> None:
        self.settings, self._say = settings, say
        self.children: list[Child] = []
        self._phase = "starting"
        self._why: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Start, stay until ``stop``, end everything. Raises StackProblem."""
        with prepare(self.settings):
            check_ports(self.settings)
            check_engine(self.settings)
            self._write_state()
            try:
                await self._start(stop)
                if not stop.is_set():
                    self._phase = "running"
                    self._write_state()
                    self._say("ready")
                await stop.wait()
            finally:
                await self._stop()

    async def _start(self, stop: asyncio.Event) -> None:
        home = self.settings.home()
        for program in programs(self.settings):
            log = home / "logs" / f"{program.name.replace('/', '-')}.log"
            self.children.append(Child(program, log, self._write_state))
        for layer, ready in ((0, self._store_ready), (1, None), (2, self._services_ready)):
            for child in self.children:
                if child.program.layer == layer:
                    self._say(f"starting {child.program.name}")
                    await child.start()
            if ready is not None:
                await self._unless(stop, ready())

    async def _unless(self, stop: asyncio.Event, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for readiness, but not once a stop was asked for or a process has no chance."""
        tasks = [asyncio.create_task(one) for one in (waiting, stop.wait(), self._fail())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _fail(self) -> None:
        """Wait for a process that will not come up by itself. Raises StackProblem with its words.

        Only a start is ended by it: what ran once is started again for as long as the stack runs.
        """
        waits = {asyncio.create_task(child.hopeless.wait()): child for child in self.children}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        child = waits[done.pop()]
        code = child.last_exit if child.last_exit in (EX_CONFIG, EX_UNAVAILABLE) else None
        raise StackProblem(
            f"{child.program.name} ended with {child.last_exit}: {tail(child.log, 1)} "
            f"(see {child.log})",
            EX_UNAVAILABLE if code is None else code,
        )

    async def _store_ready(self) -> None:
        settings = self.settings
        await wait_for(
            "nats", START_S, lambda: broker_answers(settings), lambda: self._hint("nats")
        )
        await declare_streams(settings)
        await wait_for(
            "clickhouse",
            START_S,
            lambda: clickhouse_answers(settings),
            lambda: self._hint("clickhouse"),
        )

    async def _services_ready(self) -> None:
        async def all_ready() -> bool:
            self._why = await services_not_ready(self.settings)
            return not self._why

        def hint() -> str:
            return "; ".join(
                f"{name}: {why} ({self._hint(name)})" for name, why in self._why.items()
            )

        await wait_for("the services", START_S, all_ready, hint)

    def _hint(self, name: str) -> str:
        for child in self.children:
            if child.program.name == name:
                return f"see {child.log}: {tail(child.log)}"
        return "not started"

    async def _stop(self) -> None:
        self._phase = "stopping"
        for layer in (2, 1, 0):
            members = [child for child in self.children if child.program.layer == layer]
            for child in members:
                self._say(f"stopping {child.program.name}")
            await asyncio.gather(*(child.stop() for child in members))
        (self.settings.home() / STATE_FILE).unlink(missing_ok=True)

    def _write_state(self) -> None:
        path = self.settings.home() / STATE_FILE
        part = path.with_suffix(".part")
        with contextlib.suppress(OSError):  # a full disk must not keep a process from its restart
            part.write_text(json.dumps(self.state()))
            part.replace(path)

    def state(self) -> dict[str, Any]:
        """What ``orca status`` reads."""
        settings = self.settings
        return {
            "pid": os.getpid(),
            "phase": self._phase,
            "nats_url": settings.nats_url(),
            "clickhouse_url": settings.clickhouse_url(),
            "auth": settings.auth,
            "executor": settings.executor.value,
            "nodes": settings.node_gpus(),
            "written_at": time.time(),
            "processes": [
                {
                    "name": child.program.name,
                    "pid": child.pid,
                    "restarts": child.restarts,
                    "last_exit": child.last_exit,
                    "log": str(child.log),
                }
                for child in self.children
            ],
        }
