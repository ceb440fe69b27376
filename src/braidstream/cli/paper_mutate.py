"""`braid paper mutate`: every experiment under each of its mutations; exit code 0 when no mutation survives.

A line a mutation as it ends, then a summary: which survived, which failed to run, which experiments have none. Each
experiment runs once with its mechanisms whole before, so that what fails anyway is not taken for the mutation's doing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import typer
from rich.console import Console

from braidstream.cli.words import count, length
from braidstream.lab.papers.mutations import Mutant, mutations_of, run_mutant, without_mutation
from braidstream.lab.papers.registry import Experiment, Run, experiments, find
from braidstream.lab.papers.results import attempt

__all__ = ["mutate"]

_STYLES = {"killed": "green", "SURVIVED": "bold red", "failed": "red"}


def mutate(which: str, how: Run, as_json: bool) -> int:
    """Run the mutations of all experiments, of a paper's or of one figure's; gives the exit code."""
    chosen = _chosen(which)
    out = Console(stderr=as_json, highlight=False, soft_wrap=True)
    began = time.perf_counter()
    found = []
    for one in chosen:
        known = mutations_of(one)
        whole = attempt(one, how).outcome if known else None
        for mutation in known:
            found.append(run_mutant(one, mutation, how, whole))
            out.print(_line(found[-1]), markup=True)
    bare = without_mutation(chosen)
    if as_json:
        typer.echo(json.dumps({"mutations": [one.as_json() for one in found], "without": bare}))
    out.print(_summary(found, bare, time.perf_counter() - began), markup=False)
    return 0 if not bare and all(one.verdict == "killed" for one in found) else 1


def _chosen(which: str) -> list[Experiment]:
    paper, _, figure = which.partition(":")
    if figure:
        return [find(paper, figure)]
    return list(experiments(None if which in ("", "all") else which))


def _line(one: Mutant) -> str:
    told = f"[{_STYLES[one.verdict]}]{one.verdict:<8}[/] {one.experiment.name:<15} {one.seconds:6.1f} s  "
    failing = f"; fails: {', '.join(one.failing)}" if one.failing and one.verdict == "killed" else ""
    rest = f"{one.mutation.name}: {one.mutation.what}{failing}" + (f" ({one.error})" if one.error else "")
    return told + rest.replace("[", r"\[")


def _summary(found: Sequence[Mutant], bare: Sequence[str], seconds: float) -> str:
    lines = [
        f"{count(len(found), 'mutation')}: {sum(one.verdict == 'killed' for one in found)} killed; {length(seconds)}"
    ]
    for verdict, told in (("SURVIVED", "survived, so the check says nothing"), ("failed", "failed to run")):
        lines += [f"{told}: {one.experiment.name} under {one.mutation.name}" for one in found if one.verdict == verdict]
    if bare:
        lines.append(f"without a mutation: {', '.join(bare)}")
    return "\n".join(lines)
