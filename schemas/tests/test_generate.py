"""What is generated is what is committed, and says what the code does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from orca_schemas import generate
from orca_schemas.codec import may_say
from orca_schemas.events.client import TaskCancelRequested
from orca_schemas.questions import QUESTIONS
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import Role


@pytest.fixture
def tree(tmp_path) -> Path:
    """A source tree with current files, the test's own to spoil."""
    (tmp_path / "pyproject.toml").touch()
    generate.write(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def asyncapi():
    """The committed AsyncAPI document."""
    return yaml.safe_load((generate.ROOT / "asyncapi/orca.yaml").read_bytes())


def test_the_committed_files_are_current() -> None:
    """Given the repository, when checked in a new process, then nothing is stale."""
    done = subprocess.run(
        [sys.executable, "-m", "orca_schemas.generate", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_bytes_are_the_same_in_every_run() -> None:
    """Given two runs, then every file is the same to the byte."""
    assert generate.files() == generate.files()


@pytest.mark.parametrize(
    "name", ["json/Placed.v1.json", "json/AITask.json", "asyncapi/orca.yaml", "docs/manifest.md"]
)
def test_a_stale_or_missing_file_is_named_with_the_remedy(tree, name, capsys, monkeypatch) -> None:
    """Given one file spoilt or gone, when checked, then it is named, and writing mends it."""
    current = generate.files()
    monkeypatch.setattr(generate, "files", lambda: current)
    for spoil in (lambda path: path.write_bytes(b"{}"), Path.unlink):
        spoil(tree / name)
        assert generate.main(["--check", "--out", str(tree)]) == 1
        said = capsys.readouterr().err
        assert f"{tree / name}: stale; run python -m orca_schemas.generate" in said
        assert said.count("\n") == 1
        assert generate.main(["--out", str(tree)]) == 0
        assert generate.main(["--check", "--out", str(tree)]) == 0


def test_a_schema_of_no_event_is_named_and_one_of_an_older_version_is_kept(
    tree, capsys, monkeypatch
) -> None:
    """Given a stray schema, when checked, then it is named; an older version's may stay."""
    (tree / "json/TaskDreamt.v1.json").touch()
    assert generate.main(["--check", "--out", str(tree)]) == 1
    assert "TaskDreamt.v1.json: no such event" in capsys.readouterr().err
    (tree / "json/TaskDreamt.v1.json").unlink()
    monkeypatch.setattr(TaskCancelRequested, "VERSION", 2)
    generate.main(["--out", str(tree)])
    assert generate.main(["--check", "--out", str(tree)]) == 0
    assert (tree / "json/TaskCancelRequested.v1.json").is_file()


def test_a_folder_that_is_no_source_tree_is_refused(tmp_path, capsys) -> None:
    """Given another folder, when asked to write there, then nothing is written."""
    with pytest.raises(SystemExit):
        generate.main(["--out", str(tmp_path)])
    assert "--out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_event_has_a_schema_of_its_whole_body() -> None:
    """Given the committed schemas, then each names its type and refuses what is unknown."""
    for name, event in EVENTS.items():
        schema = json.loads((generate.ROOT / f"json/{name}.v{event.VERSION}.json").read_bytes())
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["properties"]["type"] == {"const": event.type_name()}
        assert schema["required"] == ["type", "data"]
        assert schema["additionalProperties"] is False


def test_every_event_has_a_channel_and_an_operation_for_each_role_that_says_it(asyncapi) -> None:
    """Given the AsyncAPI document, then addresses and operations follow from the code."""
    channels, operations = asyncapi["channels"], asyncapi["operations"]
    assert asyncapi["asyncapi"] == "3.0.0"
    assert channels["TaskSubmitted"]["address"] == (
        "orca.{namespace}.task.{id}.client.{user}.TaskSubmitted"
    )
    assert set(EVENTS) <= set(channels)
    sends = {name for name, one in operations.items() if one["action"] == "send"}
    assert sends == {f"{r}.sends.{n}" for n, e in EVENTS.items() for r in Role if may_say(r, e)}


def test_every_question_has_a_channel_and_an_answer(asyncapi) -> None:
    """Given the questions, then each may be asked and is answered, with a schema for both."""
    for name, question in QUESTIONS.items():
        service, verb = name.split(".")
        assert asyncapi["channels"][f"ask.{name}"]["address"] == (
            f"orca.ask.{{namespace}}.{{user}}.{service}.{verb}"
        )
        reply = asyncapi["operations"][f"{service}.answers.{verb}"]["reply"]
        assert reply["channel"] == {"$ref": f"#/channels/answer.{name}"}
        assert question.answer.__name__ in asyncapi["components"]["schemas"]


def test_every_reference_leads_somewhere(asyncapi) -> None:
    """Given every $ref of the document, then it names a part of it or a committed file."""
    for reference in _references(asyncapi):
        place, _, inside = reference.partition("#/")
        if place:
            assert (generate.ROOT / "asyncapi" / place).is_file()
            continue
        node = asyncapi
        for part in inside.split("/"):
            node = node[part]


def _references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for inner in node.values():
            yield from _references(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _references(inner)
