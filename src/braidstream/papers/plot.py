"""Draws one experiment as a PNG file, with matplotlib (the `plot` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from braidstream.errors import InputError
from braidstream.papers.registry import Experiment, Outcome, Series

__all__ = ["draw"]


def draw(chosen: Experiment, outcome: Outcome, path: Path) -> None:
    """Write the figure to `path`."""
    try:
        import matplotlib  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError("--plot needs matplotlib", "", "pip install 'braidstream[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    panels = list(dict.fromkeys(series.panel for series in outcome.series)) or [""]
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    size = (6.4 * n_columns, 4.0 * n_rows) if len(panels) == 1 else (5.6 * n_columns, 3.6 * n_rows)
    figure, grid = plt.subplots(n_rows, n_columns, figsize=size, dpi=130, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, chosen, [series for series in outcome.series if series.panel == panel], panel)
    title = f"{chosen.paper} {chosen.figure}: {chosen.title}"
    if len(panels) == 1:
        grid[0, 0].set_title(title)
    else:
        figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def _draw_panel(axes: Any, chosen: Experiment, some: Sequence[Series], panel: str) -> None:
    for series, marker in zip(some, "osv^Dx*P<>hd" * 4, strict=False):
        axes.plot(list(series.x), list(series.y), marker=marker, markersize=4, linewidth=1.3, label=series.label)
    axes.set(xlabel=chosen.x_label, ylabel=panel or chosen.y_label)
    if chosen.log_x:
        axes.set_xscale("log", base=2)
    if chosen.log_y:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}" if high < 15 * low else "")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
