"""``.env.example`` names every variable that a service reads, and nothing else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic_settings import BaseSettings

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"^#([A-Z_]+)=(.*)$", re.MULTILINE)


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("env_example", ROOT / "scripts/env_example.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


env_example = _generator()
MODELS = [model for _, model in env_example.SECTIONS]


def test_the_file_is_what_the_settings_say() -> None:
    """Given the settings classes, make generate would change nothing."""
    assert env_example.TARGET.read_text() == env_example.content()


def test_every_settings_class_is_in_it() -> None:
    """Given a settings class of any package, the generator knows it."""
    sources = [*ROOT.glob("*/src/*/settings.py"), *ROOT.glob("*/*/src/*/settings.py")]
    known = {Path(importlib.util.find_spec(m.__module__).origin) for m in MODELS}  # type: ignore[union-attr,arg-type]
    assert set(sources) == known


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__module__)
def test_the_defaults_it_shows_are_the_defaults(
    model: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an environment with exactly what a section shows, the settings are the defaults."""
    for name, _ in VARIABLE.findall(env_example.content()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    plain = model()
    shown = VARIABLE.findall(env_example.section("x", model))
    for name, value in shown:
        if value:
            monkeypatch.setenv(name, value.strip("'"))
    assert model() == plain
