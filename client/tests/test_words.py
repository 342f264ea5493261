"""Numbers as people read them, and tables that a pipe can rely on."""

from __future__ import annotations

import pytest
from orca_client.cli import screen, words
from orca_schemas.values import Gpu


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0s"), (-50, "0.0s"), (450, "0.5s"), (12_400, "12s"), (65_000, "1m05s"),
        (3_600_000, "1h00m"), (187_200_000, "2d04h"),
    ],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(ms: int, text: str) -> None:
    """Given milliseconds, then the two largest units are shown."""
    assert words.duration(ms) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(1, "1Mi"), (512, "512Mi"), (16_384, "16Gi"), (1_536, "1.5Gi")]
)
def test_memory_is_in_the_unit_people_use(mib: int, text: str) -> None:
    """Given MiB, then Gi from one Gi on."""
    assert words.memory(mib) == text


@pytest.mark.parametrize(
    ("dimension", "value", "text"),
    [
        ("gpu_milli:A100", 1500, "1.5"),
        ("cpu_milli", 500, "0.5"),
        ("memory_mib", 0, "0"),
        ("tokens", 1_000_000, "1,000,000"),
        ("tasks", None, "unlimited"),
    ],
)
def test_an_amount_is_in_the_unit_of_its_dimension(
    dimension: str, value: int | None, text: str
) -> None:
    """Given a quota row's integer, then it is shown as orca quota set takes it."""
    assert words.amount(dimension, value) == text


def test_simulated_gpus_are_called_so() -> None:
    """Given a node with real and simulated GPUs, then the simulated ones are labelled."""
    gpus = [
        Gpu(uuid="a", type="A100", memory_mib=1, simulated=True),
        Gpu(uuid="b", type="A100", memory_mib=1, simulated=True),
        Gpu(uuid="c", type="H100", memory_mib=1, simulated=False),
    ]
    assert words.gpu_kinds(gpus) == "2 x A100 (simulated), 1 x H100"


def test_the_process_executor_is_called_a_development_one() -> None:
    """Given the process executor, then its name says what it is for."""
    assert words.executor("process") == "process (development)"
    assert words.executor("docker") == "docker"


def test_a_table_on_a_pipe_is_aligned_and_has_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a pipe, then columns are aligned, lines end in no blank, and nothing is cut."""
    screen.table(("ID", "WHY"), [("1", "x" * 300), ("22", "")], "ID")
    assert capsys.readouterr().out == f"ID  WHY\n1   {'x' * 300}\n22\n"


@pytest.mark.parametrize(("columns", "beside"), [(80, False), (200, True)])
def test_a_narrow_terminal_keeps_ids_and_shows_why_below(
    columns: int, beside: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a row wider than the terminal, then its id is whole, and WHY has its own table."""
    monkeypatch.setattr(screen, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    cells = ("1234abcd", "n" * 70, "succeeded", "because of this")
    screen.table(("ID", "NAME", "STATE", "WHY"), [cells], "STATE", ("ID", "STATE"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (lines[0][-1] == "WHY") is beside
    assert lines[1][0] == "1234abcd"
    assert lines[1][2] == "succeeded"
    assert (["1234abcd", "because", "of", "this"] in lines) is not beside


def test_one_line_without_a_price_is_one() -> None:
    """Given one or more lines, then the words agree with the number."""
    assert words.unpriced(1) == "1 line without a price"
    assert words.unpriced(2) == "2 lines without a price"
