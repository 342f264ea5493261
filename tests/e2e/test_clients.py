"""Any NATS client can submit: the README's examples, run as a stranger would run them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from orca_client.connection import Connection
from stack_kit import RunningStack, ended, make_namespace

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
NODE_PACKAGES = Path(__file__).parent / "js"
INSTALL_S = 120
SUBMIT_S = 30


@pytest.fixture(scope="module")
def stack_with_quota(stack: RunningStack) -> RunningStack:
    """The stack, with the namespace that the examples submit to."""

    async def make() -> None:
        async with await Connection.open(stack.nats_url, "root") as root:
            await make_namespace(root, "team-alpha", {"tasks": 10})

    asyncio.run(make())
    return stack


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JavaScript example and the packages that its lock file names."""
    if not (shutil.which("node") and shutil.which("npm")):
        text = "node and npm are not installed: apt-get install nodejs npm"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    folder = tmp_path_factory.mktemp("js")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE_PACKAGES / name, folder)
    shutil.copy(EXAMPLES / "submit.mjs", folder)
    run(["npm", "ci", "--no-audit", "--no-fund"], folder, {}, INSTALL_S)
    return folder


def run(command: list[str], folder: Path, env: dict[str, str], limit_s: float) -> str:
    """Run a command; returns its output. A failure shows what it said."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | env, timeout=limit_s, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def runs_to_its_end(stack: RunningStack, command: list[str], folder: Path) -> None:
    """The example prints a task id, and that task succeeds."""
    env = {
        "NATS_URL": f"nats://127.0.0.1:{stack.nats_port}",
        "NATS_USER": "client",
        "NATS_PASSWORD": (stack.home / "access" / "client").read_text(),
    }
    printed = await asyncio.to_thread(run, command, folder, env, SUBMIT_S)
    task_id = uuid.UUID(printed.strip())
    async with await Connection.open(stack.nats_url, "alice") as alice:
        found = await ended(alice, task_id)
    assert (found.outcome, found.user) == ("succeeded", "alice"), found


async def test_a_plain_python_nats_client_runs_a_task(
    stack_with_quota: RunningStack, tmp_path: Path
) -> None:
    """Given only nats-py, when the example is run, its task succeeds."""
    example = str(EXAMPLES / "submit.py")
    await runs_to_its_end(stack_with_quota, [sys.executable, example], tmp_path)


@pytest.mark.node
async def test_the_official_javascript_client_runs_a_task(
    stack_with_quota: RunningStack, node_folder: Path
) -> None:
    """Given the official packages from npm, when the example is run, its task succeeds."""
    await runs_to_its_end(stack_with_quota, ["node", "submit.mjs"], node_folder)


def test_the_python_example_needs_no_orca_package() -> None:
    """The example imports nothing of this repository."""
    assert "import orca" not in (EXAMPLES / "submit.py").read_text()
