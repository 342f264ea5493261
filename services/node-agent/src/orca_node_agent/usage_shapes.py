"""A model call's ``usage``, in any of the shapes in use, as disjoint token classes.

OpenAI (chat and responses) counts details as subsets of the totals; Anthropic's ``input_tokens``
is the uncached part only. Details are clamped into their total, so the classes always add up to
it and none is negative. Shapes: OpenAI API reference (CompletionUsage, ResponseUsage), Anthropic
API reference (Usage).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orca_schemas.errors import MalformedError
from orca_schemas.values import TokenClasses

MAX_TOKENS_PER_REPORT = 10**12
"""Far above any call or batch of calls; keeps 9,000 of the largest reports below MAX_AMOUNT."""

_CLASSES = frozenset(TokenClasses.model_fields)
_ANTHROPIC_CACHE = (
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
)


@dataclass(frozen=True, slots=True)
class Normalised:
    """Disjoint classes; ``consistent`` False where the parts did not fit into their totals."""

    classes: TokenClasses
    consistent: bool = True


def normalise(usage: object) -> Normalised:
    """Read a usage object; raises MalformedError naming field, value and remedy."""
    if not isinstance(usage, Mapping) or not usage:
        raise MalformedError("usage", usage, "send the usage object of the model's answer")
    if _CLASSES & usage.keys():
        return _disjoint(usage)
    if usage.keys() & {"prompt_tokens", "completion_tokens"}:
        return _openai(usage, "prompt_tokens", "completion_tokens")
    if not usage.keys() & {"input_tokens", "output_tokens"}:
        raise MalformedError(
            "usage",
            sorted(map(str, usage)),
            "send prompt_tokens and completion_tokens, or input_tokens and output_tokens, "
            f"or some of {', '.join(TokenClasses.model_fields)}",
        )
    if any(field in usage for field in _ANTHROPIC_CACHE):
        return _anthropic(usage)
    return _openai(usage, "input_tokens", "output_tokens")


def _disjoint(usage: Mapping[str, Any]) -> Normalised:
    unknown = sorted(usage.keys() - _CLASSES)
    if unknown:
        raise MalformedError(
            f"usage.{unknown[0]}", usage[unknown[0]], "not a token class; remove it"
        )
    return _checked({name: _tokens(usage, name, "usage") for name in usage}, True)


def _openai(usage: Mapping[str, Any], input_name: str, output_name: str) -> Normalised:
    given = _tokens(usage, input_name, "usage"), _tokens(usage, output_name, "usage")
    inputs = _details(
        usage, f"{input_name}_details",
        {"cached_tokens": "input_cache_read", "cache_write_tokens": "input_cache_write",
         "audio_tokens": "input_audio", "image_tokens": "input_image"},
    )  # fmt: skip
    outputs = _details(
        usage, f"{output_name}_details",
        {"reasoning_tokens": "output_reasoning", "thinking_tokens": "output_reasoning",
         "audio_tokens": "output_audio", "image_tokens": "output_image"},
    )  # fmt: skip
    input_classes = _split(given[0], inputs, "input_uncached")
    output_classes = _split(given[1], outputs, "output_text")
    fits = sum(inputs.values()) <= given[0] and sum(outputs.values()) <= given[1]
    total = _tokens(usage, "total_tokens", "usage") if "total_tokens" in usage else sum(given)
    return _checked(input_classes | output_classes, fits and total == sum(given))


def _anthropic(usage: Mapping[str, Any]) -> Normalised:
    written = _tokens(usage, "cache_creation_input_tokens", "usage")
    by_age = _details(
        usage, "cache_creation",
        {"ephemeral_5m_input_tokens": "5m", "ephemeral_1h_input_tokens": "1h"},
    )  # fmt: skip
    outputs = _details(usage, "output_tokens_details", {"thinking_tokens": "output_reasoning"})
    total = _tokens(usage, "output_tokens", "usage")
    classes = {
        "input_uncached": _tokens(usage, "input_tokens", "usage"),
        "input_cache_read": _tokens(usage, "cache_read_input_tokens", "usage"),
        "input_cache_write": max(written, sum(by_age.values())),
    } | _split(total, outputs, "output_text")
    fits = sum(outputs.values()) <= total and (not by_age or written == sum(by_age.values()))
    return _checked(classes, fits)


def _details(usage: Mapping[str, Any], name: str, known: Mapping[str, str]) -> dict[str, int]:
    """The parts of a total that have a class of their own; absent and null are none."""
    details = usage.get(name)
    if details is None:
        return {}
    if not isinstance(details, Mapping):
        raise MalformedError(f"usage.{name}", details, "send an object, or leave it out")
    return {
        class_: _tokens(details, field, f"usage.{name}")
        for field, class_ in known.items()
        if field in details
    }


def _split(total: int, parts: Mapping[str, int], rest: str) -> dict[str, int]:
    """Divide a total: each part as far as it fits, what remains to ``rest``."""
    classes, left = {}, total
    for name, amount in parts.items():
        classes[name] = min(amount, left)
        left -= classes[name]
    return classes | {rest: left}


def _tokens(owner: Mapping[str, Any], name: str, path: str) -> int:
    value = owner.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedError(f"{path}.{name}", value, "send a whole number of tokens, such as 128")
    if not 0 <= value <= MAX_TOKENS_PER_REPORT:
        raise MalformedError(
            f"{path}.{name}", value, f"send between 0 and {MAX_TOKENS_PER_REPORT} tokens"
        )
    return value


def _checked(classes: Mapping[str, int], consistent: bool) -> Normalised:
    return Normalised(TokenClasses(**classes), consistent)
