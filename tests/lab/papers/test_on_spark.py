"""Experiments on Spark: their helpers at once, and, as acceptance, that each ends as it is known to."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from braidstream.kernels.hashing import hash_columns
from braidstream.lab.papers.on_spark import keys_by_part
from braidstream.lab.papers.registry import Run, experiments, find
from braidstream.model.directory import Directory
from braidstream.model.slowness import WORK_VARIABLE
from tests.lab.papers.known import is_as_known

ON_SPARK = [one for one in experiments() if one.how == "spark"]


def test_at_least_twenty_run_on_spark_and_each_has_another_form_beside_it() -> None:
    assert len(ON_SPARK) >= 20
    for one in ON_SPARK:
        assert find(one.paper, one.figure.removesuffix("-spark")).how != "spark"


@pytest.mark.parametrize(("n_parts", "least"), [(2, 1.0), (3, 0.95)])
def test_keys_of_a_part_belong_to_the_slot_of_that_part(n_parts: int, least: float) -> None:
    """Thirds end within a group."""
    directory = Directory.of(64, n_parts)
    lows = np.array([group.low for group in directory.groups], dtype=np.uint64)
    for part, keys in enumerate(keys_by_part(n_parts, 3_000)):
        hashes, _ = hash_columns([pa.array(keys)])
        at = np.searchsorted(lows, hashes, side="right") - 1
        assert np.mean(directory.columns().slots[at] == part) >= least


@pytest.mark.acceptance
@pytest.mark.parametrize("name", [f"{one.paper} {one.figure}" for one in ON_SPARK])
def test_the_claim_holds_as_far_as_is_known(name: str) -> None:
    outcome = find(*name.split(" ")).function(Run(quick=True))
    assert is_as_known(name, outcome)
    assert all(len(series.x) == len(series.y) > 0 for series in outcome.series)


_TWO_SESSIONS = f"""
from braidstream.lab.papers.on_spark import session
for work in ((500.0, 20.0), None):
    with session(1, work) as spark:
        print("work", spark.sparkContext.getConf().get("spark.executorEnv.{WORK_VARIABLE}"))
"""


@pytest.mark.slow
def test_work_that_was_asked_for_once_is_not_done_by_later_sessions() -> None:
    """Spark's context takes what the first one of its JVM was told for its defaults."""
    ran = subprocess.run([sys.executable, "-c", _TWO_SESSIONS], capture_output=True, text=True, check=True)
    assert [line for line in ran.stdout.splitlines() if line.startswith("work")] == ["work 500:20", "work 0:0"]
