"""The whole stack as processes, on free ports and in a directory of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from orca_client.connection import Connection
from stack_kit import RunningStack, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack that the tests of one module share."""
    home: Path = tmp_path_factory.mktemp("stack")
    with running_stack(home) as running:
        yield running


@pytest.fixture
async def alice(stack: RunningStack) -> AsyncIterator[Connection]:
    """A connection as the user alice."""
    async with await Connection.open(stack.nats_url, "alice") as connection:
        yield connection
