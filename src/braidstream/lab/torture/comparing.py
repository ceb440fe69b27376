"""What a story's queries have put out beside what they should have: the difference in words, with some rows of it.

Results are multisets. An aggregate query puts out changes; what is left of them after each epoch is
compared. Numbers with fractions may differ in the last digits.

Cost: some milliseconds a query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.kernels.measures import EPOCH, WATERMARK
from braidstream.lab.torture.asking import columns, cql
from braidstream.lab.torture.reference import Reference
from braidstream.lab.torture.story import Ask, Story

__all__ = ["Played", "compare"]


class Played(Protocol):
    """Where results are."""

    folder: Path


def compare(story: Story, played: Played, met: Counter[str], wrong: Callable[[str], Exception]) -> None:
    """Compare all queries and all late rows; raises `wrong` with what differs."""
    reference = Reference(story)
    try:
        for ask in story.asks:
            told = _compared(story, ask, reference, played.folder / "out" / ask.name, met)
            if told:
                raise wrong(f"query {ask.name} ({ask.kind}) differs\n  {cql(ask)}\n{told}")
        if story.options.takes_late:
            _compare_late(story, reference, played.folder / "late", met, wrong)
    finally:
        reference.close()


def _compared(story: Story, ask: Ask, reference: Reference, folder: Path, met: Counter[str]) -> str:
    if ask.kind == "aggregate":
        return _aggregates(story, ask, reference, folder, met)
    expected = reference.results(ask, is_final=story.options.final)
    found = _plain(read(folder), expected.schema)
    met[f"query: {ask.kind}{_form(ask)}"] += 1
    met[f"rows: {ask.kind}"] += expected.num_rows
    return _difference(found, expected)


def _difference(found: pa.Table, expected: pa.Table) -> str:
    """In words; "" when they are the same as multisets."""
    rows, wanted = (Counter(tuple(row.values()) for row in table.to_pylist()) for table in (found, expected))
    if rows == wanted:
        return ""
    more, missing = rows - wanted, wanted - rows
    told = f"{rows.total()} rows for {wanted.total()}: {more.total()} too many, {missing.total()} missing"
    return f"{told}\n  too many: {list(more.items())[:5]}\n  missing: {list(missing.items())[:5]}"


def _form(ask: Ask) -> str:
    """What is worth telling apart."""
    columns_ = {column.split(".")[1] for pair in ask.equalities for column in pair}
    words = [f" of {len(ask.inputs)}"] if ask.kind == "inner" else []
    words += [" on several keys"] if len(columns_) > 1 or (len(ask.inputs) > 2 and ask.kind == "on_top") else []
    words += [" with intervals"] if ask.bounds else []
    words += [" with itself"] if len({entry.stream for entry in ask.inputs}) < len(ask.inputs) else []
    return "".join(words)


def read(folder: Path) -> pa.Table | None:
    """All results, as a reader of the folder sees them."""
    files = sorted(p for p in folder.glob("*.parquet") if not p.name.startswith(("_", ".")))
    return pa.concat_tables([pq.read_table(file) for file in files], promote_options="permissive") if files else None


def _plain(found: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """With times as microseconds, and the columns that are expected."""
    if found is None:
        return schema.empty_table()
    wanted = [name for name in found.column_names if name not in (EPOCH, WATERMARK)]
    made = [found.column(name) for name in wanted]
    times = pa.timestamp("us", tz="UTC")
    return pa.table([c.cast(times).cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in made], wanted)


def _aggregates(story: Story, ask: Ask, reference: Reference, folder: Path, met: Counter[str]) -> str:
    found, n = read(folder), len(ask.group_by)
    rows = [] if found is None else found.to_pylist()
    last = len(story.epochs) if ask.end is None else ask.end
    names = [f"c{i}" for i in range(len(columns(ask)))]
    view: dict[Any, Any] = {}
    met[f"query: aggregate of {len(ask.inputs)}"] += 1
    for number in range(ask.begin, last):
        own = [tuple(row[name] for name in names) for row in rows if row["epoch"] == number]
        if len({row[:n] for row in own}) != len(own) or (not n and len(own) != 1):
            return f"in epoch {number} these were put out: {own}"
        view |= {row[:n]: row[n:] for row in own}
        live = {group: _rounded(values) for group, values in view.items() if values[0] or not n}
        expected = {row[:n]: _rounded(row[n:]) for row in reference.aggregates(ask, number)}
        met["rows: aggregate"] += len(expected)
        if live != expected:
            only = {g: v for g, v in live.items() if expected.get(g) != v}
            missing = {g: v for g, v in expected.items() if live.get(g) != v}
            return f"after epoch {number}: found {only}, expected {missing}"
    early = [row for row in rows if row["epoch"] < ask.begin or row["epoch"] > last]
    return f"put out in other epochs than its own: {early}" if early else ""


def _rounded(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(round(float(v), 9) if isinstance(v, float) else v for v in values)


def _compare_late(
    story: Story, reference: Reference, folder: Path, met: Counter[str], wrong: Callable[[str], Exception]
) -> None:
    for name, rows in reference.late.items():
        met["rows: late"] += len(rows)
        expected = story.table(rows)
        found = read(folder / name)
        told = _difference(
            story.schema.empty_table() if found is None else found.select(expected.column_names), expected
        )
        if told:
            raise wrong(f"the late rows of {name} differ: {told}")
