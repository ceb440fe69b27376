"""The picture of `braid bench scale`: what metadata costs a task and the driver, by slots, beside what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from braidstream.lab.bench.scale_metadata import LIMITS, Costs
from braidstream.pictures import COLORS, GREY, drawing, legend, number, save

__all__ = ["draw_scale"]

_PANELS = {
    "read by a task (KB)": {"slot_task_kb": "a slot's task", "routing_task_kb": "a routing task"},
    "time (ms)": {"slot_task_ms": "a slot's task", "routing_task_ms": "a routing task", "driver_ms": "the driver"},
}


def draw_scale(costs: Sequence[Costs], path: Path) -> None:
    """Write it to a file. The limits at a thousand slots are grey dashes."""
    with drawing() as plt:
        figure, axes = plt.subplots(1, len(_PANELS), figsize=(9.6, 3.9), layout="constrained")
        entries: dict[str, Any] = {}
        for ax, (title, lines) in zip(axes, _PANELS.items(), strict=True):
            slots = [one.slots for one in costs]
            for at, (name, label) in enumerate(lines.items()):
                (entries[label],) = ax.plot(slots, [getattr(one, name) for one in costs], "o-", color=COLORS[at])
                ax.plot([slots[-1] * 0.7, slots[-1] * 1.4], [LIMITS[name]] * 2, "--", color=GREY)
            ax.set(xscale="log", yscale="log", xlabel="slots, with 32 groups and 24 segments each", ylabel=title)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_formatter(lambda value, _: number(value))
        legend(figure, entries, "What an epoch's metadata costs (dashes: the most it may be at 1,000 slots)", 3)
        save(plt, figure, path)
