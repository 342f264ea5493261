"""Manifest files: YAML or JSON, without surprises, without bombs, with line and column."""

from __future__ import annotations

import json
import math
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from orca_schemas import yaml_load
from orca_schemas.errors import MalformedError
from orca_schemas.manifest import parse_manifest
from orca_schemas.yaml_load import MAX_DEPTH, MAX_DOCUMENTS, MAX_MANIFEST_BYTES, load_documents

LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{after}: &{after} [*{before}, *{before}, *{before}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def _parser(request, monkeypatch) -> None:
    """Every test runs with libyaml's parser and with the one in Python."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml_load, "_LOADER", getattr(yaml, request.param))


def test_yaml_and_json_say_the_same(manifest) -> None:
    """Given the manifest in YAML and in JSON, when loaded, then the documents are equal."""
    assert load_documents(json.dumps(manifest)) == [manifest]
    assert load_documents(json.dumps(manifest, indent="\t").encode()) == [manifest]
    assert load_documents(yaml.safe_dump(manifest)) == [manifest]
    parse_manifest(manifest)


def test_one_file_may_hold_many_documents() -> None:
    """Given documents, empty ones among them, when loaded, then the others come in order."""
    assert load_documents("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n") == [
        {"a": 1},
        {"b": 2},
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("y", "y"), ("NO", "NO"),
        ("2024-01-01", "2024-01-01"), ("12:30:45", "12:30:45"), ("1_000", "1_000"),
        ("010", "010"), ("0x10", "0x10"), ("0b1", "0b1"), ("=", "="), ("<<", "<<"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("5", 5), ("-5", -5), ("+5", 5), ("0", 0), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5),
        (".inf", math.inf), ("1e309", math.inf), ("'5'", "5"), ('"true"', "true"), ("|\n  x", "x"),
        ("50%", "50%"), ("40Gi", "40Gi"), ("9" * 33, "9" * 33), ("1.2.3", "1.2.3"), ("e5", "e5"),
    ],
)  # fmt: skip
def test_a_plain_word_is_a_number_or_truth_only_where_json_would_have_it(text, value) -> None:
    """Given a scalar, when loaded, then YAML 1.1's traps (no, 2024-01-01, 010) are text."""
    assert load_documents(f"key: {text}") == [{"key": value}]


def test_a_key_that_looks_like_truth_is_text() -> None:
    """Given ``on:`` and ``no:``, when loaded, then they are keys as written."""
    assert load_documents("on: 1\nno: 2\n") == [{"on": 1, "no": 2}]


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        pytest.param("a: 1\na: 2", "line 2, column 1", "stands twice", id="key-twice"),
        pytest.param('{"a": 1,\n "a": 2}', "line 2, column 2", "stands twice", id="json-key-twice"),
        pytest.param("x:\n  - b: 1\n    b: 2", "line 3, column 5", "twice", id="inner-key-twice"),
        pytest.param("1: x", "line 1, column 1", "in quotes", id="integer-key"),
        pytest.param("true: x", "line 1, column 1", "in quotes", id="boolean-key"),
        pytest.param("? [a]\n: x", "line 1, column 3", "in quotes", id="list-key"),
        pytest.param("~: x", "line 1, column 1", "in quotes", id="null-key"),
        pytest.param("- a", "line 1, column 1", "mapping", id="list"),
        pytest.param("[1]", "line 1, column 1", "mapping", id="json-list"),
        pytest.param("word", "line 1, column 1", "mapping", id="word"),
        pytest.param("a: 1\n---\n5", "line 3, column 1", "mapping", id="second-document"),
        pytest.param("a: &x 1", "line 1, column 4", "anchor", id="anchor"),
        pytest.param("a: *x", "line 1, column 4", "alias", id="alias"),
        pytest.param(LAUGHS, "line 1, column 4", "anchor", id="billion-laughs"),
        pytest.param("a: !!python/object:os.system x", "line 1, column 4", "tag", id="python-tag"),
        pytest.param("a: !!binary aGk=", "line 1, column 4", "tag", id="binary-tag"),
        pytest.param("a: !!str 5", "line 1, column 4", "tag", id="string-tag"),
        pytest.param("!x\na: 1", "line 1, column 1", "tag", id="root-tag"),
        pytest.param("a: 1\n b: [", "line", "YAML", id="bad-indent"),
        pytest.param("a: 1\n\tb: 2", "line 2", "YAML", id="tab"),
        pytest.param("a: [1, 2", "line", "YAML", id="open-list"),
        pytest.param("a: 'x", "line", "YAML", id="open-quote"),
        pytest.param("{", "line", "YAML", id="open-brace"),
        pytest.param("a: b\n%", "line", "YAML", id="directive"),
        pytest.param("a: x\x07y", "line 1, column 5", "character", id="bell"),
        pytest.param("a: 1\nb: \x1b[31m", "line 2, column 4", "character", id="escape"),
        pytest.param("a: \x00", "line 1, column 4", "character", id="nul"),
        pytest.param("a: \ud800", "line 1, column 4", "character", id="lone-surrogate"),
        pytest.param(b"a: 1\nb: \xff", "line 2, column 4", "UTF-8", id="no-utf-8"),
        pytest.param("a: 1".encode("utf-16"), "line 1, column 1", "UTF-8", id="utf-16"),
        pytest.param("a: " + "[" * 33, "line 1, column", f"at most {MAX_DEPTH}", id="33-levels"),
        pytest.param('{"a":' * 40 + "1" + "}" * 40, "line 1", "at most", id="json-40-levels"),
        pytest.param("[" * 100_000, "line 1", "nest", id="100000-brackets"),
        pytest.param("{" * 100_000, "line 1", "nest", id="100000-braces"),
        pytest.param('{"a":' * 100_000, "line 1", "nest", id="100000-json-objects"),
        pytest.param("- " * 100_000, "line 1", "nest", id="100000-dashes"),
    ],
)
def test_what_is_refused_is_shown_by_line_and_column(text, where, why) -> None:
    """Given a file with one fault, when loaded, then the error says where and why, in print."""
    with pytest.raises(MalformedError) as refused:
        load_documents(text)
    assert refused.value.field == "file"
    assert where in refused.value.remedy
    assert why in refused.value.remedy
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n---\n", "\ufeff", b""])
def test_a_file_without_a_document_is_refused(text) -> None:
    """Given nothing to read, when loaded, then the error says what to write."""
    with pytest.raises(MalformedError, match="empty"):
        load_documents(text)


@pytest.mark.parametrize("text", ["x" * 10_000_000, b"x" * 10_000_000, "[" * 10_000_000])
def test_a_file_of_10_mb_is_refused_unread(text) -> None:
    """Given more than the bound, when loaded, then only its length was looked at."""
    with pytest.raises(MalformedError, match=str(MAX_MANIFEST_BYTES)):
        load_documents(text)


def test_more_documents_than_the_bound_are_refused() -> None:
    """Given one document too many, when loaded, then the error names the bound."""
    assert len(load_documents("a: 1\n---\n" * (MAX_DOCUMENTS - 1))) == MAX_DOCUMENTS - 1
    with pytest.raises(MalformedError, match=str(MAX_DOCUMENTS)):
        load_documents("a: 1\n---\n" * (MAX_DOCUMENTS + 1))


@pytest.mark.parametrize("mark", ["\ufeff", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_is_no_fault(mark) -> None:
    """Given a file that Windows editors wrote, when loaded, then the mark is left out."""
    text = "a: 1"
    assert load_documents(mark + (text if isinstance(mark, str) else text.encode())) == [{"a": 1}]


def test_json_escapes_of_two_halves_are_one_character() -> None:
    """Given JSON with a surrogate pair, when loaded, then it is the character meant."""
    assert load_documents('{"a": "\\ud83d\\ude00"}') == [{"a": "😀"}]


PLAIN = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(PLAIN, VALUES, max_size=4))
def test_any_json_object_is_read_as_json_reads_it(document) -> None:
    """Given any JSON object, when loaded, then it is what the JSON reader gives."""
    assert load_documents(json.dumps(document)) == [document]


@given(st.text() | st.binary())
def test_no_file_makes_the_reader_fail_otherwise(text) -> None:
    """Given any file, when loaded, then it is mappings or a MalformedError."""
    with suppress(MalformedError):
        assert all(isinstance(found, dict) for found in load_documents(text))
