"""The named workloads of the benchmark, and the systems that run them.

Streams are `k long, v long, ts timestamp` in Parquet files, joined on k within a window; results are discarded.
A case names how many rows an epoch has over all streams and how many epochs are left out before measuring: the first
ones pay for JIT compilation, and the state must have reached its full size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from braidstream.lab.workloads.key_values import HotKey, Keys, UniformKeys, ZipfKeys
from braidstream.lab.workloads.stream_files import write_stream

__all__ = [
    "BICLIQUE",
    "BRAIDSTREAM",
    "CASES",
    "ENOUGH_HEAP",
    "GENERAL",
    "HASH",
    "INNER",
    "PEER_CASES",
    "SPARK_MEMORY",
    "SPARK_ROCKSDB",
    "SPARK_ROCKSDB_4",
    "Case",
]

ENOUGH_HEAP = "default-4g"
"""The setting under which everything is measured: Spark's defaults with 4 GB, since 1 GB is too little for its join."""
SPARK_MEMORY, SPARK_ROCKSDB = "spark-memory", "spark-rocksdb"
SPARK_ROCKSDB_4 = "spark-rocksdb-4"
"""With version 4 of the format of a join's state."""
BRAIDSTREAM, GENERAL = "braidstream", "braidstream-general"
"""`general` takes Spark's own DataFrames of the same files instead of reading them in the routing task."""
HASH, BICLIQUE = "braidstream-hash", "braidstream-biclique"
"""Other routers than the default, which is hash until a key is heavy."""
INNER = "braidstream-inner"
"""The inner join of the same streams, where the case has another kind."""
_START_US = 1_000_000_000
"""Streams do not begin at time 0: Spark takes rows at that for late."""


@dataclass(frozen=True)
class Case:
    """One workload: what is generated, and what of it is measured."""

    name: str
    rate: float
    """Tuples a second of event time, of each stream."""
    keys: Callable[[], Keys]
    window_s: float
    rows_per_epoch: int
    warm_epochs: int
    measured_epochs: int
    systems: tuple[str, ...]
    streams: str = "RS"
    slots: int = 2
    n_queries: int = 1
    """The same join so many times, with outputs of their own, in one flow."""
    how: str = "inner"
    """The kind of join, by PySpark's name: "inner" or "left"."""
    compared: bool = True
    """Whether it is measured under every JVM setting; otherwise only with Spark's defaults and enough heap."""

    is_skewed: bool = False
    """Whether some keys have many more rows than others; who asks a batch engine cuts time into stretches then."""

    def systems_under(self, settings: str) -> tuple[str, ...]:
        """The systems measured under one of the settings: all with enough heap, elsewhere the two main ones."""
        if settings == ENOUGH_HEAP:
            return self.systems
        return tuple(s for s in self.systems if s in {SPARK_MEMORY, BRAIDSTREAM}) if self.compared else ()

    @property
    def rows_per_file(self) -> int:
        """Five files a stream and epoch, so that reading is parallel; one for tiny epochs."""
        per_stream = self.rows_per_epoch // len(self.streams)
        return max(per_stream // 5, 1) if self.rows_per_epoch >= 10_000 else per_stream

    @property
    def files_per_epoch(self) -> int:
        """Files of one stream that make an epoch."""
        return self.rows_per_epoch // len(self.streams) // self.rows_per_file

    def generate(self, folder: Path) -> None:
        """Write the streams."""
        n_rows = self.rows_per_epoch // len(self.streams) * (self.warm_epochs + self.measured_epochs)
        for seed, name in enumerate(self.streams, start=1):
            write_stream(
                folder / name,
                rate=self.rate,
                keys=self.keys(),
                rows_per_file=self.rows_per_file,
                seed=seed,
                n_rows=n_rows,
                arrivals="constant",
                start_us=_START_US,
            )


def _uniform(domain: int) -> Callable[[], Keys]:
    return lambda: UniformKeys(domain)


def _skew(percent: int) -> Case:
    """One key with this share of the tuples of both streams: the matches grow with the square of it, to 125 million an
    epoch, so that they, not the fixed cost of an epoch, are what is measured."""
    hot = HotKey(domain=1_000_000, share=percent / 100)
    return Case(f"skew-{percent}", 625, lambda: hot, 10, 20_000, 4, 6, (SPARK_MEMORY, HASH, BICLIQUE, BRAIDSTREAM),
                compared=False)  # fmt: skip


CASES = {
    case.name: case
    for case in (
        Case("uniform-500k", 50_000, _uniform(1_000_000), 10, 500_000, 4, 8,
             (SPARK_MEMORY, BRAIDSTREAM, GENERAL, SPARK_ROCKSDB)),
        Case("uniform-1m", 50_000, _uniform(1_000_000), 10, 1_000_000, 4, 6, (SPARK_MEMORY, BRAIDSTREAM, GENERAL)),
        # by then the JVM has compiled what rows pass through
        Case("uniform-warm", 50_000, _uniform(1_000_000), 10, 500_000, 24, 12, (BRAIDSTREAM, GENERAL), compared=False),
        Case("hot", 62.5, lambda: HotKey(domain=1_000_000, share=0.2), 10, 40_000, 3, 6,
             (SPARK_MEMORY, BRAIDSTREAM), is_skewed=True),
        Case("long-window", 50_000, _uniform(10_000_000), 100, 500_000, 24, 8, (BRAIDSTREAM,), compared=False),
        # ln 2 partners a row, on average: half of the rows have none
        Case("left-outer", 50_000, _uniform(1_442_695), 10, 500_000, 6, 8, (SPARK_MEMORY, BRAIDSTREAM, INNER),
             how="left"),
        # as warm as the one below, for the same rows in a window a tenth as long
        Case("left-warm", 50_000, _uniform(1_442_695), 10, 500_000, 44, 8, (BRAIDSTREAM,), how="left", compared=False),
        Case("left-long-window", 50_000, _uniform(14_426_950), 100, 500_000, 44, 8, (BRAIDSTREAM,), how="left",
             compared=False),
        Case("three-way", 20_000, _uniform(200_000), 10, 300_000, 4, 8, (SPARK_MEMORY, BRAIDSTREAM), streams="RST"),
        Case("one-query", 50_000, _uniform(1_000_000), 10, 500_000, 4, 4, (BRAIDSTREAM,), compared=False),
        Case("ten-queries", 50_000, _uniform(1_000_000), 10, 500_000, 4, 4, (BRAIDSTREAM,), n_queries=10,
             compared=False),
        _skew(20),
        _skew(50),
        _skew(100),
        Case("light", 50_000, _uniform(1_000_000), 10, 500_000, 4, 8, (HASH, BRAIDSTREAM), compared=False),
        Case("tiny", 1_000, _uniform(10_000), 10, 200, 12, 30, (SPARK_MEMORY, BRAIDSTREAM, GENERAL)),
    )
}  # fmt: skip

PEER_CASES = {
    case.name: case
    for case in (
        Case("uniform-2m", 50_000, _uniform(1_000_000), 10, 2_000_000, 2, 4, (BRAIDSTREAM,)),
        # 50 matches a row, a hundred and fifty million in all
        Case("zipf", 2_500, lambda: ZipfKeys(1_000_000, 0.9), 10, 500_000, 2, 4, (SPARK_MEMORY, BRAIDSTREAM),
             is_skewed=True),
    )
}  # fmt: skip
"""Beside other systems only (`peers/`)."""
