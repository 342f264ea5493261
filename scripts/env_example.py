"""Write ``.env.example`` from the settings classes, or check that it equals them (``--check``)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from textwrap import wrap

from orca_admission.settings import Settings as AdmissionSettings
from orca_billing.settings import Settings as BillingSettings
from orca_client.settings import ClientSettings
from orca_embedded.settings import StackSettings
from orca_metering.settings import Settings as MeteringSettings
from orca_node_agent.settings import Settings as NodeAgentSettings
from orca_placement.settings import Settings as PlacementSettings
from orca_runtime.settings import ServiceSettings
from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

TARGET = Path(__file__).parents[1] / ".env.example"
SECTIONS: tuple[tuple[str, type[BaseSettings]], ...] = (
    ("The orca command and the client library", ClientSettings),
    ("Every service", ServiceSettings),
    ("admission", AdmissionSettings),
    ("placement", PlacementSettings),
    ("metering", MeteringSettings),
    ("billing", BillingSettings),
    ("node-agent, besides what every service reads", NodeAgentSettings),
    ("The embedded stack (orca up), which sets what its services read", StackSettings),
)
HEAD = """\
# Every variable that Orca reads, with its default. Written by make generate; do not edit.
# Copy it, take the '#' before a variable away, and: set -a; . ./.env; set +a
"""
COLUMNS = 98


def variable(name: str, field: FieldInfo) -> str:
    """The environment variable of a field."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return str(alias.choices[0])
    return f"ORCA_{name.upper()}"


def default(field: FieldInfo) -> tuple[str, str]:
    """A field's default as the environment holds it, and a remark where it holds none."""
    if field.default_factory is not None:
        return "", " (default: found on the machine)"
    value = field.default
    if value is None:
        return "", " (default: not set)"
    if isinstance(value, bool):
        return str(value).lower(), ""
    text = str(value.value if isinstance(value, Enum) else value)
    return (f"'{text}'" if set(text) & set(" ;$~&") else text), ""


def own_fields(model: type[BaseSettings]) -> Iterator[tuple[str, FieldInfo]]:
    """The fields that a service has besides those of every service."""
    shared = {} if model is ServiceSettings else ServiceSettings.model_fields
    inherited = shared if issubclass(model, ServiceSettings) else {}
    return ((name, f) for name, f in model.model_fields.items() if name not in inherited)


def section(title: str, model: type[BaseSettings]) -> str:
    """One block of the file; empty where a service has nothing of its own."""
    lines = []
    for name, field in own_fields(model):
        value, remark = default(field)
        assert field.description, f"{model.__name__}.{name} needs a description"
        lines += [f"# {line}" for line in wrap(field.description + remark, COLUMNS)]
        lines.append(f"#{variable(name, field)}={value}")
    return "\n".join([f"\n## {title}", *lines, ""]) if lines else ""


def content() -> str:
    """The whole file."""
    return HEAD + "".join(section(title, model) for title, model in SECTIONS)


def main(arguments: list[str]) -> int:
    """Write the file, or compare; 1 and a line on stderr where it differs."""
    if "--check" not in arguments:
        TARGET.write_text(content())
        return 0
    if TARGET.exists() and TARGET.read_text() == content():
        return 0
    print(f"{TARGET.name} is not what the settings say; run: make generate", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
