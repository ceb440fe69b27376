"""The picture of `braid bench peers`: rows a second of each system, a panel for each workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from braidstream.lab.bench.cases import BRAIDSTREAM
from braidstream.lab.bench.measure import Measurement
from braidstream.pictures import COLORS, GREY, drawing, head, number, save

__all__ = ["draw_peers"]

_BATCH = "-batch"
_COLUMNS = 3


def draw_peers(entries: Sequence[Measurement], path: Path) -> None:
    """Write it to a file. Batch engines, which see all rows at once, are grey; what has no rate says why in a word."""
    workloads = list(dict.fromkeys(entry.workload for entry in entries))
    n_columns = min(_COLUMNS, len(workloads))
    n_rows = -(-len(workloads) // n_columns)
    most = max(sum(entry.workload == name for entry in entries) for name in workloads)
    with drawing() as plt:
        size = (11.5, 0.9 + n_rows * (0.75 + 0.26 * most))
        figure, axes = plt.subplots(n_rows, n_columns, figsize=size, layout="constrained", squeeze=False)
        for ax, name in zip(axes.flat, workloads, strict=False):
            _panel(ax, name, [entry for entry in entries if entry.workload == name])
        for ax in list(axes.flat)[len(workloads) :]:
            ax.set_visible(False)
        head(figure, "Rows a second, on a logarithmic scale (grey: batch engines, which see all rows at once)")
        save(plt, figure, path)


def _panel(ax: Any, name: str, entries: Sequence[Measurement]) -> None:
    rates = [entry.rows_per_s for entry in entries if entry.rows_per_s]
    least = min(rates, default=1.0) / 4
    for place, entry in enumerate(entries):
        if entry.rows_per_s:
            ax.barh(place, entry.rows_per_s - least, left=least, color=_color(entry.system), height=0.7)
            ax.text(entry.rows_per_s, place, f" {_rate(entry.rows_per_s)}", va="center", fontsize=9)
        else:
            ax.text(least * 1.1, place, entry.status, va="center", fontsize=9, color=GREY, style="italic")
    ax.set(xscale="log", title=name, xlim=(least, max(rates, default=10.0) * 5))
    ax.set_yticks(range(len(entries)), [entry.system for entry in entries])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter(lambda value, _: number(value))
    ax.minorticks_off()


def _color(system: str) -> str:
    if system == BRAIDSTREAM:
        return COLORS[1]
    return GREY if system.endswith(_BATCH) else COLORS[0]


def _rate(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"
