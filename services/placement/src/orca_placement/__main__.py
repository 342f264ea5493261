"""``python -m orca_placement`` runs the placement service."""

from __future__ import annotations

from orca_runtime.service import run

from orca_placement.app import SERVICE
from orca_placement.settings import Settings

if __name__ == "__main__":
    run(SERVICE, Settings())
