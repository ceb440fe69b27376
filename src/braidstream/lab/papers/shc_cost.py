"""What a tuple and a match cost on this machine: the two prices that turn exact loads into times at p nodes.

Measured with the engine's own routing, join, segments and sinks in one process (`lab.testing.harness`), one slot, in
processor time: first streams without a match give the price of a tuple, then one key with many matches gives, after its
tuples are paid for, the price of a match. The time at p slots is then a model: every slot has a core, all work at once,
so the join takes as long as its most loaded slot, max over slots of (received x tuple_s + matches x match_s).

Cost: about two seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.lab.papers.shc_loads import Loads
from braidstream.lab.testing.harness import Harness, Indexed

__all__ = ["Costs", "measured_costs"]

_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
_ROWS = 100_000
_HOT = 1_000


@dataclass(frozen=True)
class Costs:
    """Seconds of one core for a tuple that a slot receives, and for a match that it produces."""

    tuple_s: float
    match_s: float

    def time_s(self, loads: Loads) -> float:
        """How long the most loaded slot works."""
        return float((loads.received * self.tuple_s + loads.matches * self.match_s).max())

    def told(self) -> str:
        """For the notes of a figure."""
        return (
            f"a tuple costs {self.tuple_s * 1e6:.2f} us and a match {self.match_s * 1e6:.3f} us of one core (measured)"
        )


def measured_costs(repeats: int = 3) -> Costs:
    """Both prices, each the median over some epochs after a first one that warms up."""
    apart = np.arange(_ROWS, dtype=np.int64)
    plain_s = _epoch_s([(apart, apart + _ROWS)] * (repeats + 1))
    hot = np.zeros(_HOT, dtype=np.int64)
    hot_s = _epoch_s([(hot + i, hot + i) for i in range(repeats + 1)])
    tuple_s = plain_s / (2 * _ROWS)
    return Costs(tuple_s, max(1e-12, (hot_s - 2 * _HOT * tuple_s) / _HOT**2))


def _epoch_s(epochs: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> float:
    """The median time of the epochs after the first; windows of one epoch, so that each joins its own rows only."""
    with TemporaryDirectory() as folder:
        inputs = [Indexed(name, name, ("k",), 10) for name in "RS"]
        harness = Harness(Path(folder), dict.fromkeys("RS", _SCHEMA), {"pairs": inputs})
        times = []
        for i, (left, right) in enumerate(epochs):
            rows = {"R": _table(left, i * 1000), "S": _table(right, i * 1000)}
            started = time.process_time()
            harness.epoch(rows)
            times.append(time.process_time() - started)
    return median(times[1:])


def _table(keys: npt.NDArray[np.int64], at_us: int) -> pa.Table:
    times = pa.array(np.full(len(keys), at_us, dtype=np.int64)).cast(pa.timestamp("us"))
    return pa.table({"k": keys, "v": np.arange(len(keys)), "ts": times}, schema=_SCHEMA)
