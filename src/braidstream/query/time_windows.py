"""Windows of time to group by: `GROUP BY i.campaign, window(c.ts, '1 hour')`, also `TUMBLE(...)` and `HOP(...)`.

Such a query counts every result of its join once, in the windows that an event time of it lies in, and puts out a group
when the watermark says that nothing more can come: once, and final. That is another question than an aggregate over the
streams' own windows, whose groups fall back to nothing as rows expire.

Two GROUP BY entries stand for the call, its start and its end: brackets around the time column, which the slots turn
into the moments they mean. In SELECT they are `window.start` and `window.end`, or the call with these behind it.

Invariant: after `take_time_window` the parsed query has no such call left. Cost: one walk of the parsed query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sqlglot import TokenType, exp

from braidstream.errors import QueryError
from braidstream.query.duration import DurationProblem, measure
from braidstream.query.model import Query, TimeWindow
from braidstream.query.scope import Scope
from braidstream.query.source import Source, sql_of
from braidstream.query.types import Schema

__all__ = ["expiring_groups", "has_time_window", "masked_calls", "take_time_window"]

_MASK = "wind0w"
"""As long as `window`, which the parser takes for a clause of its own."""

_PARTS = {f"{call}_{part}": part for call in ("TUMBLE", "HOP") for part in ("START", "END")}
_EXAMPLE = "GROUP BY window(c.ts, '1 hour')"
_EXPECTED = "window(time, size), window(time, size, slide), TUMBLE(time, size) or HOP(time, slide, size)"


def masked_calls(source: Source, masked: str) -> str:
    """The text with `window(` under a name that the parser reads as a function."""
    for token, after in zip(source.tokens, source.tokens[1:], strict=False):
        if token.text.upper() == "WINDOW" and after.token_type == TokenType.L_PAREN:
            masked = masked[: token.start] + _MASK + masked[token.end + 1 :]
    return masked


def has_time_window(select: exp.Select) -> bool:
    """Whether a query groups by a window of time."""
    return any(_is_call(node) for node in select.walk())


def take_time_window(scope: Scope, select: exp.Select) -> TimeWindow | None:
    """The window that a query groups by, if it does; the query then groups by its start and its end."""
    if not has_time_window(select):
        return None
    group = select.args.get("group")
    entries = [] if group is None else list(group.expressions)
    calls = [(at, node) for at, node in enumerate(entries) if isinstance(node, exp.Anonymous) and _is_call(node)]
    if group is None or len(calls) != 1:
        wrong = "several windows of time in GROUP BY" if calls else "a window of time that is not in GROUP BY"
        raise scope.source.error(_at(scope.source), wrong, f"one, {_EXAMPLE}", "group by one of them")
    at, call = calls[0]
    window, column = _read(scope, call)
    entries[at : at + 1] = [_start(column), _end(column)]
    group.set("expressions", entries)
    select.set("expressions", [_rewritten(scope, item, window, column) for item in select.expressions])
    return window


def expiring_groups(query: Query, schemas: Mapping[str, Schema]) -> str | None:
    """What to say of a query whose groups are hours that fall back to nothing as rows expire; None if there is none.

    That is what anything computed of a stream's time column may be: `date_trunc`, `hour`, `CAST(... AS DATE)`.
    """
    if query.window is not None or not query.is_aggregate:
        return None
    hosts = {one.name: one.stream for one in query.enriched}
    named = {entry.alias: schemas.get(hosts.get(entry.stream, entry.stream)) for entry in query.inputs}
    times = [f"{_quoted(a)}.{_quoted(s[s.time].name)}" for a, s in named.items() if s is not None and s.time]
    texts = (entry.sql for entry in query.group_by if entry.column is None)
    found = next((text for text in texts if any(time in text for time in times)), None)
    if found is None:
        return None
    shown = found.replace("`", "")
    told = f"query {query.name!r} groups by {shown} over windows that slide: groups fall back to 0 as rows expire"
    return f"{told}; for totals that are put out once, write {_EXAMPLE}"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _is_call(node: exp.Expr) -> bool:
    name = str(node.this) if isinstance(node, exp.Anonymous) else ""
    return name == _MASK or name.upper() in ("TUMBLE", "HOP")


def _at(source: Source) -> int:
    return source.keyword(words=("WINDOW", "TUMBLE", "HOP"))


def _read(scope: Scope, call: exp.Anonymous) -> tuple[TimeWindow, exp.Expr]:
    """The window of a call, and the time column."""
    time, *lengths = call.expressions or [None]
    is_hop = str(call.this).upper() == "HOP"
    column = scope.resolve(time) if isinstance(time, exp.Column) else None
    if not isinstance(column, exp.Column) or not 1 + is_hop <= len(lengths) <= (1 if _is_tumble(call) else 3):
        raise _wrong(scope.source, f"{_shown(call)} is no window of time")
    schema = scope.relation(column.table).schema
    if schema.time is None or schema[schema.time].name != column.name:
        raise _wrong(scope.source, f"{_shown(call)}: {column.name} is not the event time of {column.table}")
    sizes = [_length(scope.source, call, node) for node in lengths]
    if is_hop:
        sizes[:2] = [sizes[1], sizes[0]]
    size, slide, offset = (*sizes, *([sizes[0], 0][len(sizes) - 1 :]))[:3]
    if not 0 < slide <= size:
        raise _wrong(scope.source, f"{_shown(call)} begins every {slide:,} us and is {size:,} us long")
    return TimeWindow(column.table, size, slide, offset % slide), column


def _is_tumble(call: exp.Anonymous) -> bool:
    return str(call.this).upper() == "TUMBLE"


def _length(source: Source, call: exp.Anonymous, node: exp.Expr) -> int:
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    literal = node.this if isinstance(node, exp.Interval) else node
    text = f"{literal.name} {unit.name if unit is not None else ''}" if isinstance(literal, exp.Literal) else ""
    try:
        return measure(re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE))
    except DurationProblem as problem:
        raise _wrong(source, f"{_shown(call)}: {problem.wrong}") from None


def _wrong(source: Source, wrong: str) -> QueryError:
    return source.error(_at(source), wrong, _EXPECTED, f"write {_EXAMPLE}")


def _shown(call: exp.Expr) -> str:
    return re.sub(_MASK, "window", sql_of(call).replace("`", ""), flags=re.IGNORECASE)


def _start(column: exp.Expr) -> exp.Expr:
    return exp.Paren(this=column.copy())


def _end(column: exp.Expr) -> exp.Expr:
    return exp.Paren(this=_start(column))


def _rewritten(scope: Scope, item: exp.Expr, window: TimeWindow, column: exp.Expr) -> exp.Expr:
    """A select item with the columns that stand for start and end."""
    if not any(_references(scope, item)):
        return item
    root = exp.Paren(this=item.unalias().copy())
    name = item.alias
    for node in list(_references(scope, root)):
        part = _part(node)
        if isinstance(node, exp.Anonymous) and _is_call(node) and _read(scope, node)[0] != window:
            raise scope.source.error(_at(scope.source), "two different windows of time", "one", f"write {_EXAMPLE}")
        if part not in ("START", "END"):
            fix = "write window.start or window.end"
            raise scope.source.error(_at(scope.source), "a window of time is no value", "its start or its end", fix)
        target = node.parent if isinstance(node.parent, exp.Dot) else node
        assert isinstance(target, exp.Expr)
        name = name or (part.lower() if target is root.this else "")
        target.replace(_start(column) if part == "START" else _end(column))
    made = root.this
    made.pop()
    return exp.alias_(made, name, quoted=True) if name else made


def _references(scope: Scope, root: exp.Expr) -> Iterator[exp.Expr]:
    """Calls, `window.start` and the like, TUMBLE_START(...)."""
    for node in root.walk():
        is_part = isinstance(node, exp.Anonymous) and str(node.this).upper() in _PARTS
        if is_part or _is_call(node) or (isinstance(node, exp.Column) and _is_window(scope, node)):
            yield node


def _is_window(scope: Scope, column: exp.Column) -> bool:
    first = column.parts[0].name.lower()
    is_known = first in {alias.lower() for alias in scope.aliases} or any(first in r.schema for r in scope.relations)
    return first == "window" and not is_known


def _part(node: exp.Expr) -> str:
    """START or END, as it is asked for, or something else."""
    if isinstance(node, exp.Column):
        return node.name.upper() if node.table else ""
    if str(node.this).upper() in _PARTS:
        return _PARTS[str(node.this).upper()]
    return node.parent.expression.name.upper() if isinstance(node.parent, exp.Dot) else ""
