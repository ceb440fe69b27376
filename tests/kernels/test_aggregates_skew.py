"""One key that is 30 % of all tuples costs an aggregate query no more than uniform keys, whatever it would enumerate.

CPU seconds of this process are compared, so other work on the machine hardly shows. `python -m
braidstream.lab.bench.aggregates_skew --spark FOLDER` measures the same on Spark.
"""

from __future__ import annotations

import pytest

from braidstream.lab.bench.aggregates_skew import KEYS, WARM, in_process


@pytest.mark.slow
def test_a_hot_key_costs_at_most_half_more_than_uniform_ones() -> None:
    uniform, hot = (in_process(KEYS[name], WARM + 3) for name in ("uniform", "hot"))
    assert hot["composites"] > 1e8
    assert hot["composites"] > 100 * uniform["composites"]
    assert hot["epoch_s"] <= 1.5 * uniform["epoch_s"]
