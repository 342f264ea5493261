"""The log on NATS JetStream."""

from orca_runtime.jetstream.append import Patience
from orca_runtime.jetstream.connect import RefusedError
from orca_runtime.jetstream.log import JetStreamLog

__all__ = ["JetStreamLog", "Patience", "RefusedError"]
