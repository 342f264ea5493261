"""JSON Schemas (draft 2020-12) of every event's whole body and of the manifest."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from orca_schemas.codec import envelope_type
from orca_schemas.manifest import AITask
from orca_schemas.model import EventData

DIALECT = "https://json-schema.org/draft/2020-12/schema"
JsonSchema = dict[str, Any]


class PlainJsonSchema(GenerateJsonSchema):
    """Pydantic's schemas without what is no JSON Schema, or says nothing."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchema:
        """Leave out OpenAPI's discriminator: each member's tag is a constant already."""
        found = super().tagged_union_schema(schema)
        found.pop("discriminator", None)
        return found

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave out titles that only repeat the field's name."""
        return False


def event_schema(event: type[EventData]) -> JsonSchema:
    """The schema of an event's whole body."""
    schema = envelope_type(event).model_json_schema(schema_generator=PlainJsonSchema)
    schema["properties"]["type"] = {"const": event.type_name()}
    return {
        "$schema": DIALECT,
        "$id": f"urn:orca:{event.__name__}.v{event.VERSION}",
        **schema,
        "title": event.__name__,
        "description": event.__doc__,
    }


def manifest_schema() -> JsonSchema:
    """The schema of a manifest."""
    schema = AITask.model_json_schema(schema_generator=PlainJsonSchema)
    return {"$schema": DIALECT, "$id": "urn:orca:AITask", **schema}
