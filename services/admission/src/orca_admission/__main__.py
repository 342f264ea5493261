"""Run the admission service: ``python -m orca_admission``."""

from __future__ import annotations

from orca_runtime.service import run

from orca_admission.app import SERVICE
from orca_admission.settings import Settings

if __name__ == "__main__":
    run(SERVICE, Settings())
