"""A check can fail: with its mechanism broken, an experiment says that the claim does not hold.

The mutations are those of `braid paper mutate`, which runs all of them; here a share, one experiment each.
"""

from __future__ import annotations

import numpy as np
import pytest

from braidstream.control.policies.declustering import Declustering
from braidstream.lab.papers.mutations import Mutation, mutations, run_mutant, without_mutation
from braidstream.lab.papers.registry import Check, Run, experiments, find, judged
from tests.lab.papers.invented import invented

BY_NAME = {one.name: one for one in mutations()}


@pytest.mark.parametrize(
    ("name", "paper", "figure"),
    [
        ("nobody-gossips", "dhtjoin", "fig9"),
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


def test_what_a_mutation_replaced_is_put_back() -> None:
    before = Declustering.suggest
    with BY_NAME["no-slot-is-given-up"].applied():
        assert Declustering.suggest is not before
    assert Declustering.suggest is before
