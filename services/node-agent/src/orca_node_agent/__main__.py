"""``python -m orca_node_agent``."""

from __future__ import annotations

from orca_node_agent.app import run
from orca_node_agent.settings import Settings

if __name__ == "__main__":
    run(Settings())
