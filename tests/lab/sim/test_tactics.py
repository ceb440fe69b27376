"""Fine tuning (WSJ IV-D): what a tuple costs hardly depends on the length of the window.

Within one octave it does: the cost follows the size of the mini-groups, from theta up to 2 theta and back. So lengths
are spread evenly over an octave, and the same positions are taken 8 times as far on.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from braidstream.lab.sim.tactics import THETA_BLOCKS, mean_growth, measure, tuned_growth
from braidstream.lab.workloads.key_values import BModelKeys, Keys, UniformKeys


@pytest.mark.parametrize("keys", [BModelKeys(), UniformKeys(1_000_000)], ids=["b-model", "uniform"])
def test_pairs_compared_grow_less_than_a_fifth_while_the_window_grows_eight_times(keys: Keys) -> None:
    found = tuned_growth(12, theta_blocks=24, epoch_rows=240, keys=keys)
    pairs, _ = mean_growth(found)
    assert pairs < 1.2
    # The tooth is there: a single pair of lengths could show almost anything between one half and two.
    costs = [one.short.comparisons_per_tuple for one in found]
    assert max(costs) > 1.3 * min(costs)


def test_without_tuning_they_grow_with_the_window() -> None:
    short, long = (measure("blocks", rows, epoch_rows=240, n_epochs=1) for rows in (2_000, 16_000))
    assert long.comparisons_per_tuple / short.comparisons_per_tuple == pytest.approx(8, rel=0.1)


@pytest.mark.acceptance
def test_cpu_time_grows_less_than_a_fifth_with_the_papers_theta() -> None:
    found = tuned_growth(12, theta_blocks=THETA_BLOCKS)
    pairs, cpu = mean_growth(found)
    each = [one.cpu for one in found]
    print(f"CPU {cpu:.2f} ({min(each):.2f} to {max(each):.2f}, mean {fmean(each):.2f}), pairs {pairs:.2f}")
    assert pairs < 1.2
    assert cpu < 1.2
