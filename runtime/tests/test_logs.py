"""What a service writes to its log."""

from __future__ import annotations

import io

import pytest
import structlog
from orca_runtime import logs


def test_a_traceback_shows_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an error where a secret is at hand, when it is logged, then the secret is not."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    before = structlog.get_config()
    try:
        logs.configure("toy", "INFO")
        password = "pass" + "word-1"
        try:
            raise RuntimeError(f"of {len(password)}")
        except RuntimeError:
            structlog.get_logger().exception("failed")
    finally:
        structlog.configure(**before)
        structlog.contextvars.clear_contextvars()
    assert "of 10" in written.getvalue()
    assert "password-1" not in written.getvalue()
