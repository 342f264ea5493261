"""Manifests as people write them, YAML or JSON, read without surprises.

Of YAML only what JSON can say is read: mappings with text keys, lists, text, numbers, true, false,
null (the core schema of YAML 1.2, so ``no`` and ``2024-01-01`` are text). Anchors, aliases and
tags are refused: they make small files large or run code. Everything is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from orca_schemas.errors import MalformedError

MAX_MANIFEST_BYTES = 1024 * 1024
MAX_DOCUMENTS = 1000
MAX_DEPTH = 32
"""A manifest needs six levels."""
MAX_INTEGER_DIGITS = 32
"""Longer ones are out of every bound, and slow to read."""

# libyaml's parser where it was built in: about ten times as fast, the same events and marks.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(rf"[-+]?(0|[1-9][0-9]{{0,{MAX_INTEGER_DIGITS - 1}}})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]{1,4})?")
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML 1.2 (5.1) and text files do not hold: control characters, lone surrogates."""
_CONSTANTS: dict[str, bool | float | None] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    ".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan"),
}  # fmt: skip


def load_documents(text: str | bytes) -> list[dict[str, Any]]:
    """Read one or many documents, each a mapping; empty ones are left out.

    Raises MalformedError with line and column for what is no YAML, for anchors, tags, keys that
    stand twice or are no text, for too deep, too large, too many, and for nothing at all.
    """
    source = _as_text(text)
    documents = _json_document(source) or _yaml_documents(source)
    if not documents:
        raise MalformedError("file", "(empty)", "write a manifest: apiVersion: orca.ai/v1 …")
    return documents


def _as_text(text: str | bytes) -> str:
    if len(text) > MAX_MANIFEST_BYTES:
        raise MalformedError(
            "file", f"more than {MAX_MANIFEST_BYTES} bytes", "make it smaller, or split it"
        )
    decoded = (text if isinstance(text, str) else _decoded(text)).removeprefix("\ufeff")
    if bad := _NO_CHARACTER.search(decoded):
        raise _refused_at(decoded[: bad.start()], bad[0], "remove this character")
    return decoded


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        before = body[: error.start].decode()
        raise _refused_at(before, f"byte 0x{body[error.start]:02x}", "save it as UTF-8") from None


def _json_document(source: str) -> list[dict[str, Any]] | None:
    """Read plain JSON; None where the YAML reader is to read it, or to say what is wrong.

    YAML is not quite a superset of JSON: ``\\ud83d\\ude00`` is one character in JSON only.
    """
    if not source.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(source, object_pairs_hook=_each_once)
        return [document] if _depth(document) <= MAX_DEPTH else None
    except (ValueError, RecursionError):
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 1
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _yaml_documents(source: str) -> list[dict[str, Any]]:
    try:
        return [document for document in _documents(source) if document is not None]
    except yaml.MarkedYAMLError as error:
        line = _line(source, error.problem_mark)
        raise _refused(error.problem_mark, line, f"{error.problem}; correct the YAML") from None


def _line(source: str, mark: Any) -> str:
    lines = source.split("\n")
    return lines[mark.line] if mark is not None and mark.line < len(lines) else ""


def _documents(source: str) -> Iterable[dict[str, Any] | None]:
    reader = _Reader(_LOADER(source))
    count = 0
    while (document := reader.next_document()) is not _END:
        count += 1
        if count > MAX_DOCUMENTS:
            raise MalformedError("file", f"more than {MAX_DOCUMENTS} documents", "split it")
        yield document


_END: Any = object()


class _Reader:
    """Builds values from the parser's events, one at a time, so that no bound is passed first."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def next_document(self) -> Any:
        event = self._next()
        while isinstance(event, (yaml.StreamStartEvent, yaml.DocumentEndEvent)):
            event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return _END
        root = self._next()
        value = self._value(root, 1)
        if value is not None and not isinstance(value, dict):
            raise _refused(root.start_mark, value, "a manifest is a mapping of fields")
        return value

    def _next(self) -> Any:
        return self._parser.get_event()

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            raise _refused(event.start_mark, f"*{event.anchor}", "write it out; no aliases here")
        if event.anchor is not None:
            raise _refused(event.start_mark, f"&{event.anchor}", "remove the anchor")
        if event.tag is not None:
            raise _refused(event.start_mark, event.tag, "remove the tag")
        if depth > MAX_DEPTH:
            raise _refused(event.start_mark, f"{depth} levels", f"nest at most {MAX_DEPTH}")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth)
        return _scalar(event)

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise _refused(event.start_mark, key, "a key is text; put it in quotes")
            if key in found:
                raise _refused(event.start_mark, key, "this key stands twice; keep one")
            found[key] = self._value(self._next(), depth + 1)
        return found

    def _sequence(self, depth: int) -> list[Any]:
        found = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            found.append(self._value(event, depth + 1))
        return found


def _scalar(event: Any) -> Any:
    text: str = event.value
    plain = event.implicit[0]
    if not plain:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _refused(mark: Any, value: object, remedy: str) -> MalformedError:
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return MalformedError("file", value, f"{where}{remedy}")


def _refused_at(before: str, value: str, remedy: str) -> MalformedError:
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return MalformedError("file", value, f"line {line}, column {column}: {remedy}")
