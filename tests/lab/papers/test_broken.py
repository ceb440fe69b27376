"""A check can fail: with its mechanism broken, an experiment says that the claim does not hold.

The mutations are those of `braid paper mutate`, which runs all of them; here a share, one experiment each.
"""

from __future__ import annotations

import numpy as np
import pytest

from braidstream.control.policies.declustering import Declustering
from braidstream.lab.papers.mutations import mutations, run_mutant
from braidstream.lab.papers.registry import Run, find

BY_NAME = {one.name: one for one in mutations()}


@pytest.mark.parametrize(
    ("name", "paper", "figure"),
    [
        ("nobody-gossips", "dhtjoin", "fig9"),
        ("no-partner-is-asked", "dhtjoin", "sec6"),
        ("no-slot-is-given-up", "wsj", "fig11"),
        ("groups-are-never-tuned", "wsj", "fig8"),
        ("no-key-is-ever-heavy", "shc", "fig4"),
        pytest.param("productivity-is-turned-around", "dcape", "fig11", marks=pytest.mark.slow),
    ],
)
def test_a_broken_mechanism_fails_its_check(name: str, paper: str, figure: str) -> None:
    mutant = run_mutant(find(paper, figure), BY_NAME[name], Run(quick=True))
    assert mutant.verdict == "killed", mutant.outcome
    assert mutant.outcome is not None
    assert all(np.isfinite(y) for series in mutant.outcome.series for y in series.y)  # it ran, and was judged


def test_what_a_mutation_replaced_is_put_back() -> None:
    before = Declustering.suggest
    with BY_NAME["no-slot-is-given-up"].applied():
        assert Declustering.suggest is not before
    assert Declustering.suggest is before
