"""WSJ's claims on the virtual cluster. The quick runs; `braid paper wsj FIGURE` is the whole experiment."""

from __future__ import annotations

import pytest

from braidstream.lab.papers.registry import Run, find
from braidstream.lab.papers.wsj import knee
from tests.lab.papers.known import is_as_known

FAST = ["fig11", "fig14"]
SLOW = ["fig13", "buffer", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig12", "tactics"]


@pytest.mark.parametrize("figure", [*FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_the_claim_holds_as_far_as_is_known(figure: str) -> None:
    outcome = find("wsj", figure).function(Run(quick=True))
    assert is_as_known(f"wsj {figure}", outcome)
    assert all(len(series.x) == len(series.y) > 1 for series in outcome.series)


def test_the_knee_is_where_the_delay_leaves_two_epochs() -> None:
    assert knee([1, 2, 3, 4], [1.0, 3.9, 4.1, 90.0]) == 3
    assert knee([1, 2], [1.0, 1.1]) == float("inf")
