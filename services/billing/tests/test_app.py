"""The service is put together as it is run."""

from __future__ import annotations

from orca_billing.app import SERVICE
from orca_billing.settings import Settings


def test_the_service_is_complete() -> None:
    """Its name is its role; each projector has a name of its own and streams to read."""
    projectors = SERVICE.projectors(Settings(clickhouse_url="http://127.0.0.1:1"))
    names = [projector.name for projector in projectors]
    assert SERVICE.name == SERVICE.decider.role == "billing"
    assert len(set(names)) == len(names) > 0
    assert all(projector.streams for projector in projectors)
