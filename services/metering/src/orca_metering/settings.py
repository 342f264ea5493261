"""What metering needs to know of its surroundings."""

from __future__ import annotations

from orca_runtime.settings import ServiceSettings


class Settings(ServiceSettings):
    """Nothing beyond what every service needs; ORCA_CLICKHOUSE_URL is where its tables go."""
