"""``--long``: 5,000 tasks, 100 kills and the slow faults; ``--seed``: which moments."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this directory."""
    parser.addoption("--long", action="store_true", help="the long chaos run")
    parser.addoption("--seed", type=int, default=1, help="what the faults are drawn from")


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of this directory."""
    config.addinivalue_line("markers", "long: takes more than ten minutes; only with --long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the long run does."""
    if config.getoption("--long", default=False):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="only with --long"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What the faults are drawn from."""
    found: int = request.config.getoption("--seed", default=1)
    return found
