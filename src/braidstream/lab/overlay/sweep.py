"""Many simulations as one Spark job: one task a simulation, so that a sweep uses the whole cluster.

The only overlay module that imports Spark. A scenario determines its outcome, so where and in which order the tasks run
does not matter: the outcomes are those of `simulate`, in the order of the scenarios.
Cost: the longest simulation, or the sum divided by the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidstream.lab.overlay.shared import Outcome
from braidstream.lab.overlay.simulate import Scenario, simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["sweep"]


def sweep(spark: SparkSession, scenarios: Sequence[Scenario]) -> list[Outcome]:
    """Simulate every scenario on the cluster."""
    if not scenarios:
        return []
    tasks = spark.sparkContext.parallelize(list(scenarios), numSlices=len(scenarios))
    outcomes: list[Outcome] = tasks.map(simulate).collect()
    return outcomes
