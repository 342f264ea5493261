"""The bytes of a state, in slices: what is written beside a service that decides must not stop it.

One call into the serializer holds the interpreter for as long as the state is large: seconds. A
state never changes, so it can be written piece by piece while the next ones are being decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from orca_runtime.tables import state_bytes

SLICE = 200
"""Table rows written at once: about two milliseconds of the interpreter's time. A state of 180,000
runs held it for 5 s when written in one call; in slices it is the sort of the keys, 0.2 s."""

DIGEST_BYTES = 16

Writer = Callable[[Any], Iterator[bytes]]


class Slicer:
    """Writes states of one type, the same bytes as ``state_bytes``."""

    def __init__(self, adapter: TypeAdapter[Any], initial: Any) -> None:
        self._adapter = adapter
        self._writers = _writers(type(initial)) if is_dataclass(initial) else {}
        whole = state_bytes(adapter, initial)
        if not self._writers or b"".join(self._sliced(initial)) != whole:
            self._writers = {}  # written in a way of its own: then in one piece

    def slices(self, state: Any) -> Iterator[bytes]:
        """The state's bytes, in order; others may run between two slices."""
        if self._writers:
            return self._sliced(state)
        return iter((state_bytes(self._adapter, state),))

    async def digest(self, state: Any) -> str:
        """The state's digest, as ``state_digest`` gives it; others run between two slices."""
        total = blake2b(digest_size=DIGEST_BYTES)
        for piece in self.slices(state):
            total.update(piece)
            await asyncio.sleep(0)
        return total.hexdigest()

    def _sliced(self, state: Any) -> Iterator[bytes]:
        for number, (name, write) in enumerate(self._writers.items()):
            yield f'{"," if number else "{"}"{name}":'.encode()
            yield from write(getattr(state, name))
        yield b"}"


def _writers(state_class: type) -> dict[str, Writer]:
    hints = get_type_hints(state_class, include_extras=True)
    if any(isinstance(one, FieldInfo) for hint in hints.values() for one in get_args(hint)):
        return {}  # a field with a rule of its own, such as not to be written
    return {field.name: _writer(hints[field.name]) for field in fields(state_class)}


def _writer(hint: Any) -> Writer:
    table = _table_of(hint)
    if table is None:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        return lambda value: iter((adapter.dump_json(value),))
    key, value = table
    return _table_writer(TypeAdapter(list[tuple[key, value]]))  # type: ignore[valid-type]


def _table_of(hint: Any) -> tuple[Any, Any] | None:
    """The key's and the value's type, if the hint is a Table."""
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(inner) is not Map:
        return None
    key, value = get_args(inner)
    return key, value


def _table_writer(adapter: TypeAdapter[Any]) -> Writer:
    def write(table: Map[Any, Any]) -> Iterator[bytes]:
        rows = sorted(table.items(), key=lambda row: str(row[0]))
        yield b"["
        for start in range(0, len(rows), SLICE):
            part = adapter.dump_json(rows[start : start + SLICE])[1:-1]
            yield b"," + part if start else part
        yield b"]"

    return write
