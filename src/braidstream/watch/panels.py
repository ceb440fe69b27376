"""The panels of the dashboard that are plots: each has a source of columns that the page fills.

A plot says in words what it would show when there is nothing to show. Nothing here knows of flows:
`watch.dashboard_page` turns what was followed into columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    CrosshairTool,
    CustomJSHover,
    HoverTool,
    Label,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.plotting import figure

from braidstream.watch.look import SIZE_JS, Theme, plot, with_legend

__all__ = ["PARTS", "Panel", "complete_panel", "groups_panel", "late_panel", "rates_panel", "slots_panel",
           "times_panel", "watermarks_panel"]  # fmt: skip

PARTS: Mapping[str, str] = {
    "routing_s": "routing",
    "exchange_s": "exchange",
    "join_s": "join",
    "store_s": "store",
    "deliver_s": "deliver",
    "commit_s": "commit",
    "engine_s": "Spark's own",
    "spark_s": "between epochs",
}
"""Where the time of an epoch goes, in order, with what each is called."""


class Panel:
    """A plot with its source, and a text in its place while there is nothing to draw."""

    def __init__(self, theme: Theme, made: figure, source: ColumnDataSource, nothing: str) -> None:
        self.plot, self.source = made, source
        self._words = Label(
            x=0.5, y=0.5, x_units="screen", y_units="screen", text=nothing, text_color=theme.quiet,
            text_font_size="13px", text_font_style="italic", text_align="left", text_baseline="middle",
        )  # fmt: skip
        self._words.x, self._words.y = 16, round((made.height or 160) / 2) - 20
        made.add_layout(self._words)
        self._drawn = [one for one in (*made.axis, *made.grid, *made.legend) if one.visible]
        self.is_empty = False
        self.is_empty = True

    def reach(self, top: float) -> None:
        """Let the plot reach from 0 to a bit above a value."""
        wanted = top * 1.08 or 1.0
        if self.plot.y_range.end != wanted:
            self.plot.y_range.end = wanted

    @property
    def is_empty(self) -> bool:
        """Whether the words are shown."""
        return bool(self._words.visible)

    @is_empty.setter
    def is_empty(self, value: bool) -> None:
        if self._words.visible != value:
            self._words.visible = value
            for one in self._drawn:
                one.visible = not value


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource({one: [] for one in columns}, name=name)


def _hover(made: figure, tips: Sequence[tuple[str, str]], renderers: Sequence[Any], **more: Any) -> None:
    made.add_tools(HoverTool(tooltips=list(tips), renderers=list(renderers), **more))


def rates_panel(theme: Theme, name: str, color: int, word: str) -> Panel:
    """Rows or matches a second over wall time."""
    made = plot(theme, 200, x="time", y_range=Range1d(0, 1))
    source = _source(name, "at", "value", "epoch")
    for ticker in (made.xaxis.ticker, *made.xaxis.ticker.tickers):
        ticker.desired_num_ticks = 2
    made.varea("at", 0, "value", source=source, fill_color=theme.color(color), fill_alpha=0.18)
    line = made.line("at", "value", source=source, line_color=theme.color(color), line_width=1.8)
    tips = [("epoch", "@epoch"), (f"{word} a second", "@value{0,0}"), ("at", "@at{%H:%M:%S}")]
    _hover(made, tips, [line], mode="vline", formatters={"@at": "datetime"})
    return Panel(theme, made, source, "no epoch yet")


def times_panel(theme: Theme) -> Panel:
    """Where an epoch's time goes, stacked."""
    made = plot(theme, 200, y="seconds", y_range=Range1d(0, 1))
    source = _source("times", "epoch", "total", *PARTS)
    colors = [theme.color(at) for at in (0, 5, 2, 4, 3, 1, 8, 6)]
    made.varea_stack(
        list(PARTS), x="epoch", source=source, fill_color=colors, fill_alpha=0.85, legend_label=list(PARTS.values())
    )
    line = made.line("epoch", "total", source=source, line_alpha=0)
    tips = [("epoch", "@epoch"), *((word, f"@{part}{{0.000}} s") for part, word in PARTS.items())]
    _hover(made, tips, [line], mode="vline")
    made.add_tools(CrosshairTool(dimensions="height", line_color=theme.quiet, line_alpha=0.4))
    made.yaxis.axis_label = "seconds"
    with_legend(made, theme)
    return Panel(theme, made, source, "no epoch yet")


def slots_panel(theme: Theme) -> tuple[Panel, ColumnDataSource]:
    """State by slot against the budget, active, in cells of heavy keys, and pushed."""
    made = plot(theme, 280, y="bytes", y_range=Range1d(0, 1))
    source = _source("slots", "slot", "active", "cells", "pushed", "busy")
    budget = _source("budget", "x", "y")
    bars = made.vbar_stack(
        ["active", "cells", "pushed"], x="slot", width=0.82, source=source, line_color=None,
        fill_color=[theme.color(0), theme.color(3), theme.color(8)],
        legend_label=["active", "in cells of heavy keys", "pushed to disk"],
    )  # fmt: skip
    line = {"line_color": theme.bad, "line_dash": [6, 4], "line_width": 1.5}
    made.line("x", "y", source=budget, legend_label="budget of a slot", **line)
    sizes = [(one, f"@{one}{{custom}}") for one in ("active", "cells", "pushed")]
    shown = dict.fromkeys(("@active", "@cells", "@pushed"), CustomJSHover(code=SIZE_JS))
    _hover(made, [("slot", "@slot"), *sizes, ("busy", "@busy{0.000} s")], bars, formatters=shown)
    made.xaxis.axis_label = "slot"
    made.xaxis.ticker = BasicTicker(desired_num_ticks=16, mantissas=[1, 2, 5], min_interval=1, num_minor_ticks=0)
    with_legend(made, theme)
    return Panel(theme, made, source, "no state yet"), budget


def groups_panel(theme: Theme) -> tuple[Panel, ColumnDataSource]:
    """The groups over the slots: a column a slot, a box a group, as high as its share of the hashes, by load.

    Those that were placed anew are outlined by boxes on top, which no neighbour covers.
    """
    made = plot(theme, 280, y_range=Range1d(0, 1))
    names = ("slot", "group", "stage", "depth", "left", "right", "bottom", "top", "load", "rows", "matches")
    source, anew = _source("groups", *names), _source("anew", "group", "left", "right", "bottom", "top")
    mapper = LinearColorMapper(palette=list(theme.loads), low=0, high=1)
    boxes = made.quad(
        left="left", right="right", bottom="bottom", top="top", source=source, line_color=theme.panel,
        line_width=1.2, fill_color={"field": "load", "transform": mapper},
    )  # fmt: skip
    made.quad(
        left="left", right="right", bottom="bottom", top="top", source=anew, line_color=theme.mark, line_width=2.5,
        fill_alpha=0,
    )  # fmt: skip
    tips = [("group", "@group"), ("slot", "@slot"), ("stage", "@stage"), ("bits", "@depth"),
            ("rows of late", "@rows{0,0}"), ("matches of late", "@matches{0,0}")]  # fmt: skip
    _hover(made, tips, [boxes])
    made.xaxis.axis_label = "slot"
    made.xaxis.ticker = BasicTicker(desired_num_ticks=16, mantissas=[1, 2, 5], min_interval=1, num_minor_ticks=0)
    made.yaxis.visible = False
    made.ygrid.visible = False
    return Panel(theme, made, source, "no groups yet"), anew


def watermarks_panel(theme: Theme) -> Panel:
    """The watermark of each stream against wall time."""
    made = plot(theme, 190, x="time", y="time", y_axis_type="datetime")
    source = _source("watermarks", "xs", "ys", "stream", "color", "width")
    lines = made.multi_line("xs", "ys", source=source, line_color="color", line_width="width")
    _hover(made, [("stream", "@stream")], [lines])
    made.yaxis.axis_label = "event time"
    return Panel(theme, made, source, "no stream has a watermark yet")


def late_panel(theme: Theme) -> Panel:
    """Late rows by epoch."""
    made = plot(theme, 190, y_range=Range1d(0, 1))
    source = _source("late", "epoch", "value")
    bars = made.vbar(x="epoch", top="value", width=0.9, source=source, color=theme.color(1), line_color=None)
    _hover(made, [("epoch", "@epoch"), ("late rows", "@value{0,0}")], [bars])
    return Panel(theme, made, source, "no row was late")


def complete_panel(theme: Theme) -> tuple[Panel, ColumnDataSource]:
    """How complete the answers are where tuples are shed, with the interval."""
    made = plot(theme, 190, y="share", y_range=Range1d(0, 1.02))
    source = _source("complete", "xs", "ys", "query", "color")
    band = _source("band", "xs", "ys", "color")
    made.patches("xs", "ys", source=band, fill_color="color", fill_alpha=0.2, line_color=None)
    made.multi_line("xs", "ys", source=source, line_color="color", line_width=2)
    made.yaxis.formatter = NumeralTickFormatter(format="0%")
    return Panel(theme, made, source, "complete: nothing was shed"), band
