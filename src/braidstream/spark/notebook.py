"""Flows and handles in notebooks: what they show of themselves, and the dashboard in a cell.

Cost: what is shown is what the handle knows; nothing asks Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from braidstream.watch.server_process import ServerProcess

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow
    from braidstream.spark.handle import Handle

__all__ = ["Dashboard", "flow_html", "handle_html"]


class Dashboard:
    """The dashboard of a flow, which a notebook shows in the cell that it is the value of."""

    def __init__(self, checkpoint: str, height: int = 900, port: int = 0) -> None:
        self._server, self._height = ServerProcess(checkpoint, port), height

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return self._server.url

    def close(self) -> None:
        """End its server; the end of this process does too."""
        self._server.stop()

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self._height}px; border: 0"
        return f'<iframe src="{escape(self.url)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"the dashboard at {self.url}"


def handle_html(handle: Handle[Any]) -> str:
    """A handle: how it stands and what the last epoch did."""
    entries = handle.progress
    title = f"{handle.name}: {'running' if handle.is_running else 'not running'}"
    if not entries:
        return _table(title, [("epochs", "none yet")])
    last = entries[-1]
    rows = [
        ("epoch", f"{last.epoch:,}"),
        ("rows a second", f"{last.rows_per_s:,.0f}"),
        ("rows of this run", f"{sum(sum(one.rows.values()) for one in entries):,}"),
        ("late", f"{sum(sum(one.late.values()) for one in entries):,}"),
        ("an epoch takes", f"{last.seconds['total']:.2f} s"),
        ("state", f"{last.state_bytes / 1e6:,.1f} MB"),
        ("watermark", "none yet" if last.watermark is None else f"{last.watermark} us"),
    ]
    decisions = [one for one in handle.decisions if one.instructions][-3:]
    rows += [(f"epoch {one.epoch}", f"{one.rule}: {one.reason}") for one in decisions]
    return _table(title, rows)


def flow_html(flow: Flow) -> str:
    """A flow: its streams and queries."""
    streams = [(f"stream {name}", f"time {one.time}, delay {one.shown_delay}") for name, one in flow._streams.items()]
    queries = [(f"query {name}", one.query.text) for name, one in flow._queries.items()]
    return _table(f"flow {flow.name}", [*streams, *queries] or [("streams", "none yet")])


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return f"<table><tr><th colspan=2 style='text-align: left'>{escape(title)}</th></tr>{''.join(_lines(rows))}</table>"


def _lines(rows: Iterable[tuple[str, str]]) -> Iterable[str]:
    side = "style='text-align: left'"
    return (f"<tr><td {side}>{escape(name)}</td><td {side}>{escape(text)}</td></tr>" for name, text in rows)
