"""What the README shows is what is run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack_kit import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The README's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def quick_start() -> list[str]:
    """The command lines of 'Use it', without their comments."""
    (block,) = [b for b in blocks("sh") if "orca up" in b]
    lines = (line.split("   #")[0].strip() for line in block.splitlines())
    return [line for line in lines if line and not line.startswith(".")]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment of its own for the commands; what they start is stopped afterwards."""
    nats, clickhouse = free_port(), free_port()
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ORCA_DATA_DIR": str(tmp_path / "orca"),
        "ORCA_NATS_PORT": str(nats),
        "ORCA_CLICKHOUSE_PORT": str(clickhouse),
        "ORCA_NATS_URL": f"nats://127.0.0.1:{nats}",
        "ORCA_CLICKHOUSE_URL": f"http://127.0.0.1:{clickhouse}",
        "ORCA_MAX_STORE_BYTES": str(512 * 2**20),
    }
    yield env
    subprocess.run(["orca", "down"], env=env, check=False, timeout=60, capture_output=True)


@pytest.mark.timeout(240)
def test_the_quick_start_runs_as_written(tmp_path: Path, shell: dict[str, str]) -> None:
    """Every line of 'Use it' ends with exit code 0, on the manifest shown below it."""
    (manifest,) = blocks("yaml")
    (tmp_path / "task.yaml").write_text(manifest)
    for line in quick_start():
        command = line.replace(" ID", f" {_newest_task(shell)}") if line.endswith(" ID") else line
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=shell, cwd=tmp_path, text=True, timeout=120,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def _newest_task(env: dict[str, str]) -> str:
    done = subprocess.run(
        ["orca", "get", "tasks", "--json"], env=env, text=True, capture_output=True, check=True
    )
    rows = json.loads(done.stdout)
    found = rows["tasks"] if isinstance(rows, dict) else rows
    task_id: str = found[0]["task_id"]
    return task_id


@pytest.mark.parametrize(("language", "example"), [("python", "submit.py"), ("js", "submit.mjs")])
def test_the_clients_shown_are_the_examples_that_are_tested(language: str, example: str) -> None:
    """test_clients.py runs the files; the README shows the same text."""
    assert (ROOT / "docs" / "examples" / example).read_text().strip() in [
        block.strip() for block in blocks(language)
    ]


def test_every_file_the_readme_names_exists() -> None:
    """Links into the repository lead somewhere."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
