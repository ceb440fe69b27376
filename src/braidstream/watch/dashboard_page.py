"""One page of the dashboard: a flow that is followed, drawn for one browser, and kept up to date.

A tick looks whether there is something new and sends the difference: of epochs the new ones, of slots and groups what
changed, of lists the text if it is another. So a tick costs what happened since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Div

from braidstream.watch import lists, panels
from braidstream.watch.followed import KEPT, Epoch, Followed
from braidstream.watch.look import Theme

__all__ = ["TICK_MS", "Page"]

TICK_MS = 500
_POINTS = 300
"""Lines of single streams have at most so many points."""
_LEAST_HEIGHT = 1 / 16
_CROWDED = 48
"""With more slots the boxes of groups have no gaps."""


class Page:
    """The panels of one browser."""

    def __init__(self, document: Document, flow: Followed, theme: Theme) -> None:
        self._flow, self._theme, self._seen = flow, theme, (-1, -1, -1)
        self._rows = panels.rates_panel(theme, "rows", 0, "rows")
        self._matches = panels.rates_panel(theme, "matches", 2, "matches")
        self._times = panels.times_panel(theme)
        self._slots, self._budget = panels.slots_panel(theme)
        self._groups, self._anew = panels.groups_panel(theme)
        self._watermarks = panels.watermarks_panel(theme)
        self._late = panels.late_panel(theme)
        self._complete, self._band = panels.complete_panel(theme)
        drawn = {
            "rows": self._rows, "matches": self._matches, "times": self._times, "slots": self._slots,
            "groups": self._groups, "watermarks": self._watermarks, "late": self._late, "complete": self._complete,
        }  # fmt: skip
        words = ("head", "heavy", "watermark_line", "late_line", "decisions", "events", "queries", "complete_line")
        self._words = {name: Div(text="", name=f"{name}_text", sizing_mode="stretch_width") for name in words}
        for name, panel in drawn.items():
            panel.plot.name = f"{name}_plot"
            document.add_root(panel.plot)
        for one in self._words.values():
            document.add_root(one)
        self._drawn_layout: npt.NDArray[Any] | None = None
        self.tick()

    def tick(self) -> None:
        """Bring the page up to date."""
        flow = self._flow
        flow.look()
        standing = flow.standing()
        self._say("head", lists.head_html(flow, standing, list(islice(reversed(flow.epochs), 20))))
        self._say("events", lists.events_html(flow.events, standing))
        seen = (flow.generation, flow.version, flow.last.epoch if flow.last else -1)
        if seen != self._seen:
            self._draw_epochs(anew=seen[0] != self._seen[0])
            self._draw_present()
            self._seen = seen
        self._draw_groups()

    def _say(self, name: str, html: str) -> None:
        if self._words[name].text != html:
            self._words[name].text = html

    def _new_epochs(self, *, anew: bool) -> list[Epoch]:
        known = self._times.source.data["epoch"]
        if anew or not len(known):
            return list(self._flow.epochs)
        found = []
        for one in reversed(self._flow.epochs):
            if one.epoch <= known[-1]:
                break
            found.append(one)
        return found[::-1]

    def _draw_epochs(self, *, anew: bool) -> None:
        new = [one for one in self._new_epochs(anew=anew) if one.step == 0]
        at = np.array([one.at_us / 1e3 for one in new])
        numbers = np.array([one.epoch for one in new])
        for panel, rate in ((self._rows, lambda one: one.rows_per_s), (self._matches, lambda one: one.matches_per_s)):
            _extend(panel, {"at": at, "epoch": numbers, "value": _column(new, rate)}, anew=anew)
        parts = {part: np.array([one.number(part) for one in new]) for part in panels.PARTS}
        _extend(self._times, {"epoch": numbers, "total": sum(parts.values()), **parts}, anew=anew)
        _extend(self._late, {"epoch": numbers, "value": _column(new, lambda one: sum(one.late.values()))}, anew=anew)
        self._late.is_empty = not any(self._late.source.data["value"])
        for panel in (self._rows, self._matches, self._late, self._times):
            panel.reach(max(panel.source.data["total" if panel is self._times else "value"], default=0.0))

    def _draw_present(self) -> None:
        flow, theme = self._flow, self._theme
        self._say("heavy", lists.heavy_html(theme, flow.heavy))
        self._say("watermark_line", lists.watermark_html(theme, flow))
        self._say("late_line", lists.late_html(flow))
        self._say("decisions", lists.decisions_html(flow.decisions))
        self._say("queries", lists.queries_html(flow))
        self._say("complete_line", lists.complete_html(theme, flow))
        self._draw_slots()
        self._draw_watermarks()
        self._draw_completeness()

    def _draw_slots(self) -> None:
        flow = self._flow
        held = flow.slots
        n_slots = len(held.get("slot_active", ()))
        names = {"active": "slot_active", "cells": "slot_cells", "pushed": "slot_pushed", "busy": "slot_busy_s"}
        columns = {name: held.get(of, np.zeros(n_slots)) for name, of in names.items()}
        self._slots.source.data = {"slot": np.arange(n_slots), **columns}
        self._slots.is_empty = not n_slots
        budget = flow.last.number("budget_bytes") if flow.last else 0.0
        probed = columns["active"] + columns["cells"]
        is_near = 0 < budget < 20 * probed.max(initial=0.0)  # one far above would flatten the bars
        wanted = [budget, budget] if is_near else []
        self._slots.reach(max([float((probed + columns["pushed"]).max(initial=0.0)), *wanted]))
        if list(self._budget.data["y"]) != wanted:
            self._budget.data = {"x": [-0.5, n_slots - 0.5] if wanted else [], "y": wanted}

    def _draw_watermarks(self) -> None:
        flow, theme = self._flow, self._theme
        epochs = _some(list(flow.epochs))
        names = sorted({name for one in epochs for name in one.watermarks})
        last = {name: at for name, at in (flow.last.watermarks if flow.last else {}).items() if name not in flow.idle}
        first = min(last, key=lambda name: last[name], default="")
        each = [(name, [one for one in epochs if name in one.watermarks]) for name in names]
        self._watermarks.source.data = {
            "xs": [np.array([one.at_us / 1e3 for one in own]) for _, own in each],
            "ys": [np.array([one.watermarks[name] / 1e3 for one in own]) for name, own in each],
            "stream": names,
            "color": [theme.color(at) for at in range(len(names))],
            "width": [3.5 if name == first and len(names) > 1 else 1.6 for name in names],
        }
        self._watermarks.is_empty = not names

    def _draw_completeness(self) -> None:
        epochs = _some([one for one in self._flow.epochs if any(of[1] < 1 for of in one.complete.values())])
        names = sorted({name for one in epochs for name in one.complete})
        lines: dict[str, list[Any]] = {"xs": [], "ys": [], "query": names, "color": []}
        bands: dict[str, list[Any]] = {"xs": [], "ys": [], "color": []}
        for name in names:
            own = [(one.epoch, *one.complete[name]) for one in epochs if name in one.complete]
            x, middle, low, high = (np.array(column, dtype=np.float64) for column in zip(*own, strict=True))
            lines["xs"].append(x)
            lines["ys"].append(middle)
            bands["xs"].append(np.append(x, x[::-1]))
            bands["ys"].append(np.append(high, low[::-1]))
        lines["color"] = bands["color"] = [self._theme.color(at) for at in range(len(names))]
        if names or len(self._complete.source.data["query"]):
            self._complete.source.data, self._band.data = lines, bands
        self._complete.is_empty = not names

    def _draw_groups(self) -> None:
        """A column a slot; the columns that follow from loads change often, those of the layout when it does."""
        flow = self._flow
        groups = flow.groups
        self._groups.is_empty = not len(groups.ids)
        if not len(groups.ids):
            return
        source = self._groups.source
        work = (groups.rows + groups.matches).astype(np.float64)
        load = np.sqrt(work / max(work.max(), 1.0))
        if self._drawn_layout is not groups.ids:
            self._drawn_layout = groups.ids
            boxes = _stacked(groups.slots, groups.depths)
            self._groups.reach(float(boxes["top"].max()))
            is_crowded = int(groups.slots.max()) >= _CROWDED
            half = 0.5 if is_crowded else 0.44
            self._groups.plot.renderers[0].glyph.line_width = 0.25 if is_crowded else 1.2
            source.data = {
                "slot": groups.slots, "group": groups.ids, "stage": groups.stages, "depth": groups.depths,
                "left": groups.slots - half, "right": groups.slots + half, **boxes,
                "load": load, "rows": groups.rows, "matches": groups.matches,
            }  # fmt: skip
        for name, values in (("load", load), ("rows", groups.rows), ("matches", groups.matches)):
            if not np.array_equal(source.data[name], values):
                source.data[name] = values
        self._outline(groups.is_recent(flow.last.at_us if flow.last else 0))

    def _outline(self, is_anew: npt.NDArray[np.bool_]) -> None:
        """Boxes around the groups that were placed anew."""
        drawn = self._groups.source.data
        wanted = {name: np.asarray(drawn[name])[is_anew] for name in self._anew.data}
        if any(not np.array_equal(self._anew.data[name], values) for name, values in wanted.items()):
            self._anew.data = wanted


def _stacked(slots: npt.NDArray[Any], depths: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Where the box of each group begins and ends: on top of those before it at its slot."""
    heights = np.maximum(0.5 ** (depths - depths.min()), _LEAST_HEIGHT)
    order = np.argsort(slots, kind="stable")
    ends = np.cumsum(heights[order])
    begins = ends - heights[order]
    firsts = np.append(True, slots[order][1:] != slots[order][:-1])
    offsets = np.maximum.accumulate(np.where(firsts, begins, 0))
    bottom, top = np.empty(len(slots)), np.empty(len(slots))
    bottom[order], top[order] = begins - offsets, ends - offsets
    return {"bottom": bottom, "top": top}


def _column(epochs: Sequence[Epoch], of: Callable[[Epoch], float]) -> npt.NDArray[np.float64]:
    return np.array([of(one) for one in epochs], dtype=np.float64)


def _extend(panel: panels.Panel, columns: dict[str, Any], *, anew: bool) -> None:
    """Add to a source, which keeps the last ones."""
    source: ColumnDataSource = panel.source
    if anew or not len(source.data["epoch"]):
        source.data = columns
    elif len(columns["epoch"]):
        source.stream(columns, rollover=KEPT)
    panel.is_empty = not len(source.data["epoch"])


def _some(epochs: list[Epoch]) -> list[Epoch]:
    """Some of many, the last among them."""
    step = max(len(epochs) // _POINTS, 1)
    return epochs[:: -1 * step][::-1]
