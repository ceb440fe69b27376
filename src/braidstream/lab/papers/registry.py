"""The registry of experiments: one function for each figure or table of the papers.

An experiment *declares* its paper and figure, the paper's claim in our words, what is checked, its parameters (the
paper's defaults), what runs, its axes and the numbers that the paper states; its function returns an `Outcome` whose
`holds` was computed from what was measured. What differs from the paper stands with it (`differs`).

Invariant: a declaration is plain data, so that a kept result tells its figure without the code that made it. Modules
register on import, and are imported only when asked for, so that `braid --help` stays fast.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from braidstream.errors import InputError, nearest

__all__ = [
    "PAPERS",
    "Check",
    "Declaration",
    "Experiment",
    "Outcome",
    "Run",
    "Series",
    "built_in",
    "experiment",
    "experiments",
    "find",
    "judged",
    "near",
]

PAPERS = ("wsj", "dhtjoin", "gsdm", "dcape", "shc")
How = Literal["spark", "simulated", "exact"]
Form = Literal["lines", "bars", "table"]


@dataclass(frozen=True)
class Series:
    """One line of a figure, or one row of a table."""

    label: str
    x: Sequence[float | str]
    y: Sequence[float]
    panel: str = ""
    """The part of the figure it belongs to, where the paper draws several side by side."""
    is_model: bool = False
    """Whether it is a formula or a bound to compare with, drawn dashed, and not a measurement."""


@dataclass(frozen=True)
class Check:
    """One thing that a claim comes down to: what was measured, beside what the paper says."""

    what: str
    holds: bool
    ours: str
    """What was measured."""
    paper: str = ""
    """The paper's number or word for it; empty where it has none."""
    tolerance: str = ""
    """How far ours may be from it, and why."""
    decides: bool = True
    """Whether the verdict depends on it; not so where it follows from what was put in, or from a number that was
    fitted."""

    @property
    def word(self) -> str:
        """What the run and the report show for it."""
        return ("yes" if self.holds else "no") if self.decides else "shown"


@dataclass(frozen=True)
class Outcome:
    """What an experiment measured, and whether the claim held."""

    holds: bool
    series: Sequence[Series]
    notes: Sequence[str] = ()
    """What else was seen, with figures."""
    ours: Mapping[str, float] = field(default_factory=dict)
    """Our numbers by the names of those that the paper states."""
    differs: Sequence[str] = ()
    """Where this run differs from the paper, and why."""
    checks: Sequence[Check] = ()
    """What the verdict was computed from: the claim holds when each of them does that decides."""


def judged(
    series: Sequence[Series],
    checks: Sequence[Check],
    notes: Sequence[str] = (),
    ours: Mapping[str, float] | None = None,
    differs: Sequence[str] = (),
) -> Outcome:
    """The outcome of an experiment whose claim holds when all its checks do that decide."""
    if not any(check.decides for check in checks):
        raise ValueError("no check decides, so that the claim could not fail")
    is_so = all(check.holds for check in checks if check.decides)
    return Outcome(is_so, series, notes, ours or {}, differs, checks)


def built_in(check: Check, why: str) -> Check:
    """The same, shown only: it follows from what the experiment puts in, or a number in it was fitted."""
    return replace(check, decides=False, tolerance=f"decides nothing: {why}")


def near(what: str, ours: float, paper: float, within: float, why: str) -> Check:
    """Whether our number is the paper's, up to a share of the paper's."""
    told = f"within {within:.0%}: {why}"
    return Check(what, abs(ours - paper) <= within * abs(paper), f"{ours:,.4g}", f"{paper:,.4g}", told)


@dataclass(frozen=True)
class Run:
    """How an experiment is to be run: `quick` shrinks it, `progress` is told the share done (0 to 1) and a word."""

    quick: bool = False
    seed: int = 1
    progress: Callable[[float, str], None] = field(default=lambda _share, _word: None)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What is known of a figure or table before it is run."""

    paper: str
    figure: str
    title: str
    claim: str
    how: How
    x_label: str
    y_label: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    stated: Mapping[str, float] = field(default_factory=dict)
    """The numbers the paper states, by a short name, to stand beside ours."""
    log_x: bool = False
    log_y: bool = False
    form: Form = "lines"
    check: str = ""
    """What is computed to decide whether the claim holds."""
    obtained: str = ""
    """Where the numbers come from, in a sentence: what ran, and what is a model."""
    differs: str = ""
    """What we do differently from the paper, and why."""

    @property
    def name(self) -> str:
        """As it is asked for: the paper and the figure."""
        return f"{self.paper} {self.figure}"


@dataclass(frozen=True, kw_only=True)
class Experiment(Declaration):
    """One registered figure or table: its declaration and the function that measures it."""

    function: Callable[[Run], Outcome]


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
    parameters: Mapping[str, object] | None = None,
    stated: Mapping[str, float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    form: Form = "lines",
    check: str = "",
    obtained: str = "",
    differs: str = "",
) -> Callable[[Callable[[Run], Outcome]], Callable[[Run], Outcome]]:
    """Register the decorated function as the experiment of one figure."""
    if paper not in PAPERS:
        raise ValueError(f"unknown paper {paper!r}")

    def register(function: Callable[[Run], Outcome]) -> Callable[[Run], Outcome]:
        _REGISTERED[paper, figure] = Experiment(
            paper=paper,
            figure=figure,
            title=title,
            claim=claim,
            how=how,
            x_label=x_label,
            y_label=y_label,
            parameters=parameters or {},
            stated=stated or {},
            log_x=log_x,
            log_y=log_y,
            form=form,
            check=check,
            obtained=obtained,
            differs=differs,
            function=function,
        )
        return function

    return register


def experiments(paper: str | None = None) -> Iterator[Experiment]:
    """All experiments, or those of one paper, in the order of the papers and of their figures."""
    if paper is not None and paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}", f"one of {', '.join(PAPERS)}", nearest(paper, PAPERS))
    for name in PAPERS if paper is None else (paper,):
        _load(name)
        yield from sorted((found for found in _REGISTERED.values() if found.paper == name), key=_place)


def find(paper: str, figure: str) -> Experiment:
    """The experiment of one figure."""
    known = {found.figure: found for found in experiments(paper)}
    if figure not in known:
        raise InputError(f"paper {paper!r} has no experiment {figure!r}", "a registered figure", nearest(figure, known))
    return known[figure]


def _place(found: Experiment) -> tuple[int, int, str]:
    """Figures by number, then tables, then sections, then what has a name of its own."""
    match = re.fullmatch(r"(fig|table|sec)(\d+)(.*)", found.figure)
    if match is None:
        return 3, 0, found.figure
    return ("fig", "table", "sec").index(match[1]), int(match[2]), match[3]


def _load(paper: str) -> None:
    try:
        importlib.import_module(f"braidstream.lab.papers.{paper}")
    except ModuleNotFoundError as error:
        if error.name != f"braidstream.lab.papers.{paper}":
            raise
