"""What a service writes to its log."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import structlog
from orca_runtime import logs


@pytest.fixture
def configured() -> Iterator[None]:
    """Logs as a service writes them, for one test."""
    before = structlog.get_config()
    logs.configure("toy", "INFO")
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


@pytest.mark.usefixtures("configured")
def test_who_logs_does_not_fail_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given standard error that is closed, then the line is lost and nothing else; a later one
    is written where standard error is then."""
    log, closed, written = structlog.get_logger(), io.StringIO(), io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    log.info("lost")
    monkeypatch.setattr("sys.stderr", written)
    log.info("seen")
    assert "seen" in written.getvalue()


@pytest.mark.usefixtures("configured")
def test_a_traceback_shows_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an error where a secret is at hand, when it is logged, then the secret is not."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    password = "pass" + "word-1"
    try:
        raise RuntimeError(f"of {len(password)}")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    assert "of 10" in written.getvalue()
    assert "password-1" not in written.getvalue()
