"""Settings: the only reader of the environment. Every variable begins with ORCA_."""

from __future__ import annotations

from pathlib import Path

from orca_schemas.subjects import inbox_prefix
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What every service needs to know."""

    model_config = SettingsConfigDict(env_prefix="ORCA_", frozen=True, extra="ignore")

    nats_url: str = Field("nats://127.0.0.1:4222", description="Where the broker listens")
    nats_user: str | None = Field(None, description="Broker user; none where the broker is open")
    nats_password: SecretStr | None = Field(None, description="The broker user's password")
    clickhouse_url: str = Field("http://127.0.0.1:8123", description="ClickHouse over HTTP")
    data_dir: Path = Field(Path(".orca"), description="Where snapshots and spools are kept")
    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus port; 0 serves none")
    otlp_endpoint: str | None = Field(None, description="OTLP/HTTP endpoint for traces; none: off")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    replica: str = Field("", description="Name of this replica; empty: host and process id")

    @property
    def inbox_prefix(self) -> str:
        """Where answers to this service go: nobody else may listen there."""
        return inbox_prefix(self.nats_user)
