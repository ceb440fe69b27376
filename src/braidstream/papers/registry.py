"""The registry of experiments: one function for each figure or table of the papers.

An experiment declares its paper, its figure, the paper's claim in our words, its parameters and how it is obtained; its
function returns an `Outcome` whose `holds` was computed from what was measured. Modules register on import, and are
imported only when asked for, so that `braid --help` stays fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from braidstream.errors import InputError, nearest

__all__ = ["PAPERS", "Experiment", "Outcome", "Run", "Series", "experiment", "experiments", "find"]

PAPERS = ("wsj", "dhtjoin", "gsdm", "dcape", "shc")
How = Literal["spark", "simulated", "exact"]


@dataclass(frozen=True)
class Series:
    """One line of a figure, or one column of a table."""

    label: str
    x: Sequence[float | str]
    y: Sequence[float]
    panel: str = ""
    """Which of several plots of the figure it belongs to: that plot's y axis."""


@dataclass(frozen=True)
class Outcome:
    """What an experiment measured, and whether the claim held. `notes` explains differences from the paper."""

    holds: bool
    series: Sequence[Series]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """How an experiment is to be run: `quick` shrinks it, `progress` is told the share done (0 to 1) and a word."""

    quick: bool = False
    seed: int = 1
    progress: Callable[[float, str], None] = field(default=lambda _share, _word: None)


@dataclass(frozen=True)
class Experiment:
    """One registered figure or table."""

    paper: str
    figure: str
    title: str
    claim: str
    how: How
    x_label: str
    y_label: str
    parameters: Mapping[str, Any]
    stated: Mapping[str, float]
    """The numbers the paper states, by a short name, to stand beside ours."""
    log_x: bool
    log_y: bool
    function: Callable[[Run], Outcome]

    def as_json(self, outcome: Outcome) -> dict[str, Any]:
        """The object that `braid paper ... --json` prints."""
        return {
            "paper": self.paper,
            "figure": self.figure,
            "title": self.title,
            "claim": self.claim,
            "holds": bool(outcome.holds),
            "how": self.how,
            "parameters": dict(self.parameters),
            "stated": dict(self.stated),
            "notes": list(outcome.notes),
            "series": [asdict(series) for series in outcome.series],
        }


_REGISTERED: dict[tuple[str, str], Experiment] = {}


def experiment(
    paper: str,
    figure: str,
    *,
    title: str,
    claim: str,
    how: How,
    x_label: str,
    y_label: str,
    parameters: Mapping[str, Any] | None = None,
    stated: Mapping[str, float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Callable[[Callable[[Run], Outcome]], Callable[[Run], Outcome]]:
    """Register the decorated function as the experiment of one figure."""
    if paper not in PAPERS:
        raise ValueError(f"unknown paper {paper!r}")

    def register(function: Callable[[Run], Outcome]) -> Callable[[Run], Outcome]:
        _REGISTERED[paper, figure] = Experiment(
            paper, figure, title, claim, how, x_label, y_label, parameters or {}, stated or {}, log_x, log_y, function
        )
        return function

    return register


def experiments(paper: str | None = None) -> Iterator[Experiment]:
    """All experiments, or those of one paper, in the order of the papers and of their registration."""
    if paper is not None and paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}", f"one of {', '.join(PAPERS)}", nearest(paper, PAPERS))
    for name in PAPERS if paper is None else (paper,):
        _load(name)
        yield from (found for found in list(_REGISTERED.values()) if found.paper == name)


def find(paper: str, figure: str) -> Experiment:
    """The experiment of one figure."""
    known = {found.figure: found for found in experiments(paper)}
    if figure not in known:
        raise InputError(f"paper {paper!r} has no experiment {figure!r}", "a registered figure", nearest(figure, known))
    return known[figure]


def _load(paper: str) -> None:
    try:
        importlib.import_module(f"braidstream.papers.{paper}")
    except ModuleNotFoundError as error:
        if error.name != f"braidstream.papers.{paper}":
            raise
