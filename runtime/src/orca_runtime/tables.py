"""Persistent maps for decider state: a changed copy costs O(log n), so speculation is cheap.

A ``Table`` is an ``immutables.Map`` that pydantic can write and read, sorted by key, so that the
digest of a state does not depend on how it was reached.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Any, TypeVar, get_args

from immutables import Map
from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

K = TypeVar("K")
V = TypeVar("V")


class _AsPairs:
    """Write a Map as ``[[key, value], …]`` sorted by the key's text; read it back."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        key, value = get_args(source)
        pairs = handler.generate_schema(list[tuple[key, value]])  # type: ignore[valid-type]
        return core_schema.no_info_after_validator_function(
            Map,
            pairs,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda table: sorted(table.items(), key=lambda item: str(item[0])),
                return_schema=pairs,
            ),
        )


Table = Annotated[Map[K, V], _AsPairs]


def state_bytes(adapter: TypeAdapter[Any], state: Any) -> bytes:
    """Write a state as JSON, the same bytes for equal states."""
    return adapter.dump_json(state)


def state_digest(adapter: TypeAdapter[Any], state: Any) -> str:
    """The digest that replay compares."""
    return blake2b(state_bytes(adapter, state), digest_size=16).hexdigest()
