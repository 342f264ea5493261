"""From pydantic's report to one sentence for a person: the field, what stood there, the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orca_schemas.patterns import REMEDIES

SHOWN_ERRORS = 5
MAX_SPELLING_CHARS = 64
"""Names longer than this are not compared with the known ones: comparing is slow."""

_INTEGER = "write a whole number, without quotes or a fraction"
_MAPPING = "write a mapping of fields"
_UUID = "use a UUID such as uuidgen prints"
_REMEDIES = {
    "missing": "this field is required; add it",
    "int_type": _INTEGER,
    "int_from_float": _INTEGER,
    "int_parsing": _INTEGER,
    "finite_number": "write a finite whole number",
    "bool_type": "write true or false, without quotes",
    "bool_parsing": "write true or false, without quotes",
    "string_type": "write text; put it in quotes",
    "string_unicode": "write text in valid UTF-8, without lone surrogates",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "tuple_type": "write a list",
    "list_type": "write a list",
    "uuid_type": _UUID,
    "uuid_parsing": _UUID,
    "greater_than_equal": "write at least {ge}",
    "less_than_equal": "write at most {le}",
    "literal_error": "use {expected}",
    "enum": "use {expected}",
    "too_short": "give at least {min_length}",
    "too_long": "give at most {max_length}",
    "string_too_short": "write at least {min_length} characters",
    "string_too_long": "write at most {max_length} characters",
    "union_tag_invalid": "use one of {expected_tags}",
    "union_tag_not_found": "say which it is: {discriminator} is missing",
}


def explain(
    error: ValidationError, prefix: str, model: type[BaseModel] | None
) -> tuple[str, object, str]:
    """Return the first wrong field, what stood there and the remedy, with the next few fields."""
    details = sorted(error.errors(include_url=False), key=_is_missing)
    first = details[0]
    others = [
        _path(detail, prefix) for detail in details[1:SHOWN_ERRORS] if not _is_outer(detail, first)
    ]
    more = f"; also wrong: {', '.join(others)}" if others else ""
    return _path(first, prefix), _input(first), f"{_remedy(first, model)}{more}"


def _is_missing(detail: Any) -> bool:
    # A misspelled field is reported twice, and what the person wrote is the better clue.
    return bool(detail["type"] == "missing")


def _is_outer(detail: Any, inner: Any) -> bool:
    # A list whose item is wrong is reported a second time, as too short.
    loc = detail["loc"]
    return bool(inner["loc"][: len(loc)] == loc)


def _path(detail: Any, prefix: str) -> str:
    parts = [prefix, *(str(part) for part in detail["loc"])]
    return ".".join(part for part in parts if part) or "body"


def _input(detail: Any) -> object:
    return "(missing)" if detail["type"] == "missing" else detail["input"]


def _remedy(detail: Any, model: type[BaseModel] | None) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(detail["loc"], model)
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return REMEDIES.get(pattern, f"it must match {pattern}")
    if kind == "json_invalid":
        return f"not JSON ({context['error']}); send a JSON object"
    if kind in _REMEDIES:
        return _REMEDIES[kind].format(**context)
    message: str = detail["msg"]
    return message.removeprefix("Value error, ")


def _unknown_field(loc: tuple[int | str, ...], model: type[BaseModel] | None) -> str:
    plain = "this field is not known here; remove it or check its spelling"
    owner = None if model is None else _model_at(model, loc[:-1])
    name = str(loc[-1])
    if owner is None or len(name) > MAX_SPELLING_CHARS:
        return plain
    near = get_close_matches(name, names_of(owner), n=1)
    if near:
        return f"this field is not known here; did you mean {near[0]}?"
    return f"{plain}; known here: {', '.join(names_of(owner))}"


def names_of(model: type[BaseModel]) -> dict[str, str]:
    """The names that a model's fields have in JSON, each with the field's name in Python."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    for part in loc:
        if isinstance(part, int):
            continue
        name = names_of(model).get(part)
        inner = None if name is None else next(models_in(model.model_fields[name].annotation), None)
        if inner is None:
            return None
        model = inner
    return model


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model that an annotation speaks of: itself, an item, one of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)
