"""SHC's claims on exact loads. The quick runs; `braid paper shc FIGURE` is the whole experiment."""

from __future__ import annotations

import numpy as np
import pytest

from braidstream.control.regridding import GridSettings
from braidstream.lab.papers.registry import Run, find
from braidstream.lab.papers.shc import ROUTERS, zipf_streams
from braidstream.lab.papers.shc_loads import Streams, biclique, gridded, hashed, subgroup_choices
from tests.lab.papers.known import is_as_known

FAST, SLOW = ["loads", "fig4", "fig7"], ["fig5", "fig6"]


@pytest.mark.parametrize("figure", [*FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_the_claim_holds_as_far_as_is_known(figure: str) -> None:
    outcome = find("shc", figure).function(Run(quick=True))
    assert is_as_known(f"shc {figure}", outcome)
    assert all(len(series.x) == len(series.y) > 1 for series in outcome.series)


@pytest.mark.parametrize("router", ROUTERS.values(), ids=ROUTERS.keys())
@pytest.mark.parametrize("alpha", [0.0, 1.3])
def test_every_match_is_produced_once_whatever_the_router(router: object, alpha: float) -> None:
    streams = zipf_streams(20_000, alpha, Run(quick=True, seed=3))
    loads = router(streams, 8)  # type: ignore[operator]
    assert loads.matches.sum() == pytest.approx(streams.out)
    assert loads.received.sum() >= streams.rows


def test_loads_of_a_few_rows_by_hand() -> None:
    streams = Streams(np.array([0, 0, 1]), np.array([0, 1, 1]), domain=2, epochs=3)
    whole = hashed(streams, 1)
    assert (whole.received.tolist(), whole.matches.tolist()) == ([6.0], [2 * 1 + 1 * 2])
    pair = biclique(streams, 2, 1)
    assert (pair.received.tolist(), pair.matches.tolist()) == ([6.0, 6.0], [2.0, 2.0])
    assert subgroup_choices(48) == [1, 2, 3, 4, 6, 8, 12, 24]


def test_a_key_with_all_tuples_is_spread_once_it_was_seen() -> None:
    streams = Streams(np.zeros(4000, np.int64), np.zeros(4000, np.int64), domain=1, epochs=20)
    ours = gridded(streams, 8, GridSettings())
    assert ours.imbalance < 1.1
    assert ours.regrids <= 3
    assert hashed(streams, 8).imbalance == 8.0
