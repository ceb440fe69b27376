"""Random streams through the engine with shedding and without: what it says of its completeness, and the truth.

    trial = Trial.random(seed)
    found = trial.run(folder)
    found.contains, found.interval, found.truth

The truth is counted by the same engine with all the memory it needs; that this is the batch join is tested elsewhere,
and `Outcome.same_as` holds it against DuckDB's. Cost: some tenths of a second a trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from braidstream.control.estimate import Interval
from braidstream.control.overflow import Overflow
from braidstream.control.shedding import STRATEGIES
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.dead_rows import FIRST_BITS, Filter
from braidstream.state.filters import filter_of

__all__ = ["Outcome", "Trial"]

SECOND_US = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


@dataclass(frozen=True)
class Outcome:
    """What a trial gave. By epoch: results found, all results, and the interval that was reported."""

    found: tuple[int, ...]
    whole: tuple[int, ...]
    intervals: tuple[Interval, ...]
    interval: Interval
    """Of the whole run."""
    so_far: tuple[Interval, ...] = ()
    """By epoch: of the run until then."""
    bits: int = FIRST_BITS
    """The sample at the end: 2^-bits of the keys."""

    @property
    def truth(self) -> float:
        """The completeness of the whole run, as measured."""
        return sum(self.found) / max(sum(self.whole), 1)

    @property
    def contains(self) -> bool:
        """Whether the reported interval contains it."""
        return _within(self.truth, self.interval)

    @property
    def so_far_contained(self) -> tuple[int, int]:
        """In how many of the epochs with results the interval of the run until then contains it, of how many."""
        found, whole = np.cumsum(self.found), np.cumsum(self.whole)
        truths = [(f / w, told) for f, w, told in zip(found, whole, self.so_far, strict=True) if w]
        return sum(_within(truth, told) for truth, told in truths), len(truths)

    @property
    def epochs_contained(self) -> tuple[int, int]:
        """In how many of the epochs with results it does, and how many there are."""
        told = [
            _within(found / whole, interval)
            for found, whole, interval in zip(self.found, self.whole, self.intervals, strict=True)
            if whole
        ]
        return sum(told), len(told)


@dataclass(frozen=True)
class Trial:
    """Streams of one rate each, keys by a power law, and a budget that is a share of what the windows hold."""

    seed: int
    rates: tuple[int, ...]
    """Tuples an epoch, by stream. Epochs are one second."""
    windows_s: tuple[int, ...]
    keys: int
    zipf: float
    memory_share: float
    strategy: str
    slots: int = 1
    groups: int = 16
    epochs: int = 20
    memory_bytes: int | None = None
    """Instead of the share."""
    names: tuple[str, ...] = field(default=("A", "B", "C", "D"))

    @classmethod
    def random(cls, seed: int) -> Trial:
        """One of many."""
        draw = np.random.default_rng(seed)
        m = int(draw.integers(2, 4))
        rates = tuple(int(draw.integers(60, 300)) for _ in range(m))
        windows = tuple(int(draw.integers(3, 10)) for _ in range(m))
        return cls(
            seed,
            rates,
            windows,
            keys=int(10 ** draw.uniform(2, 3.5)) * (1 if m == 2 else 3),
            zipf=float(draw.uniform(0, 1.0 if m == 2 else 0.6)),
            memory_share=float(draw.uniform(0.1, 0.95)),
            strategy=str(draw.choice(STRATEGIES)),
            slots=int(draw.integers(1, 4)),
            groups=int(2 ** draw.integers(2, 6)),
        )

    def run(self, folder: Path) -> Outcome:
        """With all memory first, then with the budget."""
        whole, peak = self._run(folder / "whole", None)
        each = [entry.matches.get("q", 0) for entry in whole.runner.progress]
        memory = self.memory_bytes or max(int(self.memory_share * peak / self.slots), 1)
        shed, _ = self._run(folder / "shed", Overflow(memory, "shed", shed_by=self.strategy))
        entries, whole_run = list(shed.runner.progress), Interval(1.0, 1.0, 1.0)
        return Outcome(
            tuple(entry.matches.get("q", 0) for entry in entries),
            tuple(each),
            tuple(entry.completeness.get("q", Interval(1.0, 1.0, 1.0)) for entry in entries),
            entries[-1].completeness_so_far.get("q", whole_run),
            tuple(entry.completeness_so_far.get("q", whole_run) for entry in entries),
            (filter_of(shed.manifest) or Filter()).bits,
        )

    def harness(self, folder: Path, overflow: Overflow | None) -> Harness:
        """The engine that it runs on."""
        names = self.names[: len(self.rates)]
        inputs = [Indexed(n, n, ("k",), w * SECOND_US) for n, w in zip(names, self.windows_s, strict=True)]
        schemas = dict.fromkeys(names, SCHEMA)
        return Harness(folder, schemas, {"q": inputs}, slots=self.slots, groups=self.groups, overflow=overflow)

    def tables(self) -> Iterator[dict[str, pa.Table]]:
        """The tuples, epoch by epoch."""
        draw = np.random.default_rng(self.seed)
        weights = np.arange(1, self.keys + 1) ** -self.zipf
        names = self.names[: len(self.rates)]
        for epoch in range(self.epochs):
            yield {
                name: self._table(draw, weights / weights.sum(), rate, epoch)
                for name, rate in zip(names, self.rates, strict=True)
            }

    def longer(self, epochs: int) -> Trial:
        """The same, for more epochs."""
        return replace(self, epochs=epochs)

    def _run(self, folder: Path, overflow: Overflow | None) -> tuple[Harness, int]:
        harness, peak = self.harness(folder, overflow), 0
        for tables in self.tables():
            harness.epoch(tables)
            peak = max(peak, harness.runner.progress[-1].active_bytes)
        return harness, peak

    def _table(self, draw: np.random.Generator, weights: np.ndarray, rate: int, epoch: int) -> pa.Table:
        n = int(draw.poisson(rate))
        times = np.sort(draw.integers(epoch * SECOND_US, (epoch + 1) * SECOND_US, n))
        keys = draw.choice(self.keys, n, p=weights)
        return pa.table([keys, draw.integers(0, 1 << 40, n), pa.array(times, pa.int64())], schema=SCHEMA)


def _within(truth: float, interval: Interval) -> bool:
    return interval.low - 1e-9 <= truth <= interval.high + 1e-9
