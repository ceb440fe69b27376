"""What a left join costs beside an inner one, and with a window ten times longer: CPU seconds an epoch, in one process.

    python -m braidstream.lab.bench.outer_cost

Two streams with 250,000 rows each an epoch of five seconds of event time, on so many keys that half of the rows have no
partner; the engine's routing, slots and commits run in this process, so that what is counted is work and not waiting.
All cases go side by side, epoch by epoch, and a ratio is the median of those of single epochs: so what else the machine
does meanwhile is in both sides of it. Prints one JSON object: `epoch_s` for each case, and the ratios. `braid bench -w
left-outer` is the same on Spark.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from braidstream.lab.testing.queries import QueryHarness

__all__ = ["Cost", "main"]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
ROWS, SPAN_S, RATE = 250_000, 5, 50_000
MEASURED = 8


@dataclass(frozen=True)
class Cost:
    """One case: a kind of join and a window. Keys are as many as give ln 2 partners a row."""

    words: str
    window_s: int

    @property
    def n_keys(self) -> int:
        """Rows of the other stream that a window reaches, before and after, over the partners of a row."""
        return round(2 * self.window_s * RATE / float(np.log(2)))

    @property
    def warm(self) -> int:
        """Epochs until as much is kept as will ever be: the other stream's rows stay for two windows."""
        return 2 * self.window_s // SPAN_S + 2

    def harness(self, folder: Path) -> QueryHarness:
        """The engine with the query."""
        windows = f"R [RANGE {self.window_s} SECONDS] {self.words} S [RANGE {self.window_s} SECONDS]"
        text = f"SELECT R.k, R.v AS rv, S.v AS sv FROM {windows} ON R.k = S.k"
        return QueryHarness(folder, {"R": SCHEMA, "S": SCHEMA}, {"q": text}, slots=2)

    def rows(self, rng: np.random.Generator, epoch: int) -> pa.Table:
        """What a stream has in an epoch."""
        times = SPAN_S * 1_000_000 * epoch + np.arange(ROWS) * (SPAN_S * 1_000_000 // ROWS)
        return pa.table([rng.integers(0, self.n_keys, ROWS), np.arange(ROWS), times], schema=SCHEMA)


CASES = {
    "inner": Cost("JOIN", 10),
    "left": Cost("LEFT JOIN", 10),
    "inner, long": Cost("JOIN", 100),
    "left, long": Cost("LEFT JOIN", 100),
}
RATIOS = (("left", "inner"), ("left, long", "inner, long"), ("left, long", "left"), ("inner, long", "inner"))


def main() -> None:
    """Measure and print."""
    spent: dict[str, list[float]] = {name: [] for name in CASES}
    warm, rng = max(cost.warm for cost in CASES.values()), np.random.default_rng(18)
    with tempfile.TemporaryDirectory() as folder:
        running = {name: cost.harness(Path(folder) / name) for name, cost in CASES.items()}
        for epoch in range(warm + MEASURED):
            for name, cost in CASES.items():
                tables = {stream: cost.rows(rng, epoch) for stream in "RS"}
                began = time.process_time()
                running[name].epoch(tables)
                spent[name].append(time.process_time() - began)
    found = {name: own[warm:] for name, own in spent.items()}
    ratios = {f"{one} over {other}": _ratio(found[one], found[other]) for one, other in RATIOS}
    print(json.dumps({"epoch_s": {name: statistics.median(own) for name, own in found.items()}, **ratios}))


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
