"""The panels of the dashboard that are text: figures of the moment, heavy keys with their grids, lists.

All of them are functions from what was followed to HTML, in which every word of a user is escaped. Cost: O(what is
shown), which is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from math import prod

from braidstream.state.history import HeavyWords
from braidstream.watch.followed import Decided, Epoch, Followed, Happened, Standing
from braidstream.watch.look import Theme

__all__ = ["clock", "complete_html", "decisions_html", "events_html", "head_html", "heavy_html", "late_html",
           "queries_html", "quiet", "short", "size", "watermark_html"]  # fmt: skip

_MOST = 60
_MOST_KEYS = 12
_MOST_CELLS = 256


def quiet(text: str) -> str:
    """In the place of something to show."""
    return f'<p class="nothing">{escape(text)}</p>'


def short(value: float) -> str:
    """A number as one reads it at a glance."""
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(value) >= least:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[unit]:.1f}{unit}"
    return f"{value:,.0f}"


def size(n_bytes: float) -> str:
    """Bytes likewise."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n_bytes) < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def clock(us: int | None, *, day: bool = False) -> str:
    """A time in UTC."""
    if us is None:
        return "none yet"
    try:
        moment = datetime.fromtimestamp(us / 1e6, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{us} us"
    return moment.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def head_html(flow: Followed, standing: Standing, recent: Sequence[Epoch]) -> str:
    """The name, how it stands, and the figures of the moment."""
    state = f'<span class="state {standing.state}">{standing.state}</span>'
    line = f'<div class="title"><h1>{escape(flow.name or "flow")}</h1>{state}<span class="why">'
    line += f"{escape(standing.text)}</span></div>"
    last = flow.last
    if last is None:
        return line
    wall = max(sum(one.wall_s for one in recent), 1e-9)
    rows = sum(sum(one.rows.values()) for one in recent) / wall
    matches = sum(sum(one.matches.values()) for one in recent) / wall
    late, all_rows = (sum(n for name, n in flow.totals.items() if name.startswith(kind)) for kind in ("late ", "rows "))
    tiles = [
        ("epoch", f"{last.epoch:,}", clock(last.at_us)),
        ("rows a second", short(rows), f"{short(all_rows)} seen"),
        ("matches a second", short(matches), _count(len(flow.queries), "query", "queries")),
        ("an epoch takes", f"{last.number('total_s') + last.number('spark_s'):.2f} s", "the last one"),
        ("state", size(last.number("state_bytes")), f"{short(last.number('state_rows'))} rows"),
        ("pushed", size(last.number("pushed_bytes")), _count(last.number("pushed_groups"), "group")),
        ("slots", f"{last.number('n_slots'):.0f}", _count(last.number("n_groups"), "group")),
        ("late rows", short(late), f"{late / all_rows:.2%} of all" if all_rows else "of none"),
    ]
    shown = "".join(f"<div><b>{value}</b><span>{name}</span><i>{more}</i></div>" for name, value, more in tiles)
    return f'{line}<div class="tiles">{shown}</div>'


def _count(n: float, word: str, words: str = "") -> str:
    return f"{short(n)} {word if n == 1 else words or word + 's'}"


def heavy_html(theme: Theme, heavy: Sequence[HeavyWords]) -> str:
    """The heavy keys: value, share, and the grid drawn with the slot of each cell."""
    if not heavy:
        return quiet("nothing heavy: no key has a grid")
    cards = [_key_card(theme, one) for one in heavy[:_MOST_KEYS]]
    more = len(heavy) - len(cards)
    return f'<div class="keys">{"".join(cards)}</div>' + (quiet(f"and {more} more") if more > 0 else "")


def _key_card(theme: Theme, one: HeavyWords) -> str:
    share, dims = one.share, one.dims
    counts = ", ".join(f"{escape(name)} {short(n)}" for name, n in one.counts.items())
    bar = f'<div class="bar"><div style="width:{min(share, 1):.1%}"></div></div>'
    title = f'<div class="key"><code>{escape(one.key)}</code><b>{share:.1%}</b></div>'
    shape = "x".join(map(str, dims))
    drawn = f"{_grid(theme, dims, one.slots)}<small>{shape} cells; {counts}</small>"
    return f'<div class="card">{title}{bar}{drawn}</div>'


def _grid(theme: Theme, dims: Sequence[int], slots: Sequence[int]) -> str:
    """A grid as a grid: a box a cell with its slot, in the colour of the slot; of more dimensions one after another."""
    rows = dims[0] if dims else 1
    columns = max(prod(dims[1:]), 1)
    if rows * columns > _MOST_CELLS:
        return quiet(f"{rows * columns} cells over {len(set(slots))} slots")
    width, height = max(min(34, 230 // columns), 3), max(min(24, 120 // rows), 3)
    boxes = []
    for at, slot in enumerate(slots):
        x, y = at % columns * width, at // columns * height
        boxes.append(
            f'<rect x="{x}" y="{y}" width="{width - 1}" height="{height - 1}" rx="2" fill="{theme.color(int(slot))}"/>'
        )
        if width >= 16 and height >= 12:
            place = f'x="{x + width / 2 - 0.5}" y="{y + height / 2 + 4}"'
            boxes.append(f'<text {place} text-anchor="middle" font-size="11" fill="{theme.panel}">{slot}</text>')
    return f'<svg width="{columns * width}" height="{rows * height}" role="img">{"".join(boxes)}</svg>'


def _swatch(theme: Theme, at: int, name: str) -> str:
    box = f'<span class="swatch" style="background:{theme.color(at)}"></span>'
    return f'<span class="named">{box}{escape(name)}</span>'


def complete_html(theme: Theme, flow: Followed) -> str:
    """How complete the answers are since the flow first began, by query."""
    shown = [
        f"{_swatch(theme, at, name)} <b>{of[0]:.1%}</b> ({of[1]:.1%} to {of[2]:.1%})"
        for at, (name, of) in enumerate(sorted(flow.so_far.items()))
    ]
    return f"so far {', '.join(shown)}" if shown else "nothing shed"


def watermark_html(theme: Theme, flow: Followed) -> str:
    """The watermark, and which stream holds it back."""
    last = flow.last
    if last is None or last.numbers.get("watermark") is None:
        return "no watermark yet: not every stream has spoken"
    shown = f"watermark <b>{clock(int(last.number('watermark')), day=True)}</b>"
    waits = {name: at for name, at in last.watermarks.items() if name not in flow.idle}
    if len(waits) > 1:
        first = min(waits, key=lambda name: waits[name])
        ahead = (max(waits.values()) - waits[first]) / 1e6
        shown += f", held back by <b>{escape(first)}</b>" + (f" ({ahead:,.1f} s behind)" if ahead else "")
    names = sorted(last.watermarks)
    swatches = "".join(_swatch(theme, at, name) for at, name in enumerate(names))
    return shown + "".join(f"; {escape(name)} is idle" for name in flow.idle) + swatches


def late_html(flow: Followed) -> str:
    """Late rows of each stream since the history began."""
    found = [(name.removeprefix("late "), n) for name, n in flow.totals.items() if name.startswith("late ") and n]
    told = ", ".join(f"<b>{escape(name)}</b> {short(n)}" for name, n in sorted(found))
    return told or "none of any stream"


def decisions_html(decisions: Iterable[Decided]) -> str:
    """What was decided, the newest first, with the reason."""
    rows = [
        f"<tr{' class=refused' if one.refusal else ''}><td>{one.epoch}</td><td>{clock(one.at_us)}</td>"
        f"<td><em>{escape(one.rule)}</em></td><td>{escape(one.what or 'nothing')}"
        f"<small>{escape(one.reason)}{escape(f'; refused: {one.refusal}') if one.refusal else ''}</small></td></tr>"
        for one in reversed(list(decisions)[-_MOST:])
    ]
    if not rows:
        return quiet("nothing was decided: groups stay where they are")
    return f"<table><tr><th>epoch</th><th>at</th><th>by</th><th>what and why</th></tr>{''.join(rows)}</table>"


_SHADES = {"failed": "bad", "killed": "bad", "replay": "bad", "warning": "warn"}


def events_html(events: Iterable[Happened], standing: Standing) -> str:
    """Starts, ends, failures, replays and warnings, the newest first."""
    listed = [one for one in events if not one.kind.startswith("query")]
    rows = [_event(one.epoch, clock(one.at_us), one.kind, one.text) for one in reversed(listed[-_MOST:])]
    if standing.state == "killed":
        rows.insert(0, _event("", "", "killed", standing.text))
    return _events(rows) if rows else quiet("nothing happened yet")


def queries_html(flow: Followed) -> str:
    """The queries that run, then those that came and went."""
    running = "".join(
        f"<tr><td><em>{escape(name)}</em></td><td><code>{escape(' '.join(text.split()))}</code></td></tr>"
        for name, text in flow.queries.items()
    )
    listed = [one for one in flow.events if one.kind.startswith("query")]
    rows = [_event(one.epoch, clock(one.at_us), one.kind, one.text) for one in reversed(listed[-_MOST:])]
    shown = f"<table>{running}</table>" if running else quiet("no query runs")
    return shown + (f"<h3>came and went</h3>{_events(rows)}" if rows else "")


def _event(epoch: object, at: str, kind: str, text: str) -> str:
    shade, number = f" class={_SHADES[kind]}" if kind in _SHADES else "", "" if epoch == -1 else epoch
    what = f"<td><em>{escape(kind)}</em></td><td>{escape(text[:400])}</td>"
    return f"<tr{shade}><td>{number}</td><td>{at}</td>{what}</tr>"


def _events(rows: Sequence[str]) -> str:
    return f"<table><tr><th>epoch</th><th>at</th><th></th><th></th></tr>{''.join(rows)}</table>"
