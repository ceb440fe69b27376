"""The picture of `braid bench peers`: rows a second of each system, a panel for each workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from braidstream.lab.bench.cases import BRAIDSTREAM, SPARK_MEMORY, SPARK_ROCKSDB_4
from braidstream.lab.bench.measure import Measurement
from braidstream.lab.bench.peers.workloads import BYTEWAX, DUCKDB, FLINK, FLINK_SAVED, PATHWAY, POLARS
from braidstream.pictures import COLORS, GREY, drawing, head, number, save

__all__ = ["draw_peers"]

_COLUMNS = 3
_UNKNOWN = "not measured"
_NAMES = {
    SPARK_MEMORY: "Spark, state in memory", SPARK_ROCKSDB_4: "Spark, state in RocksDB", FLINK: "Flink",
    FLINK_SAVED: "Flink with checkpoints", PATHWAY: "Pathway", BYTEWAX: "Bytewax", BRAIDSTREAM: "Braidstream",
    DUCKDB: "DuckDB, all at once", POLARS: "Polars, all at once",
}  # fmt: skip
_TITLES = {
    "uniform-1m": "even keys, 1 million rows an epoch", "uniform-2m": "even keys, 2 million rows an epoch",
    "zipf": "skewed keys (Zipf 0.9)", "hot": "a fifth of the rows on one key",
    "left-outer": "left outer join", "three-way": "three streams",
}  # fmt: skip


def draw_peers(entries: Sequence[Measurement], path: Path) -> None:
    """Write it to a file. What has no rate says why in a word.

    Batch engines, which see all rows at once, are grey. Every panel has every system, measured there or not.
    """
    workloads = list(dict.fromkeys(entry.workload for entry in entries))
    asked = {entry.system for entry in entries}
    systems = [name for name in _NAMES if name in asked] + sorted(asked - {*_NAMES})
    n_columns = min(_COLUMNS, len(workloads))
    n_rows = -(-len(workloads) // n_columns)
    with drawing() as plt:
        size = (11.5, 0.9 + n_rows * (1.05 + 0.26 * len(systems)))
        figure, axes = plt.subplots(n_rows, n_columns, figsize=size, layout="constrained", squeeze=False)
        for ax, name in zip(axes.flat, workloads, strict=False):
            own = {entry.system: entry for entry in entries if entry.workload == name}
            _panel(ax, name, [own.get(one, Measurement(name, one, "", _UNKNOWN)) for one in systems])
        for ax in list(axes.flat)[len(workloads) :]:
            ax.set_visible(False)
        head(figure, "How many rows a second (grey: batch engines, which see all rows at once)")
        save(plt, figure, path)


def _panel(ax: Any, name: str, entries: Sequence[Measurement]) -> None:
    rates = [entry.rows_per_s for entry in entries if entry.rows_per_s]
    least = min(rates, default=1.0) / 4
    for place, entry in enumerate(entries):
        if entry.rows_per_s:
            ax.barh(place, entry.rows_per_s - least, left=least, color=_color(entry.system), height=0.7)
            ax.text(entry.rows_per_s, place, f" {_rate(entry.rows_per_s)}", va="center", fontsize=9)
        else:
            ax.text(least * 1.15, place, entry.status, va="center", fontsize=9, color=GREY, style="italic")
    ax.set(xscale="log", title=_TITLES.get(name, name), xlim=(least, max(rates, default=10.0) * 5))
    ax.set_xlabel("rows a second (logarithmic)")
    ax.set_yticks(range(len(entries)), [_NAMES.get(entry.system, entry.system) for entry in entries])
    ax.set_ylim(len(entries) - 0.4, -0.6)  # the first above
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter(lambda value, _: number(value))
    ax.minorticks_off()


def _color(system: str) -> str:
    if system == BRAIDSTREAM:
        return COLORS[1]
    return GREY if system in (DUCKDB, POLARS) else COLORS[0]


def _rate(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"
