"""The documented manifest, and where the corpus lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from orca_schemas.yaml_load import load_documents

CORPUS = Path(__file__).parent / "corpus"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of recorded bodies."""
    return CORPUS


@pytest.fixture
def manifest() -> dict[str, Any]:
    """The documented manifest as a document, the test's own to change."""
    return load_documents((CORPUS / "llm-inference-job-001.yaml").read_bytes())[0]
