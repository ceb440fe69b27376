"""Draws one experiment as a PNG file, with matplotlib (the `plot` extra)."""

from __future__ import annotations

from pathlib import Path

from braidstream.errors import InputError
from braidstream.papers.registry import Experiment, Outcome

__all__ = ["draw"]


def draw(chosen: Experiment, outcome: Outcome, path: Path) -> None:
    """Write the figure to `path`."""
    try:
        import matplotlib  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError("--plot needs matplotlib", "", "pip install 'braidstream[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(6.4, 4.0), dpi=130)
    for series, marker in zip(outcome.series, "osv^Dx*P<>hd" * 4, strict=False):
        axes.plot(list(series.x), list(series.y), marker=marker, markersize=4, linewidth=1.3, label=series.label)
    axes.set(xlabel=chosen.x_label, ylabel=chosen.y_label, title=f"{chosen.paper} {chosen.figure}: {chosen.title}")
    if chosen.log_x:
        axes.set_xscale("log", base=2)
    if chosen.log_y:
        axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
