"""docs/promises.md names tests: each must exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w/.-]+\.py)::(test_\w+)`")


def test_every_test_that_a_promise_names_exists() -> None:
    """Given the promises, then each test they rest on is defined where they say."""
    named = NAMED.findall((ROOT / "docs" / "promises.md").read_text())
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).exists() or f"def {test}(" not in (ROOT / file).read_text()
    ]
    assert missing == []
    assert len(named) > 30
