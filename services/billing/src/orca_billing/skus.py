"""What has a price: ``gpu:<type>``, ``cpu``, ``tokens:<model>:<class>``, ``tokens:<model>:*``."""

from __future__ import annotations

from orca_schemas.values import TokenClasses

CPU = "cpu"
GPU_PREFIX = "gpu:"
TOKENS_PREFIX = "tokens:"
ANY_CLASS = "*"
CLASSES = frozenset(TokenClasses.model_fields)

PER_MILLION_TOKENS = "million tokens"
PER_GPU_HOUR = "GPU-hour"
PER_CORE_HOUR = "core-hour"


def gpu_sku(gpu_type: str) -> str:
    """The sku of a GPU type."""
    return f"{GPU_PREFIX}{gpu_type}"


def token_sku(model: str, token_class: str) -> str:
    """The sku of one class of a model's tokens; ANY_CLASS for those not priced more exactly.

    A model's name may hold colons (``llama3:8b``): the class is what follows the last one.
    """
    return f"{TOKENS_PREFIX}{model}:{token_class}"


def any_class_of(sku: str) -> str | None:
    """The sku whose price stands in where ``sku`` has none of its own."""
    if not sku.startswith(TOKENS_PREFIX):
        return None
    model, _ = _model_and_class(sku)
    return token_sku(model, ANY_CLASS)


def model_of(sku: str) -> str:
    """The model of a token sku, the GPU type of a GPU's, ``""`` for CPU."""
    if sku.startswith(TOKENS_PREFIX):
        return _model_and_class(sku)[0]
    return sku.removeprefix(GPU_PREFIX) if sku != CPU else ""


def price_unit(sku: str) -> str:
    """What one price of the sku is for."""
    if sku.startswith(TOKENS_PREFIX):
        return PER_MILLION_TOKENS
    return PER_CORE_HOUR if sku == CPU else PER_GPU_HOUR


def sku_problem(sku: str) -> str | None:
    """What is wrong with a sku that somebody wrote; None if nothing is."""
    if sku == CPU or (sku.startswith(GPU_PREFIX) and sku != GPU_PREFIX):
        return None
    if not sku.startswith(TOKENS_PREFIX):
        return f"{sku} is no sku; write gpu:<type>, cpu, tokens:<model>:<class> or tokens:<model>:*"
    model, token_class = _model_and_class(sku)
    if model and token_class in CLASSES | {ANY_CLASS}:
        return None
    return (
        f"{sku} names no token class; write tokens:<model>:* or one of {', '.join(sorted(CLASSES))}"
    )


def _model_and_class(sku: str) -> tuple[str, str]:
    model, _, token_class = sku.removeprefix(TOKENS_PREFIX).rpartition(":")
    return model, token_class
