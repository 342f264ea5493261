"""The client's settings. Every environment variable begins with ORCA_."""

from __future__ import annotations

import getpass
import re
from pathlib import Path

from orca_schemas.identifiers import Label
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_USER = "user"


def login_label() -> str:
    """The login name as a DNS label: what is no letter or digit becomes a hyphen."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return DEFAULT_USER
    label = re.sub(r"[^a-z0-9-]+", "-", login.lower())[:63].strip("-")
    return label or DEFAULT_USER


class ClientSettings(BaseSettings):
    """Where Orca is, and who asks."""

    model_config = SettingsConfigDict(env_prefix="ORCA_", frozen=True, extra="ignore")

    nats_url: str = Field("nats://127.0.0.1:4222", description="Where the broker listens")
    clickhouse_url: str = Field(
        "http://127.0.0.1:8123",
        description="ClickHouse over HTTP: http[s]://[user[:password]@]host[:port][/database]",
    )
    user: Label = Field(
        default_factory=login_label, description="Who submits; default: the login name as a label"
    )
    nats_user: str | None = Field(None, description="The broker's user, where it asks for one")
    nats_password: SecretStr | None = Field(None, description="That user's password")
    data_dir: Path = Field(
        Path("~/.orca"), description="The embedded stack's data, or a service's: its snapshots"
    )
