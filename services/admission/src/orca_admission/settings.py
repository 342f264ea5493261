"""Settings of the admission service."""

from __future__ import annotations

from orca_runtime.settings import ServiceSettings


class Settings(ServiceSettings):
    """What every service needs; its rules are constants, and limits come from the log."""
