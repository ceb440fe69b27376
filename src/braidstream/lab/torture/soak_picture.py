"""The picture of a long run: memory of its processes and files of its checkpoint over time, with the faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from braidstream.lab.torture.soak import SERIES, Soak
from braidstream.pictures import COLORS, GREY, drawing, legend, save

__all__ = ["draw_soak"]


def draw_soak(seen: Soak, path: Path) -> None:
    """Write it to a file. Grey lines are faults, dark ones those at which the driver was killed."""
    panels = {"memory (MB)": SERIES[:3], "files in the checkpoint": SERIES[3:]}
    with drawing() as plt:
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
        entries: dict[str, Any] = {}
        minutes = [second / 60 for second, _ in seen.samples]
        at = 0
        for ax, (title, names) in zip(axes, panels.items(), strict=True):
            for second, what in seen.faults:
                ax.axvline(second / 60, color="#444444" if "driver" in what else GREY, linewidth=0.5, alpha=0.6)
            for name in names:
                values = [figures[name] for _, figures in seen.samples]
                (entries[name.replace(" MB", "")],) = ax.plot(minutes, values, color=COLORS[at])
                at += 1
            ax.set(xlabel="minutes", ylabel=title, ylim=(0, None))
        legend(figure, entries, f"{seen.minutes:g} minutes with a fault every minute", 4)
        save(plt, figure, path)
