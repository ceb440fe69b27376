"""The papers' map and the registry agree: every experiment is in docs/papers.md, and every one named there exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from braidstream.lab.papers.bibliography import BIBLIOGRAPHY, figure_name
from braidstream.lab.papers.registry import PAPERS, Experiment, experiments

MAP = (Path(__file__).parents[2] / "docs" / "papers.md").read_text()
FIGURES = {
    "wsj": [f"fig{n}" for n in range(5, 15)],
    "dhtjoin": ["fig7a", "fig7b", "fig7c", "fig8", "fig9"],
    "gsdm": [*(f"fig{n}" for n in range(11, 16)), "table1"],
    "dcape": [f"fig{n}" for n in (6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 20, 21)],
    "shc": [f"fig{n}" for n in (4, 5, 6, 7)],
}
"""The figures and tables in which the papers report results; the others are drawings."""


def named(text: str) -> set[tuple[str, str]]:
    """The experiments that a text names as commands."""
    return set(re.findall(r"`braid paper (\w+) ([\w-]+)`", text))


@pytest.fixture(scope="module")
def registered() -> dict[tuple[str, str], Experiment]:
    return {(one.paper, one.figure): one for one in experiments()}


def test_every_experiment_that_the_map_names_exists(registered: dict[tuple[str, str], Experiment]) -> None:
    assert named(MAP) - set(registered) == set()


def test_the_map_names_every_experiment(registered: dict[tuple[str, str], Experiment]) -> None:
    assert set(registered) - named(MAP) == set()


def test_a_name_that_does_not_exist_would_be_found(registered: dict[tuple[str, str], Experiment]) -> None:
    assert named("| x | `braid paper wsj fig99`, `braid paper wsj fig5` |") - set(registered) == {("wsj", "fig99")}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_with_a_result_is_an_experiment(paper: str, registered: dict[tuple[str, str], Experiment]) -> None:
    found = {figure for name, figure in registered if name == paper}
    if not found:
        pytest.skip(f"{paper} has no experiments yet")
    assert set(FIGURES[paper]) - found == set()


def test_every_experiment_declares_what_the_report_shows(registered: dict[tuple[str, str], Experiment]) -> None:
    for one in registered.values():
        for name in ("title", "claim", "x_label", "y_label", "parameters"):
            assert getattr(one, name), f"{one.name} declares no {name}"
        assert one.paper in BIBLIOGRAPHY


@pytest.mark.parametrize(
    ("figure", "name"),
    [
        ("fig5", "Figure 5"),
        ("fig7a", "Figure 7a"),
        ("fig4-spark", "Figure 4 on Spark"),
        ("table1", "Table 1"),
        ("sec5", "Section 5"),
        ("tactics", "tactics"),
    ],
)
def test_figures_have_names_for_people(figure: str, name: str) -> None:
    assert figure_name(figure) == name
