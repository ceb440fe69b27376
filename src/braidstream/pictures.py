"""The style of every picture: of the papers' figures, plans of functions, simulations and the demonstration.

A serif face, few lines that carry no data, grey for what is no measurement, one row of colours, thousands apart on
axes. `drawing` gives pyplot in this style, for matplotlib (the `plot` extra) is imported only when it draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from braidstream.errors import InputError

__all__ = ["COLORS", "DPI", "GREY", "check_target", "drawing", "head", "legend", "number", "save"]

COLORS = ("#1d4f8c", "#c4512d", "#2c8068", "#8a5aa5", "#b98a14", "#3f9ec4", "#9c3d5a", "#6b7b34", "#5a5a5a", "#d98880")
GREY = "#767676"
"""Of what is no measurement: formulas, bounds, arrows, remarks."""
DPI = 150
_ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp")
_STYLE = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 11.5,
    "axes.prop_cycle": "",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.labelcolor": "#222222",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e4de",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.fontsize": 10.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "path",
    "path.simplify": True,
}


@contextmanager
def drawing(more: Mapping[str, object] | None = None, *, is_live: bool = False) -> Iterator[Any]:
    """Pyplot in the style of all pictures; a live one is drawn where there is a display, others into files only."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError("pictures need matplotlib", "the extra 'plot'", "pip install 'braidstream[plot]'") from None
    if not is_live:
        mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with plt.rc_context({**_STYLE, "axes.prop_cycle": plt.cycler(color=COLORS), **(more or {})}):
        yield plt


def head(figure: Any, title: str) -> None:
    """The title of a picture, above all of it."""
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, weight="bold")


def legend(figure: Any, entries: Mapping[str, object], title: str, columns: int) -> None:
    """The legend above all panels, where it hides nothing, under the title."""
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside upper left",
        ncols=columns,
        columnspacing=1.6,
        handlelength=2.2,
        title=title or None,
        title_fontproperties={"size": 12.5, "weight": "bold"},
        alignment="left",
    )


def check_target(path: str | Path) -> None:
    """Refuse, before anything is computed, a file that no picture can be written to; its folder is made."""
    target = Path(path)
    if target.suffix.lower() not in _ENDINGS or target.is_dir():
        raise InputError(f"no picture can be written to {path}", f"a file that ends in {', '.join(_ENDINGS)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"no picture can be written to {path} ({error})", "a file in a folder") from None


def save(plt: Any, figure: Any, path: str | Path) -> None:
    """Write a picture to a file, as PNG or what the name ends in."""
    check_target(path)
    try:
        figure.savefig(path, dpi=DPI)
    finally:
        plt.close(figure)


def number(value: float) -> str:
    """A tick's label: thousands apart, millions in words, no zeros that say nothing."""
    for unit, word in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:.4g} {word}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
