"""Draws the messages of a simulation over time as a PNG file, with matplotlib (the `plot` extra)."""

from __future__ import annotations

from pathlib import Path

from braidstream.lab.overlay.shared import Outcome
from braidstream.pictures import drawing, head, legend, number, save

__all__ = ["draw_messages"]


def draw_messages(outcome: Outcome, title: str, path: Path) -> None:
    """Write messages a second, stacked by kind, to `path`."""
    by_total = sorted(outcome.by_second.items(), key=lambda item: -sum(item[1]))
    seconds = list(range(len(by_total[0][1]))) if by_total else []
    labels = [f"{kind} ({sum(counts):,})" for kind, counts in by_total]
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
        axes.stackplot(seconds, *(counts for _, counts in by_total), labels=labels, step="post", linewidth=0)
        axes.set(xlabel="time, s", ylabel="messages a second")
        axes.yaxis.set_major_formatter(lambda value, _place: number(value))
        axes.margins(x=0)
        if by_total:
            handles, names = axes.get_legend_handles_labels()
            legend(figure, dict(zip(names, handles, strict=True)), title, 3)
        else:
            head(figure, title)
        save(plt, figure, path)
