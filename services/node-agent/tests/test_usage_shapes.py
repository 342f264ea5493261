"""Usage objects in every shape, as disjoint classes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_node_agent.usage_shapes import MAX_TOKENS_PER_REPORT, normalise
from orca_schemas.errors import MalformedError


def classes(usage: dict[str, Any]) -> dict[str, int]:
    return {name: amount for name, amount in normalise(usage).classes.items() if amount}


@pytest.mark.parametrize(
    ("usage", "expected", "consistent"),
    [
        pytest.param({"input_uncached": 5, "output_text": 2},
                     {"input_uncached": 5, "output_text": 2}, True, id="disjoint"),
        pytest.param({"output_text": 0}, {}, True, id="disjoint, nothing used"),
        pytest.param({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
                     {"input_uncached": 9, "output_text": 4}, True, id="openai chat"),
        pytest.param({"prompt_tokens": 2006, "completion_tokens": 977, "total_tokens": 2983,
                      "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
                      "completion_tokens_details": {"reasoning_tokens": 768,
                                                    "accepted_prediction_tokens": 0,
                                                    "rejected_prediction_tokens": 9}},
                     {"input_cache_read": 1920, "input_uncached": 86,
                      "output_reasoning": 768, "output_text": 209}, True,
                     id="openai chat: details are parts, reasoning is not added"),
        pytest.param({"prompt_tokens": 8, "total_tokens": 8}, {"input_uncached": 8}, True,
                     id="openai embeddings"),
        pytest.param({"prompt_tokens": 10, "completion_tokens": 0,
                      "prompt_tokens_details": {"cached_tokens": 8, "image_tokens": 6}},
                     {"input_cache_read": 8, "input_image": 2}, False,
                     id="parts that overlap are clamped"),
        pytest.param({"prompt_tokens": 10, "completion_tokens": 3,
                      "completion_tokens_details": {"reasoning_tokens": 50}},
                     {"input_uncached": 10, "output_reasoning": 3}, False,
                     id="a part larger than its total"),
        pytest.param({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 99},
                     {"input_uncached": 10, "output_text": 3}, False,
                     id="a total that does not add up"),
        pytest.param({"prompt_tokens": 1, "completion_tokens": 1,
                      "prompt_tokens_details": None, "completion_tokens_details": None},
                     {"input_uncached": 1, "output_text": 1}, True, id="null details"),
        pytest.param({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40,
                                                                    "cache_write_tokens": 5},
                      "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 20},
                      "total_tokens": 130},
                     {"input_cache_read": 40, "input_cache_write": 5, "input_uncached": 55,
                      "output_reasoning": 20, "output_text": 10}, True, id="openai responses"),
        pytest.param({"input_tokens": 12, "output_tokens": 7, "cache_read_input_tokens": 1000,
                      "cache_creation_input_tokens": 50, "service_tier": "standard"},
                     {"input_uncached": 12, "input_cache_read": 1000, "input_cache_write": 50,
                      "output_text": 7}, True, id="anthropic: input is the uncached part only"),
        pytest.param({"input_tokens": 1, "output_tokens": 9, "cache_creation_input_tokens": 30,
                      "cache_creation": {"ephemeral_5m_input_tokens": 10,
                                         "ephemeral_1h_input_tokens": 20},
                      "output_tokens_details": {"thinking_tokens": 5}},
                     {"input_uncached": 1, "input_cache_write": 30, "output_reasoning": 5,
                      "output_text": 4}, True, id="anthropic with cache ages and thinking"),
        pytest.param({"input_tokens": 3, "output_tokens": 2},
                     {"input_uncached": 3, "output_text": 2}, True, id="either, no cache"),
    ],
)  # fmt: skip
def test_shapes(usage: dict[str, Any], expected: dict[str, int], consistent: bool) -> None:
    """Given a usage object, then every token is in exactly one class."""
    assert classes(usage) == expected
    assert normalise(usage).consistent is consistent


@pytest.mark.parametrize(
    ("usage", "field"),
    [
        (None, "usage"),
        ([], "usage"),
        ({}, "usage"),
        ("12", "usage"),
        ({"tokens": 5}, "usage"),
        ({"prompt_tokens": -1}, "usage.prompt_tokens"),
        ({"prompt_tokens": 1.0}, "usage.prompt_tokens"),
        ({"prompt_tokens": float("nan")}, "usage.prompt_tokens"),
        ({"prompt_tokens": True}, "usage.prompt_tokens"),
        ({"prompt_tokens": "7"}, "usage.prompt_tokens"),
        ({"prompt_tokens": MAX_TOKENS_PER_REPORT + 1}, "usage.prompt_tokens"),
        ({"prompt_tokens": 1, "completion_tokens": -2}, "usage.completion_tokens"),
        ({"prompt_tokens": 1, "total_tokens": -2}, "usage.total_tokens"),
        ({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": -1}},
         "usage.prompt_tokens_details.cached_tokens"),
        ({"prompt_tokens": 1, "prompt_tokens_details": [1]}, "usage.prompt_tokens_details"),
        ({"input_tokens": 1, "cache_read_input_tokens": 0.5}, "usage.cache_read_input_tokens"),
        ({"input_uncached": 1, "speed": 3}, "usage.speed"),
        ({"output_text": 10**30}, "usage.output_text"),
    ],
)  # fmt: skip
def test_malformed(usage: object, field: str) -> None:
    """Given nonsense, then the error names the field, the value and the remedy."""
    with pytest.raises(MalformedError) as caught:
        normalise(usage)
    assert caught.value.field == field
    assert caught.value.remedy


amounts = st.integers(min_value=0, max_value=10_000)


@given(
    prompt=amounts, completion=amounts,
    inputs=st.dictionaries(
        st.sampled_from(["cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens"]),
        amounts),
    outputs=st.dictionaries(
        st.sampled_from(["reasoning_tokens", "audio_tokens", "image_tokens"]), amounts),
)  # fmt: skip
def test_the_classes_add_up_to_the_totals(
    prompt: int, completion: int, inputs: dict[str, int], outputs: dict[str, int]
) -> None:
    """Given any OpenAI usage, then input and output classes sum to prompt and completion."""
    found = normalise(
        {"prompt_tokens": prompt, "completion_tokens": completion,
         "prompt_tokens_details": inputs, "completion_tokens_details": outputs}
    ).classes.items()  # fmt: skip
    assert sum(amount for name, amount in found if name.startswith("input")) == prompt
    assert sum(amount for name, amount in found if name.startswith("output")) == completion
    assert all(amount >= 0 for _, amount in found)
