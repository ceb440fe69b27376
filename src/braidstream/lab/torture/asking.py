"""The queries of a story as CQL, with the columns that they put out.

Outputs are named c0, c1, ... and stand in the order of `columns`, as `reference` selects them. Cost: nothing.
"""

from __future__ import annotations

from braidstream.lab.torture.story import SECOND, Ask, Bound, Input
from braidstream.model.join_kinds import JoinKind

__all__ = ["KINDS", "columns", "cql", "place_of", "shown", "statement"]

KINDS = {kind.value: kind for kind in JoinKind}
"""The kinds of joins of two streams; beside them a story has `unkeyed`, `on_top`, `aggregate` and `counted`."""


def shown(ask: Ask) -> list[Input]:
    """The inputs that have columns in the result."""
    return list(ask.inputs[:1]) if ask.kind in ("semi", "anti") else list(ask.inputs)


def columns(ask: Ask) -> list[str]:
    """What it selects, as SQL that CQL and DuckDB read alike; windows of time and aggregates apart."""
    if ask.kind == "aggregate":
        return [*ask.group_by, "COUNT(*)", *ask.aggregates]
    if ask.kind == "counted":
        return [f"{ask.inputs[0].alias}.k", "COUNT(*)", *ask.aggregates]
    return [f"{entry.alias}.{name}" for entry in shown(ask) for name in ("v", "k", "j")]


def cql(ask: Ask) -> str:
    """The text of the query."""
    selected = columns(ask)
    if ask.counted is not None:
        selected += ["window.start", "window.end"]
    select = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(selected))
    return f"SELECT {select} {_from(ask)}{_grouped(ask)}"


def statement(ask: Ask) -> str:
    """A line for people."""
    until = "" if ask.is_permanent else f" (from epoch {ask.begin}{'' if ask.end is None else f' to before {ask.end}'})"
    return f"{ask.name}, {ask.kind}{until}: {cql(ask)}"


def _from(ask: Ask) -> str:
    entries = [_entry(one, ask) for one in ask.inputs]
    decided = [*(f"{left} = {right}" for left, right in ask.equalities), *map(_between, ask.bounds), *ask.predicates]
    if ask.kind == "on_top":
        return _on_top(ask, entries)
    if ask.kind in KINDS and ask.kind != "inner":
        text = f"FROM {entries[0]} {KINDS[ask.kind].words} {entries[1]} ON {' AND '.join(decided)}"
        return text + (f" WHERE {ask.where}" if ask.where else "")
    return f"FROM {', '.join(entries)}" + (f" WHERE {' AND '.join(decided)}" if decided else "")


def _on_top(ask: Ask, entries: list[str]) -> str:
    """The last streams are joined, one after the other, to what the others give."""
    text, equal = entries[0], [f"{left} = {right}" for left, right in ask.equalities]
    for place, entry in enumerate(entries[1:], 1):
        is_left = place >= len(entries) - ask.n_left
        own = [one for one in (*equal, *ask.predicates) if place_of(one, ask) == place]
        text += f" {'LEFT JOIN' if is_left else 'JOIN'} {entry} ON {' AND '.join(own)}"
    return f"FROM {text}" + (f" WHERE {ask.where}" if ask.where else "")


def place_of(condition: str, ask: Ask) -> int:
    """The last input that a condition is about."""
    return max(place for place, entry in enumerate(ask.inputs) if f"{entry.alias}." in condition)


def _entry(entry: Input, ask: Ask) -> str:
    as_ = "" if entry.alias == entry.stream else f" AS {entry.alias}"
    if entry.window_us is None:
        return f"{entry.stream}{' [RANGE UNBOUNDED]' if entry.is_unbounded else ''}{as_}"
    if len(ask.inputs) == 1:
        return f"{entry.stream}{as_}"
    return f"{entry.stream} [RANGE {_length(entry.window_us)}]{as_}"


def _between(bound: Bound) -> str:
    low, high = (_plus(bound.first, us) for us in (bound.low_us, bound.high_us))
    return f"{bound.second}.ts BETWEEN {low} AND {high}"


def _plus(alias: str, us: int) -> str:
    return f"{alias}.ts {'-' if us < 0 else '+'} INTERVAL {_length(abs(us))}"


def _length(us: int) -> str:
    return f"{us // SECOND} SECONDS" if us % SECOND == 0 else f"{us // 1000} MILLISECONDS"


def _grouped(ask: Ask) -> str:
    groups = list(ask.group_by)
    if ask.counted is not None:
        window, timed = ask.counted, ask.inputs[-1].alias
        own = f"window({timed}.ts, '{window.size_us} us', '{window.slide_us} us', '{window.offset_us} us')"
        groups = [f"{ask.inputs[0].alias}.k", own]
    return f" GROUP BY {', '.join(groups)}" if groups else ""
