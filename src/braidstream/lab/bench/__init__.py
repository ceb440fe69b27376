"""`braid bench`: Braidstream beside Spark's built-in stream-stream join, on the same data, in one run."""

from braidstream.lab.bench.cases import CASES, Case
from braidstream.lab.bench.measure import Measurement, run_bench

__all__ = ["CASES", "Case", "Measurement", "run_bench"]
