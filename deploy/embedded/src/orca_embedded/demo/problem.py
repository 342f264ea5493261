"""Why a demo ends early."""

from __future__ import annotations


class DemoError(Exception):
    """Something did not happen as the story says; the text is for a person."""
