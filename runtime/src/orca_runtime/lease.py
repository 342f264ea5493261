"""Who is active: one holder per service, by a lease in the broker.

The lease only keeps rivals from getting in each other's way. What keeps them from harm is the
expectation that every append carries.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from orca_runtime.clock import Clock

BUCKET = "orca-leases"
TTL_S = 2.0
RENEW_S = 0.5
FREE = b""

_log = structlog.get_logger(__name__)


class Lease(Protocol):
    """A service's right to be the active one."""

    def held(self) -> bool:
        """Whether this process may believe that it is active."""
        ...

    async def wait_held(self) -> None:
        """Return once the lease is held."""
        ...

    def give_up(self) -> None:
        """Stop believing; the lease is sought again."""
        ...


class SoleLease:
    """Always held: for a process that is known to be alone, such as in tests."""

    def held(self) -> bool:
        """Always."""
        return True

    async def wait_held(self) -> None:
        """At once."""

    def give_up(self) -> None:
        """Nothing to give up."""


class KvLease:
    """A lease kept in a key of the broker's key-value store, renewed by compare-and-set.

    A rival takes it after it saw no renewal for TTL_S by its own steady clock, so no two clocks
    are ever compared.
    """

    def __init__(self, nc: Client, service: str, holder: str, clock: Clock) -> None:
        self._nc, self._service, self._holder, self._clock = nc, service, holder, clock
        self._revision: int | None = None
        self._valid_until_s = 0.0
        self._seen: tuple[int | None, float] = (None, 0.0)
        self._changed = asyncio.Event()

    def held(self) -> bool:
        """Whether the last renewal is younger than TTL_S."""
        return self._revision is not None and self._clock.steady_s() < self._valid_until_s

    async def wait_held(self) -> None:
        """Return once the lease is held."""
        while not self.held():
            self._changed.clear()
            await self._changed.wait()

    def give_up(self) -> None:
        """Let a rival have it: this process will wait at least TTL_S before it asks again."""
        self._revision = None
        self._seen = (None, self._clock.steady_s() + TTL_S)

    async def keep(self) -> None:
        """Seek and renew the lease until cancelled; then free it."""
        try:
            while True:
                await self._step()
                await asyncio.sleep(RENEW_S)
        finally:
            await self._free()

    async def _step(self) -> None:
        """Renew or seek. Whoever was only slow may renew where nobody took it."""
        before = self._clock.steady_s()
        try:
            kv = await self._bucket()
            if self._revision is not None:
                self._revision = await kv.update(self._service, self._value(), self._revision)
            else:
                self._revision = await self._seek(kv)
        except KeyWrongLastSequenceError:
            self._revision = None
        except (NatsError, TimeoutError, OSError) as error:
            _log.debug("lease not renewed", service=self._service, error=str(error))
            return
        if self._revision is not None:
            self._valid_until_s = before + TTL_S
            self._changed.set()

    async def _seek(self, kv: KeyValue) -> int | None:
        """Take the lease if it is free, or was not renewed while this process watched."""
        try:
            entry = await kv.get(self._service)
        except KeyNotFoundError:
            return await kv.create(self._service, self._value())
        now = self._clock.steady_s()
        revision = entry.revision or 0
        if revision != self._seen[0]:
            self._seen = (revision, max(now, self._seen[1]))
        if entry.value == FREE or now - self._seen[1] >= TTL_S:
            return await kv.update(self._service, self._value(), revision)
        return None

    def _value(self) -> bytes:
        return self._holder.encode()

    async def _bucket(self) -> KeyValue:
        js = self._nc.jetstream(timeout=1.0)
        try:
            return await js.key_value(BUCKET)
        except BucketNotFoundError:
            # Memory: a broker that restarts forgets who held what, and everyone asks again.
            config = KeyValueConfig(bucket=BUCKET, history=1, storage=StorageType.MEMORY)
            return await js.create_key_value(config)

    async def _free(self) -> None:
        if self._revision is None:
            return
        try:
            kv = await self._bucket()
            await kv.update(self._service, FREE, self._revision)
        except (NatsError, TimeoutError, OSError) as error:
            _log.debug("lease not freed", service=self._service, error=str(error))
        self._revision = None
