"""`braid paper`: what it prints, keeps and returns, with experiments that run at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from braidstream.cli import app, commands
from braidstream.cli import paper as command
from braidstream.errors import InputError
from braidstream.lab.papers.registry import Experiment
from tests.lab.papers.invented import FAILS, HOLDS, HOLDS_NOT, PARTS, TABLE

assert commands


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """The experiments that the command finds; a test fills it."""
    found: list[Experiment] = []
    monkeypatch.setattr(command, "experiments", lambda paper=None: [e for e in found if paper in (None, e.paper)])
    monkeypatch.setattr(command, "find", lambda _paper, figure: next(e for e in found if e.figure == figure))
    return found


def braid(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["paper", *arguments, "--results", str(folder)])


@pytest.mark.parametrize(
    ("chosen", "exit_code"),
    [
        ([HOLDS, PARTS, TABLE], 0),
        ([HOLDS, HOLDS_NOT, PARTS], 1),
        ([HOLDS, FAILS, PARTS], 3),
        ([FAILS, HOLDS_NOT, PARTS], 1),
    ],
    ids=["all hold", "one does not hold", "one fails", "one fails and one does not hold"],
)
def test_all_runs_every_experiment_and_reports_each(
    chosen: Sequence[Experiment], exit_code: int, registered: list[Experiment], tmp_path: Path
) -> None:
    registered.extend(chosen)
    done = braid(tmp_path, "all", "--quick")
    assert done.exit_code == exit_code
    lines = [line for line in done.stdout.splitlines() if " wsj " in line]
    assert [line.split(" wsj ")[1].split()[0] for line in lines] == [one.figure for one in chosen]
    assert len(list(tmp_path.glob("*.quick.json"))) == len(chosen)
    if FAILS in chosen:
        assert "RuntimeError: no [memory] left" in done.stdout


def test_json_of_all_is_one_object_on_stdout(registered: list[Experiment], tmp_path: Path) -> None:
    registered.extend([HOLDS, FAILS])
    done = braid(tmp_path, "all", "--quick", "--json")
    found = json.loads(done.stdout)
    assert [one["status"] for one in found["experiments"]] == ["held", "failed"]
    assert done.exit_code == 3


def test_all_of_one_paper(registered: list[Experiment], tmp_path: Path) -> None:
    registered.extend([HOLDS, PARTS])
    assert braid(tmp_path, "wsj", "all").stdout.count("held") == 3  # a line each, and the summary
    assert "nothing to run" in braid(tmp_path, "shc", "all").stdout


@pytest.mark.parametrize(("chosen", "exit_code"), [(HOLDS, 0), (HOLDS_NOT, 1)])
def test_one_figure_is_shown_kept_and_drawn(
    chosen: Experiment, exit_code: int, registered: list[Experiment], tmp_path: Path
) -> None:
    registered.append(chosen)
    done = braid(tmp_path, "wsj", chosen.figure, "--plot", str(tmp_path / "it.png"))
    assert done.exit_code == exit_code
    assert ("DOES NOT HOLD" in done.stdout) == bool(exit_code)
    assert (tmp_path / f"wsj-{chosen.figure}.full.json").exists()
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")
    if chosen is HOLDS:
        assert "delay (s): the paper 2, here 1.6" in done.stdout
        assert "differs: fitted on one point" in done.stdout


def test_the_report_is_made_from_what_was_kept(registered: list[Experiment], tmp_path: Path) -> None:
    registered.extend([HOLDS, HOLDS_NOT, FAILS, TABLE])
    braid(tmp_path, "all")
    registered.append(PARTS)
    done = braid(tmp_path, "report", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [Path(path).name for path in found["pictures"]] == ["wsj-fig5.png", "wsj-fig6.png", "wsj-table1.png"]
    assert all(Path(path).exists() for path in (*found["pictures"], found["report"]))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("report",), "no results"),
        (("wsj",), "no figure was named"),
        (("all", "--plot", "x.png"), "one figure"),
    ],
)
def test_wrong_input(arguments: tuple[str, ...], complaint: str, registered: list[Experiment], tmp_path: Path) -> None:
    registered.append(HOLDS)
    done = braid(tmp_path / "none", *arguments)
    assert isinstance(done.exception, InputError)
    assert complaint in str(done.exception)
