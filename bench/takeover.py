"""Take-over: ``kill -9`` of the active replica until its standby decides in its place.

Each decider runs twice, as real processes over one broker (sync always). What is measured ends
when the standby says ``orca_active``: it holds the lease, has folded the last own event, and
takes inputs. There is no ceiling to compare with: the lease's time to live is a choice (2 s,
renewed every 0.5 s), so a take-over takes 1.5 to 3 s and what the process itself needs on top.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from harness import arguments, broker, finish
from log import free_port
from orca_runtime.testing_nats import NatsServer

DECIDERS = ("admission", "placement", "metering", "billing")
LIMIT_S = 60.0
POLL_S = 0.02


class Replica:
    """One process of a decider; its metrics say how it is."""

    def __init__(self, server: NatsServer, service: str, folder: Path) -> None:
        self.service, self.port = service, free_port()
        self._env = os.environ | {
            "ORCA_NATS_URL": server.url, "ORCA_DATA_DIR": str(folder),
            "ORCA_METRICS_PORT": str(self.port), "ORCA_LOG_LEVEL": "ERROR",
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        command = [sys.executable, "-W", "ignore", "-m", f"orca_{self.service}"]
        self.process = subprocess.Popen(command, env=self._env)

    def end(self, how: signal.Signals) -> None:
        """End it and bury it."""
        self.process.send_signal(how)
        self.process.wait(30)

    async def says(self, gauge: str) -> bool:
        """Whether a gauge stands at 1; False while it does not answer."""
        with contextlib.suppress(OSError):
            page = await asyncio.to_thread(self._page)
            return f'{gauge}{{service="{self.service}"}} 1.0' in page
        return False

    def _page(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as page:
            found: str = page.read().decode()
        return found

    async def wait(self, gauge: str) -> None:
        """Return once the gauge stands at 1."""
        async with asyncio.timeout(LIMIT_S):
            while not await self.says(gauge):  # noqa: ASYNC110 - another process
                await asyncio.sleep(POLL_S)


async def take_overs(server: NatsServer, service: str, folder: Path, kills: int) -> list[float]:
    """Kill the active replica ``kills`` times; seconds until the other was active."""
    rng, taken = random.Random(service), []
    active = Replica(server, service, folder / f"{service}-a")
    await active.wait("orca_active")
    standby = Replica(server, service, folder / f"{service}-b")
    try:
        for _ in range(kills):
            await standby.wait("orca_ready")
            await asyncio.sleep(rng.uniform(1.0, 3.0))
            began = time.perf_counter()
            active.end(signal.SIGKILL)
            await standby.wait("orca_active")
            taken.append(time.perf_counter() - began)
            active, standby = standby, active
            standby.start()
    finally:
        active.end(signal.SIGTERM)
        standby.end(signal.SIGTERM)
    return taken


def told(taken: list[float]) -> dict[str, Any]:
    """Median and extremes, in seconds."""
    return {
        "kills": len(taken), "median_s": statistics.median(taken), "min_s": min(taken),
        "max_s": max(taken),
    }  # fmt: skip


async def main() -> None:
    """All deciders at once: a host that dies takes all its replicas with it."""
    options = arguments(__doc__ or "", kills=15)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="orca-bench-data-") as folder:
        async with broker("always") as server:
            found = await asyncio.gather(
                *(take_overs(server, name, Path(folder), options.kills) for name in DECIDERS)
            )
    by_name = {name: told(taken) for name, taken in zip(DECIDERS, found, strict=True)}
    everyone = [one for taken in found for one in taken]
    for name, one in by_name.items():
        print(f"{name}: median {one['median_s']:.2f} s, at most {one['max_s']:.2f} s")
    result = {
        "metric": "take_over", "value": statistics.median(everyone),
        "unit": "s from kill -9 of the active replica to the standby deciding",
        "aim": 3.0, "max": max(everyone), "load_average": [load, os.getloadavg()[0]],
        "deciders": by_name,
    }  # fmt: skip
    finish(options, result)


if __name__ == "__main__":
    asyncio.run(main())
