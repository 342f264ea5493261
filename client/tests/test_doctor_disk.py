"""orca doctor looks at the room that is left for the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from orca_client.doctor import Level, disk


@pytest.mark.parametrize(
    ("free_mib", "level"),
    [
        pytest.param(0, Level.FAIL, id="full"),
        pytest.param(15, Level.FAIL, id="as good as full"),
        pytest.param(50, Level.WARN, id="nearly full"),
        pytest.param(500, Level.OK, id="half full"),
    ],
)
def test_the_less_room_the_worse(
    free_mib: int, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk with so much room, the finding says how bad that is, and what to do."""
    usage = shutil._ntuple_diskusage(1000 * 2**20, 0, free_mib * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (finding,) = disk(tmp_path)
    assert finding.level is level
    assert str(tmp_path) in finding.seen
    assert bool(finding.remedy) is (level is not Level.OK)


def test_a_log_on_another_host_is_nothing_to_look_at(tmp_path: Path) -> None:
    """Given no store on this host, nothing is said of its disk."""
    assert disk(tmp_path / "nats") == []
