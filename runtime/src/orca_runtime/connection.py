"""How every connection to the broker is made: the options that carry weight, spelled out."""

from __future__ import annotations

from typing import Any

from faststream.security import SASLPlaintext

from orca_runtime.settings import ServiceSettings

CONNECT_OPTIONS: dict[str, Any] = {
    # For ever: a service outlives its broker.
    "max_reconnect_attempts": -1,
    "reconnect_time_wait": 1,
    "connect_timeout": 2,
    # A dead connection is found in 20 s, not in nats-py's 6 minutes.
    "ping_interval": 10,
    "max_outstanding_pings": 2,
}


def connection_options(settings: ServiceSettings) -> dict[str, Any]:
    """Options of a FastStream broker, with the service's identity where it has one."""
    if settings.nats_user is None or settings.nats_password is None:
        return dict(CONNECT_OPTIONS)
    password = settings.nats_password.get_secret_value()
    security = SASLPlaintext(username=settings.nats_user, password=password, use_ssl=False)
    return {**CONNECT_OPTIONS, "security": security, "inbox_prefix": settings.inbox_prefix}
