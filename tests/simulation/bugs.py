"""Planted bugs."""

from __future__ import annotations

from tests.simulation.world import Cast


def cast_of(bug: str | None) -> Cast:
    """Who plays."""
    return Cast()
