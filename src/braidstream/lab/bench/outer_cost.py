"""What a left join costs beside an inner one, and with a window ten times longer: CPU seconds an epoch, in one process.

    python -m braidstream.lab.bench.outer_cost

Two streams with 250,000 rows each an epoch of five seconds of event time, on so many keys that half of the rows have no
partner; the engine's routing, slots and commits run in this process, so that what is counted is work and not waiting.
Prints one JSON object: `epoch_s` for each case, and the two ratios. `braid bench -w left-outer` is the same on Spark.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from braidstream.lab.testing.queries import QueryHarness

__all__ = ["Cost", "main"]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
ROWS, SPAN_S, RATE = 250_000, 5, 50_000


@dataclass(frozen=True)
class Cost:
    """One case: a kind of join and a window. Keys are as many as give ln 2 partners a row."""

    words: str
    window_s: int
    measured: int = 6

    @property
    def n_keys(self) -> int:
        """Rows of the other stream that a window reaches, before and after, over the partners of a row."""
        return round(2 * self.window_s * RATE / float(np.log(2)))

    @property
    def warm(self) -> int:
        """Epochs until as much is kept as will ever be: the other stream's rows stay for two windows."""
        return 2 * self.window_s // SPAN_S + 2

    def epoch_s(self) -> float:
        """The median CPU time of an epoch."""
        windows = f"R [RANGE {self.window_s} SECONDS] {self.words} S [RANGE {self.window_s} SECONDS]"
        text = f"SELECT R.k, R.v AS rv, S.v AS sv FROM {windows} ON R.k = S.k"
        rng, spent = np.random.default_rng(18), []
        with tempfile.TemporaryDirectory() as folder:
            harness = QueryHarness(folder, {"R": SCHEMA, "S": SCHEMA}, {"q": text}, slots=2)
            for epoch in range(self.warm + self.measured):
                tables = {name: self._rows(rng, epoch) for name in "RS"}
                began = time.process_time()
                harness.epoch(tables)
                spent.append(time.process_time() - began)
        return statistics.median(spent[self.warm :])

    def _rows(self, rng: np.random.Generator, epoch: int) -> pa.Table:
        times = SPAN_S * 1_000_000 * epoch + np.arange(ROWS) * (SPAN_S * 1_000_000 // ROWS)
        return pa.table([rng.integers(0, self.n_keys, ROWS), np.arange(ROWS), times], schema=SCHEMA)


def main() -> None:
    """Measure and print."""
    cases = {"inner": Cost("JOIN", 10), "left": Cost("LEFT JOIN", 10), "left, long": Cost("LEFT JOIN", 100)}
    found = {name: cost.epoch_s() for name, cost in cases.items()}
    ratios = {"left over inner": found["left"] / found["inner"], "long over short": found["left, long"] / found["left"]}
    print(json.dumps({"epoch_s": found, **ratios}))


if __name__ == "__main__":
    main()
