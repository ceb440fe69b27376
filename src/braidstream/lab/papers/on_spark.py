"""Flows on real Spark for experiments of kind "spark": `local[2]`, streams as files, figures from `handle.progress`.

A stream is a folder with a file for each epoch, which the engine reads one by one, so that two runs see the same epochs
whatever the machine does meanwhile. Two cores cannot show how long eight machines would take. Where that is asked for,
slots are given *work*: so many microseconds for each tuple received and each match produced, which they sleep
(`model.slowness`). There are as many task threads as slots then, all sleep at once, and an epoch takes as long as its
most loaded slot. The *time on a machine a slot* is that, summed over the epochs.

Invariant: an experiment's streams, checkpoint and results are in a folder that is gone afterwards, and its session is
stopped. Cost: some seconds for the session, then tenths of a second an epoch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from braidstream.epoch.progress import EpochProgress
from braidstream.errors import InputError
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.papers.mutations import VARIABLE
from braidstream.lab.workloads import append_files
from braidstream.model.instructions import Decision, Move, Spill
from braidstream.model.slowness import WORK_VARIABLE
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session

__all__ = ["ON_SPARK", "Arrived", "Bench", "Epochs", "Ran", "bench", "keys_by_part", "keys_table", "session"]

ON_SPARK = "The engine on Spark on this machine: streams are files, one an epoch; figures are its progress."
DDL = "k long, v long, ts timestamp"
_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
EPOCH_US = 1_000_000
"""The event time of an epoch."""

Epochs = Sequence[Mapping[str, pa.Table]]
Source = AbstractContextManager[float]
"""Writes files while it is entered, from the time that it gives on (`time.monotonic`)."""
Ints = npt.NDArray[np.int64]


def keys_table(keys: Ints, epoch: int, values: Ints | None = None, epoch_us: int = EPOCH_US) -> pa.Table:
    """An epoch's tuples of one stream: these keys, in this order, spread evenly over the epoch's time."""
    numbers = np.arange(len(keys), dtype=np.int64)
    times = epoch * epoch_us + numbers * epoch_us // max(len(keys), 1)
    return pa.table([keys, numbers if values is None else values, times], schema=_SCHEMA)


@cache
def keys_by_part(n_parts: int, n_keys: int = 30_000) -> tuple[Ints, ...]:
    """Keys by the part of the hash space that they lie in: the groups of that part, in contiguous runs, have them."""
    keys = np.arange(n_keys, dtype=np.int64)
    hashes, _ = hash_columns([pa.array(keys)])
    part = (hashes >> np.uint64(32)) * np.uint64(n_parts) >> np.uint64(32)
    return tuple(keys[part == number] for number in range(n_parts))


@dataclass(frozen=True)
class Ran:
    """One run of a flow to its end."""

    progress: tuple[EpochProgress, ...]
    decisions: tuple[Decision, ...]

    @property
    def epochs(self) -> list[EpochProgress]:
        """The epochs, without the steps of a last clean-up."""
        return [entry for entry in self.progress if not entry.step]

    @property
    def matches(self) -> int:
        """All results."""
        return sum(sum(entry.matches.values()) for entry in self.progress)

    @property
    def recovered(self) -> int:
        """Those of them that clean-up made up for."""
        return sum(sum(entry.recovered.values()) for entry in self.progress)

    @property
    def produced(self) -> int:
        """Intermediate results."""
        return sum(sum(entry.produced.values()) for entry in self.progress)

    @property
    def clean_up_s(self) -> float:
        """How long the last clean-up took."""
        return sum(entry.seconds["total"] for entry in self.progress if entry.step)

    @property
    def n_pushes(self) -> int:
        """How often state was pushed."""
        return sum(any(isinstance(step, Spill) for step in made.instructions) for made in self.decisions)

    @property
    def n_forced(self) -> int:
        """How often some of it was pushed although it fitted (active-disk)."""
        return sum(any(isinstance(one, Spill) and one.forced for one in made.instructions) for made in self.decisions)

    @property
    def n_moves(self) -> int:
        """How often groups were moved from one slot to another."""
        return sum(any(isinstance(step, Move) for step in made.instructions) for made in self.decisions)

    @property
    def normal(self) -> list[int]:
        """Results so far after each epoch, without those that clean-up made up for."""
        new = [sum(entry.matches.values()) - sum(entry.recovered.values()) for entry in self.epochs]
        return [int(n) for n in np.cumsum(new)]

    @property
    def elapsed_s(self) -> float:
        """How long the epochs took, with what was decided and committed at their ends."""
        return sum(entry.seconds["total"] for entry in self.epochs)

    @property
    def apart_s(self) -> float:
        """The time on a machine a slot: of each epoch its busiest slot's, and all of it in sum."""
        return sum(max(entry.busy_s, default=0.0) for entry in self.epochs)

    def largest(self, what: str) -> float:
        """The most loaded slot of each epoch, in shares of the mean, weighted by the epoch's results ("matches")."""
        weights = [sum(entry.matches.values()) for entry in self.epochs]
        loads = [entry.balance.get(what, 1.0) for entry in self.epochs]
        return float(np.average(loads, weights=np.maximum(weights, 1)))


@dataclass(frozen=True)
class Arrived:
    """An epoch, and when it was seen to be committed (`time.monotonic`)."""

    entry: EpochProgress
    at: float


class Bench:
    """Runs flows over streams that are written once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self._n_runs = spark, folder, 0

    def streams(self, label: str, epochs: Epochs) -> Path:
        """Write streams, a file for each epoch; the folder they are in."""
        folder = self.folder / label
        for epoch in epochs:
            for name, rows in epoch.items():
                append_files(folder / name, [rows])
        return folder

    def run(self, streams: Path, query: str, *, idle: Mapping[str, str] | None = None, **options: Any) -> Ran:
        """Run a query over streams to their end, with options of `Flow`; results are counted and go nowhere.

        `idle` says of streams how long a silence is before the watermark goes on without them.
        """
        flow = self._flow(streams, query, {"maxFilesPerTrigger": "1"}, idle or {}, options)
        handle = flow.start(self._checkpoint, durability="process", warm=self._n_runs == 1)
        handle.await_termination()
        return Ran(tuple(handle.progress), tuple(handle.decisions))

    def live(
        self, streams: Path, query: str, epoch: str, n_epochs: int, source: Callable[[], Source], **options: Any
    ) -> tuple[float, list[Arrived]]:
        """Run a query over streams that a source makes meanwhile, in epochs of this length, until so many had tuples.

        Gives when the source began, and the epochs.
        """
        flow = self._flow(streams, query, {}, {}, options)
        handle = flow.start(self._checkpoint, epoch=epoch, durability="process", warm=self._n_runs == 1)
        seen: list[Arrived] = []
        n_known = 0
        with source() as began:
            while len(seen) < n_epochs:
                time.sleep(0.01)
                if not handle.is_active:
                    handle.await_termination()  # raises what it ended by
                new = list(handle.progress)[n_known:]
                n_known += len(new)
                seen += [Arrived(entry, time.monotonic()) for entry in new if any(entry.rows.values())]
        handle.stop()
        return began, seen

    @property
    def _checkpoint(self) -> Path:
        return self.folder / f"ck-{self._n_runs}"

    def _flow(
        self, streams: Path, query: str, reading: Mapping[str, str], idle: Mapping[str, str], options: dict[str, Any]
    ) -> Flow:
        """A flow of its own over these streams."""
        self._n_runs += 1
        flow = Flow(self.spark, f"run-{self._n_runs}", **options)
        for stream in sorted(streams.iterdir()):
            flow.files(
                stream.name,
                stream,
                schema=DDL,
                time="ts",
                delay="0 seconds",
                order="modified",
                idle=idle.get(stream.name),
                options=reading,
            )
        flow.query(query, name="q").to("noop")
        return flow


@contextmanager
def session(n_threads: int = 2, work_us: tuple[float, float] | None = None) -> Iterator[SparkSession]:
    """A local session of its own; with `work_us`, the price of a tuple and of a match at every slot."""
    if SparkSession.getActiveSession() is not None:
        raise InputError("a Spark session is active", "none: an experiment starts its own", "stop it, or run it apart")
    a_tuple, a_match = work_us or (0.0, 0.0)  # told always: a later session has what the first one of its JVM was told
    settings = {"spark.ui.enabled": "false", f"spark.executorEnv.{WORK_VARIABLE}": f"{a_tuple:g}:{a_match:g}"}
    if VARIABLE in os.environ:  # what is broken here is broken in the workers
        settings[f"spark.executorEnv.{VARIABLE}"] = os.environ[VARIABLE]
        settings["spark.python.daemon.module"] = "braidstream.lab.papers.broken_workers"
    spark = local_session(f"local[{n_threads}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def bench(n_threads: int = 2, work_us: tuple[float, float] | None = None) -> Iterator[Bench]:
    """A bench on a local session."""
    with session(n_threads, work_us) as spark, TemporaryDirectory(prefix="papers-") as folder:
        yield Bench(spark, Path(folder))
