"""A check can fail: with its mechanism broken, an experiment says that the claim does not hold.

The mutations are those of `braid paper mutate`, which runs all of them; here a share, one experiment each.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from braidstream.cli.paper_mutate import mutate
from braidstream.control.policies.declustering import Declustering
from braidstream.lab.papers.mutations import Mutation, mutations, run_mutant, without_mutation
from braidstream.lab.papers.registry import Check, Run, built_in, experiments, find, judged
from tests.lab.papers.invented import invented

BY_NAME = {one.name: one for one in mutations()}


@pytest.mark.parametrize(
    ("name", "paper", "figure"),
    [
        ("nobody-gossips", "dhtjoin", "fig9"),
        ("all-groups-are-at-one-machine", "dcape", "fig6"),
        ("the-master-ignores-the-epoch", "wsj", "fig13"),
        ("no-partner-is-asked", "dhtjoin", "sec6"),
        ("no-slot-is-given-up", "wsj", "fig11"),
        ("groups-are-never-tuned", "wsj", "fig8"),
        ("no-key-is-ever-heavy", "shc", "fig4"),
        ("every-second-finger-is-missing", "dhtjoin", "scale"),
        pytest.param("productivity-is-turned-around", "dcape", "fig11", marks=pytest.mark.slow),
    ],
)
def test_a_broken_mechanism_fails_its_check(name: str, paper: str, figure: str) -> None:
    mutant = run_mutant(find(paper, figure), BY_NAME[name], Run(quick=True))
    assert mutant.verdict == "killed", mutant.outcome
    assert mutant.outcome is not None
    assert all(np.isfinite(y) for series in mutant.outcome.series for y in series.y)  # it ran, and was judged


@pytest.mark.acceptance
@pytest.mark.parametrize("name", [f"{one.paper}:{one.figure}" for one in experiments()])
def test_no_mutation_survives(name: str) -> None:
    """As `braid paper mutate` runs them."""
    assert mutate(name, Run(quick=True), as_json=False) == 0


def test_every_experiment_has_a_mutation() -> None:
    assert without_mutation(experiments()) == []


@pytest.mark.parametrize(
    ("whole", "broken", "verdict"),
    [
        pytest.param({"a": True}, {"a": True}, "SURVIVED", id="a claim that still holds"),
        pytest.param({"a": True, "b": True}, {"a": True, "b": False}, "killed", id="one check of two fails"),
        pytest.param({"a": True, "b": False}, {"a": False, "b": False}, "killed", id="another fails than did anyway"),
        pytest.param({"a": True, "b": False}, {"a": True, "b": False}, "SURVIVED", id="what fails anyway says nothing"),
    ],
)
def test_a_mutation_is_killed_by_a_check_that_held(
    whole: dict[str, bool], broken: dict[str, bool], verdict: str
) -> None:
    before, after = (judged((), [Check(what, holds, "") for what, holds in some.items()]) for some in (whole, broken))
    nothing = Mutation("nothing", "breaks nothing", (), lambda _broken: None)
    mutant = run_mutant(invented("fig5", after), nothing, Run(), before)
    assert mutant.verdict == verdict
    assert mutant.failing == [what for what in broken if whole[what] and not broken[what]]


def test_a_run_that_raises_was_not_judged() -> None:
    nothing = Mutation("nothing", "breaks nothing", (), lambda _broken: None)
    mutant = run_mutant(invented("fig5", RuntimeError("no memory left")), nothing, Run())
    assert (mutant.verdict, mutant.error) == ("failed", "RuntimeError: no memory left")


def test_what_is_built_in_is_shown_and_decides_nothing() -> None:
    holds, not_held = Check("a", True, "1"), built_in(Check("b", False, "2"), "we put it in")
    outcome = judged((), [holds, not_held])
    assert outcome.holds
    assert [(check.word, check.tolerance) for check in outcome.checks][1] == ("shown", "decides nothing: we put it in")
    assert not judged((), [replace(holds, holds=False), not_held]).holds
    with pytest.raises(ValueError, match="no check decides"):
        judged((), [not_held])


def test_what_is_built_in_kills_no_mutation() -> None:
    nothing = Mutation("nothing", "breaks nothing", (), lambda _broken: None)
    before = judged((), [Check("a", False, ""), built_in(Check("b", True, ""), "")])
    after = judged((), [Check("a", False, ""), built_in(Check("b", False, ""), "")])
    assert run_mutant(invented("fig5", after), nothing, Run(), before).verdict == "SURVIVED"


_IN_WORKERS = """
from contextlib import nullcontext
from braidstream.functions import nodes
from braidstream.lab.papers.mutations import mutation_named
from braidstream.lab.papers.on_spark import session

def name_there(_):
    from braidstream.functions import nodes
    return nodes._parts.__name__

for broken in (mutation_named("all-windows-go-to-the-first-node").applied(), nullcontext()):
    with broken, session(1) as spark:
        print("found", nodes._parts.__name__, *spark.sparkContext.parallelize([1], 1).map(name_there).collect())
"""


@pytest.mark.slow
def test_a_mutation_reaches_sparks_workers_and_ends_with_its_session() -> None:
    ran = subprocess.run([sys.executable, "-c", _IN_WORKERS], capture_output=True, text=True, check=True)
    found = [line for line in ran.stdout.splitlines() if line.startswith("found")]
    assert found == ["found lopsided lopsided", "found _parts _parts"]


def test_what_a_mutation_replaced_is_put_back() -> None:
    before = Declustering.suggest
    with BY_NAME["no-slot-is-given-up"].applied():
        assert Declustering.suggest is not before
    assert Declustering.suggest is before
