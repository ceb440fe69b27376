"""Draws one experiment with matplotlib (the `plot` extra), so that it can stand beside the paper's figure.

In the style of all pictures (`braidstream.pictures`): the legend above the axes where it hides nothing, and a colour
that belongs to a label, so that a method has its colour in every panel. Formulas and bounds are dashed and grey.
A linear axis of measurements begins at zero. Cost: about a quarter of a second a picture.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from braidstream.lab.papers.bibliography import BIBLIOGRAPHY, figure_name
from braidstream.lab.papers.registry import Declaration, Outcome, Series
from braidstream.pictures import COLORS, DPI, GREY, check_target, drawing, head, legend, number

__all__ = ["draw", "n_panels", "svg"]

MARKERS = "osD^vP<>Xh"
FEW_POINTS = 22
WIDTHS = {1: 6.3, 2: 9.6, 3: 11.0}
MOST_IN_A_ROW = 3


def draw(declared: Declaration, outcome: Outcome, path: Path) -> None:
    """Write the figure with its title to `path`, as PNG or what the name ends in."""
    check_target(path)
    number = figure_name(declared.figure)
    names = [BIBLIOGRAPHY[declared.paper].short, *([] if number == declared.figure else [number])]
    _save(declared, outcome, str(path), f"{', '.join(names)}: {declared.title}", dpi=DPI)


def svg(declared: Declaration, outcome: Outcome) -> str:
    """The figure without its title as SVG, its letters as outlines: it needs no font and no other file."""
    written = io.StringIO()
    _save(declared, outcome, written, "", format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return _shortened(text[text.index("<svg") :].strip())


def _shortened(text: str) -> str:
    """Without comments and line breaks, and with coordinates to a hundredth of a point: half the size, same picture."""
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\b([1-9]\d*\.\d\d)\d+", r"\1", text)  # below 1 are the scales of letters
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", text))


def n_panels(outcome: Outcome) -> int:
    """How many plots stand side by side."""
    return max(1, len(_panels(outcome.series)))


def _save(declared: Declaration, outcome: Outcome, target: Any, title: str, **how: Any) -> None:
    with drawing({"svg.hashsalt": declared.name}) as plt:
        figure = _figure(plt, declared, outcome, title)
        figure.savefig(target, **how)
        plt.close(figure)


def _figure(plt: Any, declared: Declaration, outcome: Outcome, title: str) -> Any:
    panels = _panels(outcome.series)
    if declared.form == "table":
        return _table(plt, outcome.series, title)
    n_columns, n_rows = _shape(len(panels) or 1)
    size = (WIDTHS[n_columns], (3.9 if n_columns < MOST_IN_A_ROW else 3.7) * n_rows)
    is_shared = _is_shared(panels)
    figure, grid = plt.subplots(n_rows, n_columns, figsize=size, layout="constrained", squeeze=False, sharey=is_shared)
    colors = _colors(outcome.series)
    for axes, (name, some) in zip(grid.flat, panels.items(), strict=False):
        if _is_bars(declared, some):
            _bars(axes, some, colors)
        else:
            _lines(axes, some, colors)
        _finish_axes(axes, declared, some, name)
        _scale_values(axes, declared, outcome.series if is_shared else some)
    for row in grid:
        row[0].set_ylabel(declared.y_label)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    _legend(figure, grid.flat, size[0], title)
    return figure


def _shape(n: int) -> tuple[int, int]:
    """Columns and rows of panels: up to three side by side, four in a square."""
    n_columns = n if n <= MOST_IN_A_ROW else 2 if n == 4 else MOST_IN_A_ROW
    return n_columns, math.ceil(n / n_columns)


def _table(plt: Any, series: Sequence[Series], title: str) -> Any:
    """A table as a picture: a row for each series."""
    figure, axes = plt.subplots(figsize=(6.3, 0.7 + 0.32 * len(series)), layout="constrained")
    axes.set_axis_off()
    cells = [[f"{y:,.3g}" for y in one.y] for one in series]
    rows, columns = [one.label for one in series], [str(x) for x in series[0].x]
    table = axes.table(cells, rowLabels=rows, colLabels=columns, bbox=(0.2, 0, 0.8, 0.95), edges="horizontal")
    table.auto_set_font_size(False)
    head(figure, title)
    return figure


def _panels(series: Sequence[Series]) -> dict[str, list[Series]]:
    """The series of each panel, in order."""
    found: dict[str, list[Series]] = {}
    for one in series:
        found.setdefault(one.panel, []).append(one)
    return found


def _is_shared(panels: dict[str, list[Series]]) -> bool:
    """Whether the panels can share their axis of values: their largest values are within a factor of five."""
    tops = [max((abs(y) for one in some for y in one.y if math.isfinite(y)), default=0.0) for some in panels.values()]
    return bool(tops) and max(tops) <= 5 * min(tops)


def _is_bars(declared: Declaration, some: Sequence[Series]) -> bool:
    return declared.form != "lines" or all(isinstance(x, str) for one in some for x in one.x)


def _colors(series: Sequence[Series]) -> dict[str, tuple[str, str]]:
    """The colour and the marker of each label."""
    measured = list(dict.fromkeys(one.label for one in series if not one.is_model))
    return {label: (COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]) for i, label in enumerate(measured)}


def _lines(axes: Any, some: Sequence[Series], colors: dict[str, tuple[str, str]]) -> None:
    """Each line is thinner than the one before, so that lines that coincide are all seen."""
    styles = iter(("--", ":", "-.", (0, (1, 1)), (0, (6, 2)), (0, (3, 1, 1, 1, 1, 1))) * 4)
    order, has_markers = list(colors), all(len(one.x) <= FEW_POINTS for one in some)
    for one in some:
        if one.is_model:
            axes.plot(
                list(one.x),
                list(one.y),
                color=GREY,
                linestyle=next(styles),
                linewidth=1.4,
                label=one.label,
                zorder=4,
            )
            continue
        color, marker = colors[one.label]
        axes.plot(
            list(one.x),
            list(one.y),
            color=color,
            linewidth=max(1.2, 2.4 - 0.3 * order.index(one.label)),
            markersize=max(4.0, 6.5 - 0.5 * order.index(one.label)),
            marker=marker if has_markers else "",
            markeredgecolor="white",
            markeredgewidth=0.6,
            label=one.label,
            clip_on=False,
            zorder=3,
        )


def _bars(axes: Any, some: Sequence[Series], colors: dict[str, tuple[str, str]]) -> None:
    names = list(dict.fromkeys(str(x) for one in some for x in one.x))
    width = 0.8 / len(some)
    for i, one in enumerate(some):
        at = [names.index(str(x)) + (i - (len(some) - 1) / 2) * width for x in one.x]
        color = GREY if one.is_model else colors[one.label][0]
        axes.bar(at, list(one.y), width=width * 0.92, color=color, label=one.label)
    axes.set_xticks(range(len(names)), names)
    axes.grid(visible=False, axis="x")


def _finish_axes(axes: Any, declared: Declaration, some: Sequence[Series], name: str) -> None:
    bars = _is_bars(declared, some)
    axes.set_xlabel(declared.x_label)
    if name:
        axes.set_title(name, fontsize=11, style="italic", loc="left")
    numbers = sorted({float(x) for one in some for x in one.x if not isinstance(x, str)})
    if declared.log_x and not bars:
        axes.set_xscale("log", base=2)
        _mark_powers(axes, numbers)
    elif numbers and not bars:
        axes.xaxis.set_major_formatter(lambda value, _place: number(value))
        if all(size.is_integer() for size in numbers):
            axes.locator_params(axis="x", integer=True, steps=[1, 2, 5, 10], nbins=8)


def _mark_powers(axes: Any, numbers: Sequence[float]) -> None:
    """The measured sizes as ticks while they are few, otherwise powers of two."""
    if len(numbers) <= 8:
        axes.set_xticks(list(numbers), [number(size) for size in numbers])
        axes.minorticks_off()


def _scale_values(axes: Any, declared: Declaration, some: Sequence[Series]) -> None:
    values = [y for one in some for y in one.y if math.isfinite(y)]
    if declared.log_y and values and min(values) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _place: number(value))
        _mark_within_a_decade(axes, min(values), max(values))
        return
    axes.yaxis.set_major_formatter(lambda value, _place: number(value))
    if values and min(values) >= 0:
        axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], max(values) * 1.05) if max(values) > 0 else 1)


def _mark_within_a_decade(axes: Any, low: float, high: float) -> None:
    """On a logarithmic axis that spans little, ticks at 1, 2 and 5 too."""
    if high / low > 300:
        return
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
    bottom, top = low / 1.25, high * 1.25
    axes.set_yticks([tick for tick in ticks if bottom <= tick <= top])
    axes.set_ylim(bottom, top)
    axes.yaxis.set_minor_formatter(lambda _value, _place: "")


def _legend(figure: Any, grid: Iterable[Any], width: float, title: str) -> None:
    """One legend above all panels, in as many columns as fit, under the title; a single line needs none."""
    entries: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if len(entries) < 2:
        head(figure, title)
        return
    room, lengths = width * 13, [len(label) + 6 for label in entries]
    rows = math.ceil(sum(lengths) / room)
    columns = max(1, min(math.ceil(len(entries) / rows), int(room / max(lengths)) if rows > 1 else len(entries)))
    legend(figure, entries, title, columns)
