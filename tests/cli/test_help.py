"""What help shows: every word that was written for it, commands in panels, and of a paper what it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from braidstream.cli import app, commands, new
from braidstream.errors import InputError
from braidstream.lab.starters import USES

assert commands
_BOX = re.compile(r"[│╭╮╰╯─\s]")


def shown(*arguments: str) -> str:
    found = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert found.exit_code == 0, found
    return found.output


def every_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from every_command(one, (*path, name))


ALL = dict(every_command(typer.main.get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_word_of_a_help_text_is_swallowed_as_markup(path: tuple[str, ...]) -> None:
    text = _BOX.sub("", shown(*path, "--help"))
    for option in ALL[path].params:
        written = getattr(option, "help", None) or ""
        # Columns break texts anywhere, so that words of one option may stand apart: each word by itself.
        for word in written.replace("\\[", "[").split():
            assert word in text, f"{word!r} of {option.name} in {' '.join(path)}"


def test_research_stands_apart_from_what_runs_jobs() -> None:
    text = shown("--help")
    panels = re.split(r"╭─ ", text)
    jobs = next(panel for panel in panels if panel.startswith("Jobs"))
    research = next(panel for panel in panels if panel.startswith("Research"))
    for command in ("run", "check", "explain", "state"):
        assert f"│ {command} " in jobs
    for command in ("paper", "overlay"):
        assert f"│ {command} " in research
        assert f"│ {command} " not in jobs


def test_the_help_of_a_paper_lists_its_figures_and_that_of_a_figure_its_claim() -> None:
    wsj, gsdm = shown("paper", "wsj", "--help"), shown("paper", "gsdm", "--help")
    assert wsj != gsdm
    assert "fig5" in wsj
    assert "Windowed Stream Joins" in wsj
    figure = shown("paper", "wsj", "fig5", "--help")
    assert "braid paper wsj fig5" in figure
    assert "claim       The delay is flat" in figure
    assert "--quick" in shown("paper", "--help")
    unknown = CliRunner().invoke(app, ["paper", "wjs", "--help"])
    assert isinstance(unknown.exception, InputError)
    assert "did you mean 'wsj'" in str(unknown.exception)


@pytest.mark.parametrize(
    ("typed", "offered"), [("braid wa", "watch"), ("braid new pa", "payments"), ("braid run --das", "--dashboard")]
)
def test_the_shell_completes_commands_uses_and_options(typed: str, offered: str) -> None:
    asked = {"_BRAID_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    given = CliRunner().invoke(app, [], env=asked, prog_name="braid")
    assert given.output.split() == [offered]


def test_every_use_is_completed() -> None:
    assert set(new._USES) == set(USES)
