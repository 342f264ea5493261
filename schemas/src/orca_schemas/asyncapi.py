"""The AsyncAPI 3.0 document: every event and question, where it goes and who says it."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from orca_schemas.asks import Reply
from orca_schemas.codec import may_say
from orca_schemas.json_schemas import PlainJsonSchema
from orca_schemas.model import EventData
from orca_schemas.questions import QUESTIONS
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import ROOT, STREAM_OF_ROLE, Kind, Role

Document = dict[str, Any]

_PARAMETERS = {
    "namespace": "The account: a lower-case DNS label, or _cluster for what belongs to no tenant.",
    "kind": "What the event is about.",
    "id": "A UUID for a task or price, else a lower-case DNS label.",
    "role": "The service that speaks.",
    "user": "Who speaks: a lower-case DNS label.",
    "node": "The node that speaks: a lower-case DNS label.",
    "party": "The addressed node for orders, else a hyphen.",
}
_PARTY = {Role.CLIENT: "user", Role.ADMIN: "user", Role.NODE: "node", Role.PROBE: "node"}
_ENUMS = {
    "kind": [kind.value for kind in Kind],
    "role": [role.value for role in Role if role not in _PARTY],
}

_DESCRIPTION = (
    "The log of Orca. An event's subject has seven tokens and says who speaks; its body is "
    "CloudEvents 1.0 in JSON. A client need send only type and data. Questions are request and "
    "reply on the same bus; the answer comes to the reply subject of the request."
)


def asyncapi(version: str) -> Document:
    """Build the document; ``version`` is the release's."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Orca",
            "version": version,
            "description": _DESCRIPTION,
            "license": {
                "name": "Apache-2.0",
                "url": "https://www.apache.org/licenses/LICENSE-2.0",
            },
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "description": "The broker as the quick start runs it",
            }
        },
        "channels": _event_channels() | _question_channels(),
        "operations": _event_operations() | _question_operations(),
        "components": {"messages": _event_messages(), "schemas": _question_schemas()},
    }


def address(event: type[EventData]) -> str:
    """The subject of an event with its variable tokens in braces."""
    kind = event.KIND or "{kind}"
    role = event.ROLE or "{role}"
    party = "party" if event.ROLE is None else _PARTY.get(event.ROLE, "party")
    return f"{ROOT}.{{namespace}}.{kind}.{{id}}.{role}.{{{party}}}.{event.__name__}"


def _parameters(address_: str) -> Document:
    return {
        name: {"description": text} | ({"enum": _ENUMS[name]} if name in _ENUMS else {})
        for name, text in _PARAMETERS.items()
        if f"{{{name}}}" in address_
    }


def _message_name(event: type[EventData]) -> str:
    return f"{event.__name__}.v{event.VERSION}"


def first_paragraph(documented: type) -> str:
    """The first paragraph of a docstring, without its markup."""
    paragraph = (documented.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).replace("`", "")


def _event_channels() -> Document:
    return {
        name: {
            "address": address(event),
            "description": first_paragraph(event),
            "parameters": _parameters(address(event)),
            "messages": {
                _message_name(event): {"$ref": f"#/components/messages/{_message_name(event)}"}
            },
        }
        for name, event in EVENTS.items()
    }


def _event_operations() -> Document:
    return {
        f"{role}.sends.{name}": {
            "action": "send",
            "title": f"{role} says {name}",
            "channel": {"$ref": f"#/channels/{name}"},
            "messages": [{"$ref": f"#/channels/{name}/messages/{_message_name(event)}"}],
            "tags": [{"name": str(role)}, {"name": f"stream {STREAM_OF_ROLE[role]}"}],
        }
        for role in Role
        for name, event in EVENTS.items()
        if may_say(role, event)
    }


def _event_messages() -> Document:
    return {
        _message_name(event): {
            "name": event.type_name(),
            "title": event.__name__,
            "summary": first_paragraph(event),
            "contentType": "application/cloudevents+json",
            "payload": {"$ref": f"../json/{_message_name(event)}.json"},
        }
        for event in EVENTS.values()
    }


def _question_channels() -> Document:
    channels: Document = {}
    for name, question in QUESTIONS.items():
        where = f"{ROOT}.ask.{{namespace}}.{{user}}.{name}"
        asked = {} if question.query is None else _ref(question.query.__name__)
        channels[f"ask.{name}"] = {
            "address": where,
            "description": f"Asks {name}.",
            "parameters": _parameters(where),
            "messages": {"question": {"payload": asked or {"type": "object", "maxProperties": 0}}},
        }
        channels[f"answer.{name}"] = {
            "address": None,
            "description": f"Answers {name}, on the request's reply subject.",
            "messages": {"answer": {"payload": _answer(question.answer.__name__)}},
        }
    return channels


def _ref(model: str) -> Document:
    return {"$ref": f"#/components/schemas/{model}"}


def _answer(model: str) -> Document:
    return {"allOf": [_ref("Reply"), {"properties": {"data": _ref(model)}}]}


def _question_operations() -> Document:
    return {
        f"{name.split('.')[0]}.answers.{name.split('.')[1]}": {
            "action": "receive",
            "title": f"{name.split('.')[0]} answers {name.split('.')[1]}",
            "channel": {"$ref": f"#/channels/ask.{name}"},
            "messages": [{"$ref": f"#/channels/ask.{name}/messages/question"}],
            "reply": {
                "channel": {"$ref": f"#/channels/answer.{name}"},
                "messages": [{"$ref": f"#/channels/answer.{name}/messages/answer"}],
            },
        }
        for name in QUESTIONS
    }


def _question_schemas() -> Document:
    models = {model for question in QUESTIONS.values() for model in question if model} | {Reply}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema(
        [(model, "validation") for model in ordered],
        ref_template="#/components/schemas/{model}",
        schema_generator=PlainJsonSchema,
    )
    schemas: Document = found["$defs"]
    return schemas
