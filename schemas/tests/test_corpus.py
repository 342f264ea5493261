"""The corpus: what was once recorded is read for ever, and means the same for ever.

A file is never changed. DIGESTS.txt holds two lines a file: the digest of its bytes, and the
digest of what the release that reads it as version N makes of it. A new version of an event adds
a file and lines; it removes none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from orca_schemas.codec import decode, digest, encode
from orca_schemas.envelope import Envelope
from orca_schemas.errors import MalformedError
from orca_schemas.events.common import Fact
from orca_schemas.manifest import parse_manifest
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import NOBODY, Kind, Role, Subject, parse_subject
from orca_schemas.yaml_load import load_documents

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.json"))
IDS = {
    Kind.TASK: "019ad8f0-3c5b-7b1e-9a44-5d2f0c6e1a77",
    Kind.PRICE: "00000000-0000-790a-9e57-787ec5d282c1",
    Kind.ACCOUNT: "team-alpha",
    Kind.NODE: "node-a100-01",
}


def subject_of(path: Path) -> Subject:
    """A subject under which the recorded event may stand."""
    event = EVENTS[path.name.split(".")[0]]
    kind, role = event.KIND or Kind.TASK, event.ROLE or Role.ADMISSION
    subject = Subject("team-alpha", kind, IDS[kind], role, NOBODY, event.__name__)
    return parse_subject(str(subject))


def lines_of(path: Path) -> list[str]:
    """The lines of DIGESTS.txt that this release would write for a file."""
    if path.suffix == ".yaml":
        meaning = parse_manifest(load_documents(path.read_bytes())[0]).model_dump_json().encode()
        read_as = "v1"
    else:
        meaning = encode(decode(subject_of(path), path.read_bytes()))
        read_as = f"v{EVENTS[path.name.split('.')[0]].VERSION}"
    return [
        f"{digest(path.read_bytes())}  {path.name}",
        f"{digest(meaning)}  {path.name} read as {read_as}",
    ]


def test_every_version_of_every_event_is_recorded() -> None:
    """Given the registry, then each event has a file for each version that it ever had."""
    wanted = {f"{n}.v{v}.json" for n, e in EVENTS.items() for v in range(1, e.VERSION + 1)}
    assert wanted <= {path.name for path in FILES}


def test_every_kind_of_fact_is_recorded() -> None:
    """Given the facts that Noted may carry, then a file shows each."""
    kinds = {member.model_fields["kind"].default for member in get_args(get_args(Fact)[0])}
    recorded = {
        decode(subject_of(path), path.read_bytes()).data.fact.kind
        for path in FILES
        if path.name.startswith("Noted.")
    }
    assert recorded == kinds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_event_is_read_and_written_to_a_fixed_point(path) -> None:
    """Given a recorded body, when read and written twice, then the second changes nothing."""
    subject = subject_of(path)
    once = encode(decode(subject, path.read_bytes()))
    assert encode(decode(subject, once)) == once
    assert decode(subject, once) == decode(subject, path.read_bytes())


@pytest.mark.parametrize("path", [*FILES, *CORPUS.glob("*.yaml")], ids=lambda path: path.name)
def test_what_a_recorded_event_means_never_changes(path) -> None:
    """Given DIGESTS.txt, then bytes and meaning of each file are what they were.

    If this fails, an event's meaning changed: add a version instead. For a new file append its
    lines, which ``python schemas/tests/test_corpus.py`` prints.
    """
    known = (CORPUS / "DIGESTS.txt").read_text().splitlines()
    assert [line for line in lines_of(path) if line not in known] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_null_is_written_wherever_it_may_stand(path) -> None:
    """Given a recorded body with one value made null, where that is lawful it is read back."""
    subject = subject_of(path)
    body = json.loads(path.read_bytes())
    for place, key in list(_places(body)):
        value, place[key] = place[key], None
        with suppress(MalformedError):
            envelope = decode(subject, json.dumps(body).encode())
            assert decode_written(subject, envelope) == envelope
        place[key] = value


def decode_written(subject: Subject, envelope: Envelope[Any]) -> Envelope[Any]:
    """What is read of what was written; that it can be read is part of the promise."""
    try:
        return decode(subject, encode(envelope))
    except MalformedError as error:
        raise AssertionError(error) from error


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def test_no_recorded_event_is_ever_removed() -> None:
    """Given DIGESTS.txt, then every file that it names is there, and it names none twice."""
    known = (CORPUS / "DIGESTS.txt").read_text().splitlines()
    keys = [line.split("  ")[1] for line in known]
    assert len(keys) == len(set(keys))
    assert {key.split(" ")[0] for key in keys} == {
        path.name for path in CORPUS.iterdir() if path.name != "DIGESTS.txt"
    }


if __name__ == "__main__":
    for each in sorted([*FILES, *CORPUS.glob("*.yaml")]):
        print("\n".join(lines_of(each)))
