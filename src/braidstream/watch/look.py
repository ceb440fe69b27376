"""How the dashboard looks: two themes, and the style of its plots.

The colours of measurements are those of all pictures (`braidstream.pictures`), lighter on dark ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import CustomJSTickFormatter, DatetimeTickFormatter, NumeralTickFormatter
from bokeh.plotting import figure

__all__ = ["DARK", "LIGHT", "SIZE_JS", "THEMES", "Theme", "plot", "with_legend"]


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for."""

    name: str
    page: str
    panel: str
    edge: str
    text: str
    quiet: str
    grid: str
    colors: Sequence[str]
    """Of series, in order."""
    loads: Sequence[str]
    """From idle to most loaded."""
    mark: str
    """What happened a moment ago."""
    good: str
    bad: str
    warn: str

    def color(self, at: int) -> str:
        """Of a series."""
        return self.colors[at % len(self.colors)]


LIGHT = Theme(
    "light", "#f4f3ef", "#ffffff", "#e2dfd7", "#22262b", "#6d7075", "#ebe9e3",
    ("#1d4f8c", "#c4512d", "#2c8068", "#8a5aa5", "#b98a14", "#3f9ec4", "#9c3d5a", "#6b7b34", "#8a8a8a", "#d98880"),
    ("#eef1f5", "#cfdcea", "#a8c3dd", "#7aa5cc", "#4d83b5", "#2e6399", "#c98a2b", "#cf6a2e", "#c4512d", "#962f1c"),
    "#d4006a", "#2c8068", "#b3261e", "#b97a00",
)  # fmt: skip
DARK = Theme(
    "dark", "#14171b", "#1c2025", "#2e343b", "#e6e6e3", "#9aa0a6", "#2a2f36",
    ("#6ea8e6", "#f0875f", "#5cc4a2", "#c295dd", "#e3b94b", "#72cdee", "#e07a9a", "#a9bd63", "#a9a9a9", "#f0aaa1"),
    ("#242a31", "#243848", "#27495f", "#2c5f80", "#357aa3", "#4c97c4", "#c9953a", "#de7c3f", "#ee6a45", "#ff5b4d"),
    "#ff5fae", "#5cc4a2", "#ff7a6e", "#e3b94b",
)  # fmt: skip
THEMES = {one.name: one for one in (LIGHT, DARK)}

_TIMES = DatetimeTickFormatter(
    seconds="%H:%M:%S", minsec="%H:%M:%S", minutes="%H:%M", hourmin="%H:%M", hours="%H:%M", days="%b %d",
    milliseconds="%H:%M:%S.%3N", months="%b %Y", years="%Y",
)  # fmt: skip


SIZE_JS = """
  const units = ["B", "kB", "MB", "GB", "TB"]; let size = value, at = 0;
  while (Math.abs(size) >= 1000 && at < 4) { size /= 1000; at += 1; }
  return (at ? size.toFixed(size < 10 ? 1 : 0) : size) + " " + units[at];
"""
"""A number of bytes for people, of `value`."""
_SHORT_JS = """
  const units = ["", "k", "M", "G", "T"]; let left = value, at = 0;
  while (Math.abs(left) >= 1000 && at < 4) { left /= 1000; at += 1; }
  return Number(left.toFixed(2)) + units[at];
"""


def plot(theme: Theme, height: int, *, x: str = "epoch", y: str = "number", **more: Any) -> figure:
    """An empty plot: `x` is "epoch" or "time", `y` "number", "bytes", "share" or "time"."""
    given = {"tools": "", "toolbar_location": None, "sizing_mode": "stretch_width", "height": height, **more}
    made = figure(x_axis_type="datetime" if x == "time" else "linear", **given)
    if y == "time":
        made.yaxis.formatter = _TIMES.clone()
    else:
        code = {"bytes": SIZE_JS, "number": _SHORT_JS}.get(y)
        plain = NumeralTickFormatter(format="0%" if y == "share" else "0.[00]")
        made.yaxis.formatter = plain if code is None else CustomJSTickFormatter(code=f"const value = tick;{code}")
    if x == "time":
        made.xaxis.formatter = _TIMES.clone()
    else:
        made.xaxis.formatter = NumeralTickFormatter(format="0,0")
    _style(made, theme, x)
    return made


def _style(made: figure, theme: Theme, x: str) -> None:
    made.background_fill_color = made.border_fill_color = theme.panel
    made.outline_line_color = None
    made.min_border_left, made.min_border_right, made.min_border_top, made.min_border_bottom = 52, 14, 6, 24
    for axis in made.axis:
        axis.axis_line_color = axis.minor_tick_line_color = None
        axis.major_tick_line_color = theme.edge
        axis.major_label_text_color = theme.quiet
        axis.major_label_text_font_size = "11px"
        axis.axis_label_text_color = theme.quiet
        axis.axis_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"
        axis.ticker.num_minor_ticks = 0
        axis.ticker.desired_num_ticks = 5
    if x == "time":
        made.xaxis.ticker.desired_num_ticks = 4
        for ticker in made.xaxis.ticker.tickers:
            ticker.desired_num_ticks = 4
    made.xgrid.grid_line_color = None
    made.ygrid.grid_line_color = theme.grid


def with_legend(made: figure, theme: Theme, *, columns: int = 0) -> None:
    """A legend in a row above the plot."""
    legend = made.legend[0]
    made.add_layout(legend, "above")
    legend.orientation = "horizontal"
    legend.background_fill_color = None
    legend.border_line_color = None
    legend.label_text_color = theme.quiet
    legend.label_text_font_size = "11px"
    legend.glyph_height = legend.glyph_width = 12
    legend.label_height = 12
    legend.padding = legend.margin = 0
    legend.spacing = 10
    if columns:
        legend.ncols = columns
