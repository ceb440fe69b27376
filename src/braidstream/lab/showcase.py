"""The demonstration: WSJ's workload through a job file, checked against a batch join, and a picture of the run.

Two streams with the parameters of WSJ's experiments (VI-A): Poisson arrivals of 1500 tuples a second, tuples of 64
bytes, keys by the b-model with b = 0.7 over ten million, windows of 10 minutes; 20 minutes of event time, read as fast
as the machine can. A folder holds the streams, the job file, its checkpoint and its results, as a user's would.

Invariant: `verify` reads only the input files and the result files, and computes the join with DuckDB: nothing of the
engine is in it. Cost: 230 MB of input, some eight million matches; about a minute on two cores.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from braidstream.errors import InputError
from braidstream.lab.testing.batch import BatchStream, Difference, batch_join, same_rows
from braidstream.lab.workloads import WSJ_PAYLOAD_BYTES, BModelKeys, StreamFiles, write_stream
from braidstream.pictures import GREY, drawing, legend, number, save

if TYPE_CHECKING:
    from braidstream.epoch.progress import EpochProgress

__all__ = ["RATE", "WINDOW_MINUTES", "Demo", "draw"]

RATE = 1500
WINDOW_MINUTES = 10
EPOCH_SECONDS = 50
MARK = "# Made by `braid demo`, which replaces this folder when it runs again.\n"
_MINUTE_US = 60_000_000
_STREAM = """
[streams.{name}]
format = "parquet"
path = "{name}"
schema = "k long, v long, ts timestamp, pad binary"
time = "ts"
options = {{ maxFilesPerTrigger = "1" }}
"""
_JOB = """
[flow]
name = "demo"
checkpoint = "checkpoint"
epoch = "available"
{streams}
[queries.pairs]
cql = \"\"\"
SELECT R.k AS k, R.v AS rv, S.v AS sv
FROM R [RANGE {minutes} MINUTES], S [RANGE {minutes} MINUTES]
WHERE R.k = S.k
\"\"\"
sink = {{ format = "parquet", path = "pairs" }}
"""


@dataclass(frozen=True)
class Demo:
    """A demonstration in a folder of its own."""

    folder: Path
    minutes: float = 20.0
    seed: int = 1

    @property
    def job(self) -> Path:
        """The job file."""
        return self.folder / "job.toml"

    def prepare(self) -> list[StreamFiles]:
        """Make the folder anew: two streams and the job file."""
        self._clear()
        self.folder.mkdir(parents=True)
        streams = "".join(_STREAM.format(name=name) for name in "RS")
        self.job.write_text(MARK + _JOB.format(streams=streams, minutes=WINDOW_MINUTES), encoding="utf-8")
        n_rows = round(self.minutes * 60 * RATE)
        return [
            write_stream(
                self.folder / name,
                rate=RATE,
                keys=BModelKeys(),
                rows_per_file=EPOCH_SECONDS * RATE,
                seed=self.seed * 2 + i,
                n_rows=n_rows,
                payload_bytes=WSJ_PAYLOAD_BYTES,
            )
            for i, name in enumerate("RS")
        ]

    def verify(self) -> Difference:
        """Compare the results with the batch join of all rows."""
        window_us = WINDOW_MINUTES * _MINUTE_US
        expected = batch_join(
            [BatchStream(name, self.folder / name, window_us) for name in "RS"],
            [("R.k", "S.k")],
            {"k": "R.k", "rv": "R.v", "sv": "S.v"},
        )
        return same_rows(self.folder / "pairs", expected)

    def _clear(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file", "a new or an empty folder", "choose another one with --folder")
        if not self.folder.exists() or not any(self.folder.iterdir()):
            return
        if not self.job.is_file() or not self.job.read_text(encoding="utf-8").startswith(MARK):
            fix = "choose another folder with --folder"
            raise InputError(f"{self.folder} is not empty, and no demo made it", "a new or an empty folder", fix)
        shutil.rmtree(self.folder)


def draw(epochs: Sequence[EpochProgress], path: Path) -> None:
    """Draw throughput and state over event time, as a PNG file."""
    minutes = [(entry.watermark or 0) / _MINUTE_US for entry in epochs]
    matches = [sum(entry.matches.values()) / entry.seconds["total"] for entry in epochs]
    state = [entry.state_rows for entry in epochs]
    with drawing() as plt:
        figure, (top, bottom) = plt.subplots(2, 1, figsize=(7.2, 5.4), sharex=True, layout="constrained")
        how = {"marker": "o", "markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.6}
        top.plot(minutes, [entry.rows_per_s for entry in epochs], label="rows", **how)
        top.plot(minutes, matches, label="matches", **{**how, "marker": "s"})
        top.set_ylabel("a second, within the epoch")
        bottom.fill_between(minutes, state, alpha=0.2, linewidth=0)
        bottom.plot(minutes, state, **how)
        bottom.axvline(WINDOW_MINUTES, color=GREY, linestyle=":", linewidth=1)
        note = {"textcoords": "offset points", "color": GREY, "fontsize": 10.5}
        bottom.annotate("windows are full", (WINDOW_MINUTES, 0), (4, 6), **note)
        bottom.set(ylabel="rows in state", xlabel="event time (minutes)")
        for axes in (top, bottom):
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _place: number(value))
        handles, names = top.get_legend_handles_labels()
        title = "Two streams joined over windows of 10 minutes (WSJ's workload)"
        legend(figure, dict(zip(names, handles, strict=True)), title, 2)
        save(plt, figure, path)
