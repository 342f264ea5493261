"""What the demo plays: prices, three teams, their quotas, their tasks and how each is to end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orca_schemas.values import Outcome, ReasonCode

WORKER = Path(__file__).with_name("worker.py")
NODES = "node-1=A100:2;node-2=H100:2"
CHAT, CODE = "chat-70b", "code-34b"
CPU_MILLI = 200

PRICES = {
    "gpu:A100": "3.60",
    "gpu:H100": "7.20",
    "cpu": "0.036",
    f"tokens:{CHAT}:input_uncached": "0.60",
    f"tokens:{CHAT}:output_text": "2.40",
    f"tokens:{CODE}:input_uncached": "0.25",
    f"tokens:{CODE}:output_text": "1.25",
}
"""US dollars per GPU-hour, core-hour, million tokens. Those per hour are multiples of $0.0036, so
that a millisecond of a thousandth has a price without rounding."""

QUOTAS = {
    "team-alpha": ("gpus=2", "tokens=400000"),
    "team-beta": ("gpus=4", "tokens=300000"),
    "team-gamma": ("gpus=1", "tokens=60000"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One task: what it asks, what its program does, what is to happen to it.

    ``gpus`` are (type, count, percent of each); ``waits`` is the event that must stand in its
    life before it runs, and the code of that event's reason.
    """

    team: str
    name: str
    gpus: tuple[str, int, int] | None
    token_quota: int
    service: str
    calls: int
    seconds: float
    outcome: str
    waits: tuple[str, ReasonCode] | None = None

    @property
    def model(self) -> str:
        """The model that its calls name."""
        return CHAT if self.service == "conv" else CODE

    @property
    def gpu_milli(self) -> int:
        """Milli-GPUs asked for."""
        return 0 if self.gpus is None else self.gpus[1] * self.gpus[2] * 10

    def asks(self) -> str:
        """What it asks for, in words: GPUs, tokens."""
        if self.gpus is None:
            return f"no GPU, {self.token_quota:,}"
        kind, count, percent = self.gpus
        return f"{count * percent / 100:g} x {kind}, {self.token_quota:,}"

    def manifest(self) -> dict[str, Any]:
        """The AITask that a user of the team would submit."""
        resources: dict[str, Any] = {
            "cpu": f"{CPU_MILLI}m", "memory": "128Mi", "tokenQuota": self.token_quota,
        }  # fmt: skip
        if self.gpus is not None:
            kind, count, percent = self.gpus
            resources["gpu"] = {"type": kind, "count": count}
            if percent < 100:
                resources["gpu"] |= {
                    "sharing": "shared", "computePercent": percent, "memoryLimit": "40Gi",
                }  # fmt: skip
        command = [
            sys.executable, "-I", str(WORKER), "--service", self.service, "--model", self.model,
            "--calls", str(self.calls), "--seconds", str(self.seconds),
        ]  # fmt: skip
        return {
            "apiVersion": "orca.ai/v1",
            "kind": "AITask",
            "metadata": {"name": self.name, "namespace": self.team},
            "spec": {
                "taskType": "inference", "image": "orca-demo:process", "command": command,
                "resources": resources,
            },
        }  # fmt: skip


FIRST = Part("team-gamma", "long-context", ("A100", 1, 100), 500_000, "code", 10, 1.0, "refused")
"""Submitted while every GPU is idle."""

REST = (
    Part("team-alpha", "chat-day", ("A100", 2, 100), 100_000, "conv", 60, 6.0, Outcome.SUCCEEDED),
    Part(
        "team-alpha", "chat-night", ("H100", 1, 100), 50_000, "conv", 30, 2.0, Outcome.SUCCEEDED,
        waits=("TaskQueued", ReasonCode.QUOTA_GPU),
    ),
    Part(
        "team-beta", "code-index", ("A100", 1, 100), 80_000, "code", 20, 2.0, Outcome.SUCCEEDED,
        waits=("PlacementDeferred", ReasonCode.CAPACITY_GPU),
    ),
    Part(
        "team-beta", "runaway", ("H100", 1, 100), 20_000, "code", 200, 60.0,
        Outcome.QUOTA_EXHAUSTED,
    ),
    Part("team-beta", "code-review", ("H100", 1, 50), 50_000, "code", 12, 3.0, Outcome.SUCCEEDED),
    Part("team-gamma", "chat-lab", ("H100", 1, 50), 25_000, "conv", 20, 3.0, Outcome.SUCCEEDED),
    Part("team-gamma", "report", None, 20_000, "conv", 12, 1.5, Outcome.SUCCEEDED),
)  # fmt: skip
"""Submitted one after the other, at once."""
