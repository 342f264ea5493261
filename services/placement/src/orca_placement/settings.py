"""What placement needs to know of its surroundings."""

from __future__ import annotations

from orca_runtime.settings import ServiceSettings


class Settings(ServiceSettings):
    """Nothing of its own yet: its delays are part of the contract and stand in limits.py."""
