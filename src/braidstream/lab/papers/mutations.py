"""Mutations: named ways to disable or reverse a mechanism, and the experiments whose claims must then fail.

A check that holds whatever the mechanism does says nothing. So every experiment has at least one mutation, which breaks
the mechanism where it is implemented and runs the experiment as users run it: the claim must no longer hold. Where a
claim does not hold with the mechanism whole either, a check that held then must fail: what fails anyway shows nothing.
A mutation under which that is not so has *survived*, which is a defect of the check. A run that raises under a mutation
was not judged, and counts as survived too.

What is replaced is replaced in this process and in Spark's Python workers: a session of an experiment that starts under
a mutation starts its workers by `lab.papers.broken_workers`, which breaks the same in them. The engine has no hook.

Invariant: what a mutation replaced is put back after its run. Cost: a run of the experiment for each mutation, and one
without.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

from braidstream.errors import InputError, nearest
from braidstream.lab.papers.registry import PAPERS, Experiment, Outcome, Run, find

__all__ = [
    "VARIABLE",
    "Broken",
    "Mutant",
    "Mutation",
    "mutation",
    "mutation_named",
    "mutations",
    "mutations_of",
    "run_mutant",
    "without_mutation",
]

Verdict = Literal["killed", "SURVIVED", "failed"]
VARIABLE = "BRAIDSTREAM_MUTATION"
"""Names the mutation that runs, to the workers of a session that starts meanwhile."""


class Broken:
    """What a mutation has replaced, until it is put back."""

    def __init__(self, undone: ExitStack) -> None:
        self._undone = undone

    def set(self, owner: object, name: str, value: Any) -> None:
        """Replace an attribute of a module or a class that is there."""
        self._undone.enter_context(mock.patch.object(owner, name, value))


@dataclass(frozen=True)
class Mutation:
    """One way to break a mechanism, and the experiments that it must fail."""

    name: str
    what: str
    experiments: tuple[str, ...]
    """By name: the paper and the figure."""
    breaks: Callable[[Broken], None]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The mechanism broken, then whole again."""
        with ExitStack() as undone:
            undone.enter_context(mock.patch.dict(os.environ, {VARIABLE: self.name}))
            self.breaks(Broken(undone))
            yield


@dataclass(frozen=True)
class Mutant:
    """One experiment under one mutation."""

    experiment: Experiment
    mutation: Mutation
    outcome: Outcome | None
    error: str
    seconds: float
    whole: Outcome | None = None
    """What the experiment found with the mechanism whole; None: that its claim held."""

    @property
    def failing(self) -> list[str]:
        """The checks that held with the mechanism whole and do not now."""
        held = {check.what for check in self.whole.checks if check.holds} if self.whole else None
        checks = [check for check in self.outcome.checks if check.decides] if self.outcome else []
        return [check.what for check in checks if not check.holds and (held is None or check.what in held)]

    @property
    def verdict(self) -> Verdict:
        """Killed: the experiment ran, and found that its claim does not hold, where it did."""
        if self.outcome is None:
            return "failed"
        is_killed = not self.outcome.holds if self.whole is None or self.whole.holds else bool(self.failing)
        return "killed" if is_killed else "SURVIVED"

    def as_json(self) -> dict[str, object]:
        """The object that `braid paper mutate --json` prints for it."""
        return {
            "paper": self.experiment.paper,
            "figure": self.experiment.figure,
            "mutation": self.mutation.name,
            "what": self.mutation.what,
            "verdict": self.verdict.lower(),
            "failing": self.failing,
            "error": self.error,
            "seconds": round(self.seconds, 2),
        }


_KNOWN: dict[str, Mutation] = {}


def mutation(*experiments: str) -> Callable[[Callable[[Broken], None]], Callable[[Broken], None]]:
    """Register the decorated function, whose docstring says what it breaks, for these experiments."""

    def register(breaks: Callable[[Broken], None]) -> Callable[[Broken], None]:
        name = breaks.__name__.replace("_", "-")
        _KNOWN[name] = Mutation(name, (breaks.__doc__ or "").strip(), experiments, breaks)
        return breaks

    return register


def mutations() -> list[Mutation]:
    """All mutations, by the papers of their first experiments."""
    for paper in PAPERS:
        importlib.import_module(f"braidstream.lab.papers.{paper}_mutations")
    for one in _KNOWN.values():
        for name in one.experiments:
            find(*name.split(" "))  # refuses what is not registered
    return list(_KNOWN.values())


def mutation_named(name: str) -> Mutation:
    """The mutation of this name."""
    known = {one.name: one for one in mutations()}
    if name not in known:
        raise InputError(f"unknown mutation {name!r}", "one of the registered ones", nearest(name, known))
    return known[name]


def mutations_of(chosen: Experiment) -> list[Mutation]:
    """The mutations that an experiment must not survive."""
    return [one for one in mutations() if chosen.name in one.experiments]


def run_mutant(chosen: Experiment, one: Mutation, how: Run, whole: Outcome | None = None) -> Mutant:
    """Run an experiment under a mutation; what it raises is told, not raised."""
    began = time.perf_counter()
    outcome, error = None, ""
    try:
        with one.applied():
            outcome = chosen.function(how)
    except Exception as raised:  # a broken mechanism may break anything
        error = f"{type(raised).__name__}: {raised}"
    return Mutant(chosen, one, outcome, error, time.perf_counter() - began, whole)


def without_mutation(chosen: Iterable[Experiment]) -> list[str]:
    """The names of experiments that no mutation is known for."""
    return [one.name for one in chosen if not mutations_of(one)]
