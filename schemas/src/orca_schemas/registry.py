"""All events by name."""

from __future__ import annotations

import inspect
from types import ModuleType

from orca_schemas.events import (
    admin,
    admission,
    billing,
    client,
    common,
    metering,
    node,
    placement,
    usage,
)
from orca_schemas.model import EventData


def _events_in(module: ModuleType) -> dict[str, type[EventData]]:
    return {
        name: found
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, EventData) and found.__module__ == module.__name__
    }


_MODULES = (client, admin, admission, placement, node, usage, metering, billing, common)

EVENTS: dict[str, type[EventData]] = {
    name: event for module in _MODULES for name, event in _events_in(module).items()
}
"""Every event class of this release, by event name."""
