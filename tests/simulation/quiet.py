"""Silence for the services' logs: thousands of planned faults would fill the screen."""

from __future__ import annotations

import logging

import structlog


def be_quiet() -> None:
    """Let only what is critical through; call before anything logs."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
