"""Draws the messages of a simulation over time as a PNG file, with matplotlib (the `plot` extra)."""

from __future__ import annotations

from pathlib import Path

from braidstream.errors import InputError
from braidstream.overlay.run import Outcome

__all__ = ["draw_messages"]


def draw_messages(outcome: Outcome, title: str, path: Path) -> None:
    """Write messages a second, stacked by kind, to `path`."""
    try:
        import matplotlib  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError("--plot needs matplotlib", "", "pip install 'braidstream[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(8.0, 4.0), dpi=130)
    by_total = sorted(outcome.by_second.items(), key=lambda item: -sum(item[1]))
    seconds = list(range(len(by_total[0][1]))) if by_total else []
    labels = [f"{kind} ({sum(counts):,})" for kind, counts in by_total]
    axes.stackplot(seconds, *(counts for _, counts in by_total), labels=labels, step="post", linewidth=0, alpha=0.9)
    axes.set(xlabel="time, s", ylabel="messages a second", title=title)
    axes.margins(x=0)
    axes.grid(visible=True, alpha=0.3)
    if by_total:
        axes.legend(fontsize=8, loc="upper left")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
