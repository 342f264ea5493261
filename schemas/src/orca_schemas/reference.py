"""The reference pages: tables of the manifest's fields and of the events."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from orca_schemas.asyncapi import address, first_paragraph
from orca_schemas.explain import models_in
from orca_schemas.manifest import AITask
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import STREAM_OF_ROLE
from orca_schemas.units import parse_cpu_milli, parse_duration_ms, parse_memory_mib

_DO_NOT_EDIT = "<!-- Written by `python -m orca_schemas.generate`; do not edit. -->"
_QUANTITIES = {parse_cpu_milli: "CPU", parse_memory_mib: "memory", parse_duration_ms: "duration"}
_WRITTEN = {parse_cpu_milli: "{}m", parse_memory_mib: "{}Mi", parse_duration_ms: "{}ms"}


def manifest_page() -> str:
    """Every field of a manifest: its path, what may stand there, the default, the meaning."""
    rows = "\n".join(_rows(AITask, ""))
    return (
        f"# The manifest\n\n{_DO_NOT_EDIT}\n\n"
        'Quantities: CPU is cores or milli-cores (`"4"`, `"500m"`), memory a whole number of '
        "MiB (`16Gi`, `512Mi`), a duration days to milliseconds (`2h`, `1h30m`).\n\n"
        f"| field | what may stand there | default | meaning |\n| --- | --- | --- | --- |\n{rows}\n"
    )


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    properties = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        alias = field.alias or name
        inner = next(models_in(field.annotation), None)
        dots = "[]" if "array" in _texts(properties[alias]) else ""
        cells = (_what(field, properties[alias], inner), _default(field), field.description or "")
        yield f"| `{prefix}{alias}` | {' | '.join(cells)} |"
        if inner is not None:
            yield from _rows(inner, f"{prefix}{alias}{dots}.")


def _texts(schema: dict[str, Any]) -> str:
    return str(schema.get("type", ""))


def _what(field: FieldInfo, schema: dict[str, Any], inner: type[BaseModel] | None) -> str:
    quantity = _parser(field)
    if quantity is not None:
        return _QUANTITIES[quantity]
    if inner is not None:
        return "list" if schema.get("type") == "array" else "mapping"
    plain = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in field.annotation)
    return _of_schema(plain)


def _of_schema(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    names = {"string": "text", "boolean": "true or false", "array": "list", "object": "mapping"}
    if schema["type"] != "integer":
        return names[schema["type"]]
    return f"{schema['minimum']} to {schema['maximum']}"


def _parser(field: FieldInfo) -> Any:
    for found in _metadata(field):
        if isinstance(found, BeforeValidator) and found.func in _QUANTITIES:
            return found.func
    return None


def _metadata(field: FieldInfo) -> Iterator[Any]:
    yield from field.metadata
    for inner in getattr(field.annotation, "__args__", ()):
        yield from getattr(inner, "__metadata__", ())


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None or isinstance(value, (BaseModel, dict, tuple)):
        return ""
    parser = _parser(field)
    if parser is not None:
        return f"`{_WRITTEN[parser].format(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def events_page() -> str:
    """Every event: its stream, its subject, its fields, its meaning."""
    rows = "\n".join(
        f"| {name} | {'each decider' if event.ROLE is None else STREAM_OF_ROLE[event.ROLE]} "
        f"| `{address(event)}` | {', '.join(f'`{field}`' for field in event.model_fields)} "
        f"| {first_paragraph(event)} |"
        for name, event in EVENTS.items()
    )
    return (
        f"# Events\n\n{_DO_NOT_EDIT}\n\n"
        "| event | stream | subject | data | meaning |\n| --- | --- | --- | --- | --- |\n"
        f"{rows}\n"
    )
