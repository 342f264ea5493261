"""Writes what others read: JSON Schemas, the AsyncAPI document, the reference pages.

``python -m orca_schemas.generate`` writes them; with ``--check`` it only says which are stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from orca_schemas.asyncapi import asyncapi
from orca_schemas.json_schemas import event_schema, manifest_schema
from orca_schemas.reference import events_page, manifest_page
from orca_schemas.registry import EVENTS

ROOT = Path(__file__).resolve().parents[2]
REMEDY = "run python -m orca_schemas.generate and commit what it writes"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; returns the exit status, 1 where a file is stale."""
    parser = argparse.ArgumentParser(prog="python -m orca_schemas.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, name stale files")
    parser.add_argument("--out", type=Path, default=ROOT, help="the schemas/ folder")
    options = parser.parse_args(arguments)
    if not (options.out / "pyproject.toml").is_file():
        parser.error(f"{options.out} is no source tree; name the schemas/ folder with --out")
    return check(options.out) if options.check else write(options.out)


def write(out: Path) -> int:
    """Write every file below ``out``."""
    for name, content in files().items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return 0


def check(out: Path) -> int:
    """Name every file that is missing, differs or belongs to no event."""
    wanted = files()
    stale = [name for name, content in wanted.items() if _read(out / name) != content]
    strays = [
        f"json/{path.name}"
        for path in sorted((out / "json").glob("*"))
        if f"json/{path.name}" not in wanted and not _is_older(path)
    ]
    for name in stale:
        print(f"{out / name}: stale; {REMEDY}", file=sys.stderr)
    for name in strays:
        print(f"{out / name}: no such event in this release; remove it", file=sys.stderr)
    return 1 if stale or strays else 0


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _is_older(path: Path) -> bool:
    """Whether it is the schema of an earlier version, which stays for those who still send it."""
    name, _, number = path.stem.partition(".v")
    event = EVENTS.get(name)
    return event is not None and number.isdecimal() and 0 < int(number) < event.VERSION


def files() -> dict[str, bytes]:
    """Every generated file's bytes by its path below ``schemas/``: the same in every run."""
    found = {
        f"json/{event.__name__}.v{event.VERSION}.json": _json(event_schema(event))
        for event in EVENTS.values()
    }
    found["json/AITask.json"] = _json(manifest_schema())
    found["asyncapi/orca.yaml"] = _yaml(asyncapi(version("orca-schemas")))
    found["docs/manifest.md"] = manifest_page().encode()
    found["docs/events.md"] = events_page().encode()
    return found


def _json(schema: dict[str, Any]) -> bytes:
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # anchors make a document hard to read
        return True


def _yaml(document: dict[str, Any]) -> bytes:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return b"# Written by python -m orca_schemas.generate; do not edit.\n" + text.encode()


if __name__ == "__main__":
    sys.exit(main())
