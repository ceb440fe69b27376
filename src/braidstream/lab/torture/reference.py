"""What the queries of a story should have put out, by DuckDB over all rows at once.

The SQL states the meaning of a query (docs/architecture.md) and shares nothing with the engine: windows and intervals
are comparisons of times, rows without a match are those for which NOT EXISTS holds and whose time has passed, the
newest partner is the first of a sorted list. Rows that were late, by the rule of the watermark, are left out.

Cost: some milliseconds a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from braidstream.lab.testing.expressions import connection
from braidstream.lab.torture.asking import KINDS, columns, place_of
from braidstream.lab.torture.story import Ask, Input, Row, Story
from braidstream.model.values import changed

__all__ = ["END", "Reference"]

END = 1 << 61
"""A watermark after all times."""
START = -(1 << 61)


class Reference:
    """A story's rows in DuckDB."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.watermarks, on_time, self.late = _split(story)
        self._connection = connection()
        names = ["k", "j", "v", "t", "e", "id"]
        key = story.schema.field("k").type
        types = [key, *[pa.int64()] * 5]
        for stream, rows in on_time.items():
            made = [(*row, epoch, i) for i, (epoch, row) in enumerate(rows)]
            data = [pa.array([row[i] for row in made], kind) for i, kind in enumerate(types)]
            self._connection.register(f"rows of {stream}", pa.table(data, names))

    def close(self) -> None:
        """Forget the rows."""
        for stream in self.story.streams:
            self._connection.unregister(f"rows of {stream}")

    def watermark_after(self, number: int) -> int:
        """The watermark after an epoch; before all times when there is none."""
        return self.watermarks[number] if number >= 0 else START

    def results(self, ask: Ask, *, is_final: bool) -> pa.Table:
        """All that it has put out at the end of its life; not of aggregates, which change."""
        last = len(self.story.epochs) if ask.end is None else ask.end
        ends = is_final and ask.end is None
        watermark = END if ends else self.watermark_after(last - 1)
        return self._connection.sql(self.sql(ask, watermark)).to_arrow_table()

    def n_results(self, most: int) -> int:
        """How many results all queries have; it stops counting at `most`."""
        found = 0
        for ask in self.story.asks:
            inner = changed(ask, kind="inner", group_by=(), aggregates=(), counted=None, begin=0, end=None)
            found += self._connection.sql(f"SELECT count(*) FROM ({self.sql(inner, END)} LIMIT {most})").fetchall()[0][
                0
            ]
        return found

    def aggregates(self, ask: Ask, number: int) -> list[tuple[Any, ...]]:
        """The groups of an aggregate query after an epoch."""
        live = [
            f"{entry.alias}.t + {entry.window_us} >= {self.watermark_after(number)}"
            for entry in ask.inputs
            if entry.window_us is not None
        ]
        where = " AND ".join([*_equal(ask), *_bounds(ask), *ask.predicates, *live])
        group = f" GROUP BY {', '.join(ask.group_by)}" if ask.group_by else ""
        sources = ", ".join(self._source(entry, ask, number + 1) for entry in ask.inputs)
        found = self._connection.sql(f"SELECT {', '.join(columns(ask))} FROM {sources} WHERE {where}{group}").fetchall()
        return [tuple(row) for row in found]

    def sql(self, ask: Ask, watermark: int) -> str:
        """The query over all rows of its life."""
        if ask.kind in ("inner", "unkeyed"):
            return f"SELECT {_select(ask)} FROM {self._sources(ask)} WHERE {_all([*_together(ask), *ask.predicates])}"
        if ask.kind == "counted":
            return self._counted(ask, watermark)
        if ask.kind == "on_top":
            return self._on_top(ask, watermark)
        return self._of_kind(ask, watermark)

    def _of_kind(self, ask: Ask, watermark: int) -> str:
        kind, (first, second) = KINDS[ask.kind], ask.inputs
        left, right = (self._source(entry, ask) for entry in ask.inputs)
        where = f"({ask.where})" if ask.where else "true"
        if kind.is_asof:
            near = [f"{second.alias}.t <= {first.alias}.t"]
            if second.window_us is not None:
                near.append(f"{first.alias}.t - {second.alias}.t <= {second.window_us}")
            matched = _all([*_equal(ask), *near, *ask.predicates])
        else:
            matched = _all([*_together(ask), *ask.predicates])
        parts = []
        if kind.is_asof:
            newest = ", ".join(f"{second.alias}.{c} DESC NULLS LAST" for c in ("t", "k", "j", "v"))
            parts.append(
                f"SELECT {_select(ask)} FROM {left} JOIN {right} ON {matched} WHERE {first.alias}.t < {watermark} AND "
                f"{where} QUALIFY row_number() OVER (PARTITION BY {first.alias}.id ORDER BY {newest}) = 1"
            )
        elif kind.composes:
            parts.append(f"SELECT {_select(ask)} FROM {left} JOIN {right} ON {matched} WHERE {where}")
        elif ask.kind == "semi":
            parts.append(f"SELECT {_select(ask)} FROM {left} WHERE EXISTS (FROM {right} WHERE {matched}) AND {where}")
        for place in kind.kept:
            own, other = (left, right) if place == 0 else (right, left)
            entry = ask.inputs[place]
            end = f"{entry.alias}.t" + ("" if kind.is_asof else f" + {_wait(entry, ask)}")
            parts.append(
                f"SELECT {_select(ask)} FROM {own} LEFT JOIN {other} ON false "
                f"WHERE NOT EXISTS (FROM {other} WHERE {matched}) AND {end} < {watermark} AND {where}"
            )
        return " UNION ALL ".join(parts)

    def _on_top(self, ask: Ask, watermark: int) -> str:
        n_whole = len(ask.inputs) - ask.n_left
        below = ask.inputs[:n_whole]
        joined = [*(one for one in _equal(ask) if place_of(one, ask) < n_whole), *_windows(below), ask.where or "true"]
        sources = ", ".join(self._source(entry, ask) for entry in below)
        selected = ", ".join(f"{entry.alias}.{c} AS {entry.alias}_{c}" for entry in below for c in "kjvt")
        kept = f"(SELECT {selected} FROM {sources} WHERE {_all(joined)})"
        for place in range(n_whole, len(ask.inputs)):
            kept = self._left(ask, place, kept, watermark)
        select = ", ".join(f"{_of_kept(c, ask.inputs)} AS c{i}" for i, c in enumerate(columns(ask)))
        return f"SELECT {select} FROM {kept} AS kept"

    def _left(self, ask: Ask, place: int, kept: str, watermark: int) -> str:
        """What a LEFT JOIN makes of what is kept so far: a match of each, or NULLs once that is decided."""
        below, last = ask.inputs[:place], ask.inputs[place]
        own = [one for one in (*_equal(ask), *ask.predicates) if place_of(one, ask) == place]
        near = [
            f"({e.alias}.t IS NULL OR {n})" for e, n in zip(ask.inputs, _windows(ask.inputs[: place + 1]), strict=False)
        ]
        matched = _all([_of_kept(one, below) for one in [*own, *near]])
        top = self._source(last, ask)
        ends = ", ".join(f"kept.{entry.alias}_t + {entry.window_us}" for entry in below)
        end = f"least({ends})" if len(below) > 1 else ends
        selected = "kept.*, " + ", ".join(f"{last.alias}.{c} AS {last.alias}_{c}" for c in "kjvt")
        return (
            f"(SELECT {selected} FROM {kept} AS kept JOIN {top} ON {matched} UNION ALL "
            f"SELECT {selected} FROM {kept} AS kept LEFT JOIN {top} ON false "
            f"WHERE NOT EXISTS (FROM {top} WHERE {matched}) AND {end} < {watermark})"
        )

    def _counted(self, ask: Ask, watermark: int) -> str:
        window, timed = ask.counted, ask.inputs[-1]
        assert window is not None
        size, slide, offset = window.size_us, window.slide_us, window.offset_us
        wait = 0 if len(ask.inputs) == 1 else timed.window_us or 0
        latest = f"(({timed.alias}.t - {offset}) // {slide}) * {slide} + {offset}"
        start = f"({latest} - n * {slide})"
        conditions = [*_together(ask), *ask.predicates, f"{start} + {size} > {timed.alias}.t"]
        conditions.append(f"{start} + {size} + {wait} <= {watermark}")
        selected = [*columns(ask), start, f"{start} + {size}"]
        select = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(selected))
        series = f"unnest(range(0, {-(-size // slide)})) AS _(n)"
        return (
            f"SELECT {select} FROM {self._sources(ask)}, {series} WHERE {_all(conditions)} "
            f"GROUP BY {ask.inputs[0].alias}.k, {start}"
        )

    def _sources(self, ask: Ask) -> str:
        return ", ".join(self._source(entry, ask) for entry in ask.inputs)

    def _source(self, entry: Input, ask: Ask, end: int | None = None) -> str:
        last = min(x for x in (ask.end, end, len(self.story.epochs)) if x is not None)
        return f'(FROM "rows of {entry.stream}" WHERE e >= {ask.begin} AND e < {last}) AS {entry.alias}'


def _split(story: Story) -> tuple[list[int], dict[str, list[tuple[int, Row]]], dict[str, list[Row]]]:
    """The watermark after each epoch; of each stream the rows on time with their epochs, and those that are late."""
    on_time: dict[str, list[tuple[int, Row]]] = {name: [] for name in story.streams}
    late: dict[str, list[Row]] = {name: [] for name in story.streams}
    newest: dict[str, int] = {}
    heard: dict[str, int] = {}
    watermark, watermarks = START, []
    for number, epoch in enumerate(story.epochs):
        idle = _idle(story, number, heard)
        for name, rows in epoch.items():
            for row in rows:
                if row[3] < watermark:
                    late[name].append(row)
                else:
                    on_time[name].append((number, row))
            newest[name] = max([newest.get(name, START), *(row[3] for row in rows)])
            if rows:
                heard[name] = number
        waited = [name for name in story.streams if name not in idle or epoch.get(name)]
        if any(epoch.values()) and waited and all(newest.get(name, START) > START for name in waited):
            watermark = max(watermark, min(newest[name] - story.delays_us[name] for name in waited))
        watermarks.append(watermark)
    return watermarks, on_time, late


def _idle(story: Story, number: int, heard: dict[str, int]) -> set[str]:
    """Streams that had said nothing for as many epochs as they may, when the last epoch before this one was over."""
    return {n for n, most in story.options.idle.items() if number > 0 and number - 1 - heard.get(n, -1) >= max(most, 1)}


def _select(ask: Ask) -> str:
    return ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(columns(ask)))


def _equal(ask: Ask) -> list[str]:
    return [f"{left} = {right}" for left, right in ask.equalities]


def _bounds(ask: Ask) -> list[str]:
    return [f"{b.second}.t - {b.first}.t BETWEEN {b.low_us} AND {b.high_us}" for b in ask.bounds]


def _wait(entry: Input, ask: Ask) -> int:
    """How long after a row its last partner may come, by its window and by intervals."""
    waits = [] if entry.window_us is None else [entry.window_us]
    waits += [bound.high_us for bound in ask.bounds if bound.first == entry.alias]
    waits += [-bound.low_us for bound in ask.bounds if bound.second == entry.alias]
    return max(min(waits, default=0), 0)


def _windows(inputs: Sequence[Input]) -> list[str]:
    newest = f"greatest({', '.join(f'{entry.alias}.t' for entry in inputs)})"
    return [f"{newest} - {one.alias}.t <= {one.window_us}" for one in inputs if one.window_us is not None]


def _together(ask: Ask) -> list[str]:
    """When rows of all inputs are a result: keys, windows and intervals."""
    return [*_equal(ask), *(_windows(ask.inputs) if len(ask.inputs) > 1 else []), *_bounds(ask)]


def _of_kept(sql: str, below: Sequence[Input]) -> str:
    """The same over the composites of the inputs below, whose columns are named alias_column."""
    for entry in below:
        sql = sql.replace(f"{entry.alias}.", f"kept.{entry.alias}_")
    return sql


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) or "true"
