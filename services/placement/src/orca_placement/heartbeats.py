"""Listening to nodes: who is silent, and whom to tell to ask again. Outside the pure core."""

from __future__ import annotations

import asyncio
from typing import Any

from nats.aio.msg import Msg
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.recorded import Recorded
from orca_runtime.shell import DeciderShell
from orca_runtime.speculate import Observation
from orca_schemas.events.placement import LeaseUpdated, Placed, StopOrdered
from orca_schemas.limits import LEASE_TTL_MS
from orca_schemas.positions import Position
from orca_schemas.subjects import hint_subject, telemetry_subject

from orca_placement.commands import observe_beat, observe_silence
from orca_placement.state import State

LOOK_S = 1.0


class Heartbeats:
    """When each node was last heard, counted from the last of beat, take-over and reconnect."""

    def __init__(self, shell: DeciderShell[State], log: JetStreamLog) -> None:
        self._shell, self._log = shell, log
        self._heard_s: dict[str, float] = {}
        self._since_s = 0.0
        self._was_connected = False

    async def run(self) -> None:
        """Watch for ever."""
        await self._log.nc.subscribe(telemetry_subject("*", "heartbeat"), cb=self._beat)
        while True:
            self._look(self._shell.clock.steady_s())
            await asyncio.sleep(LOOK_S)

    async def _beat(self, message: Msg) -> None:
        node = message.subject.split(".")[2]
        self._heard_s[node] = self._shell.clock.steady_s()
        found = self._shell.folded.state.nodes.get(node)
        if found is not None and found.lost:
            self._observe(node, observe_beat(node), "heard")

    def _look(self, now_s: float) -> None:
        listening = self._shell.active and self._log.connected
        if not listening or not self._was_connected:
            self._since_s, self._was_connected = now_s, listening
            return
        for node, found in self._shell.folded.state.nodes.items():
            silent_s = now_s - max(self._heard_s.get(node, 0.0), self._since_s)
            if silent_s * 1000 >= LEASE_TTL_MS and not found.lost:
                self._observe(node, observe_silence(node, int(silent_s * 1000)), "silent")

    def _observe(self, node: str, command: Any, what: str) -> None:
        shell = self._shell
        origin = Position(shell.decider.stream, shell.epoch, shell.folded.sequence)
        shell.observe(Observation(command, f"{what}/{node}", origin))


async def watch_nodes(shell: DeciderShell[State], log: JetStreamLog) -> None:
    """The observer that placement's service runs."""
    sending: set[asyncio.Task[None]] = set()

    def hint(event: Recorded) -> None:
        target = hinted_node(event)
        if target is not None and shell.active and log.connected:
            task = asyncio.get_running_loop().create_task(log.nc.publish(hint_subject(target), b""))
            sending.add(task)
            task.add_done_callback(sending.discard)

    shell.on_event.append(hint)
    await Heartbeats(shell, log).run()


def hinted_node(event: Recorded) -> str | None:
    """The node whose desired state an event changed. A lost hint costs it one interval."""
    match event.data:
        case Placed(node=node):
            return node
        case StopOrdered() | LeaseUpdated():
            return event.subject.party
        case _:
            return None
