"""Which rows of an outer, semi, anti or as-of join are put out: asked of rows, and of the partners they may have.

Nothing here knows where rows come from: a slot asks of what is active when the watermark passes (`slot.closing`), a
clean-up of all generations of a piece (`slot.cleaning`).

Cost: rows that are asked of times the parts of their partners, each a binary search (`kernels.matching`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.kernels.loops import between
from braidstream.kernels.matching import Needles, Partners, Span, newest_partner, turned
from braidstream.kernels.rows import DEADLINE, HASH, I64, MARK, TIME, Rows, take
from braidstream.kernels.sizes import BATCH_BYTES, cut, narrow, one_chunk
from braidstream.model.stores import Comparison, Join, OutputColumn, Store
from braidstream.slot.sharing import told_columns
from braidstream.state.staging import Writer

__all__ = ["Decided", "alone", "ending", "filtered", "length_of", "needles_of", "turned_on", "unmatched", "with_newest"]

_FIRST = int(np.iinfo(np.int64).min)
"""Before all times."""
Asked = Callable[[Needles], Iterable[Partners]]
"""Where the partners of needles are."""


@dataclass(frozen=True)
class Decided:
    """Rows of one input of a join that are put out, with their partners or with NULLs."""

    join: Join
    place: int
    rows: Rows
    partners: pa.Table | None
    is_keyless: bool = False
    """Whether they are rows without a key."""

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, out: OutputColumn) -> Any:
        """The values of one column of one input."""
        source = self.rows.table if out.input == self.place else self.partners
        if source is None or out.column not in source.column_names:
            return pa.nulls(len(self), narrow(self._types[out.input, out.column]))
        return one_chunk(source, out.column)

    @cached_property
    def _types(self) -> dict[tuple[int, str], pa.DataType]:
        outputs = zip(self.join.outputs, self.join.schema, strict=False)
        return {(out.input, out.column): field.type for out, field in outputs}

    def times_and_deadlines(self) -> tuple[I64, I64]:
        """Of each row: its time, and the latest time that its last partner may have had."""
        window_us = self.join.inputs[self.place].window_us
        deadlines = self.rows.deadlines
        return self.rows.times, self.rows.times + (window_us or 0) if deadlines is None else deadlines

    def write(self, writer: Writer, epoch: int, *, recovered: bool = False) -> None:
        """Put them out as results of a query."""
        names = [str(i) for i in range(len(self.join.outputs))]
        table = pa.table([self.column(out) for out in self.join.outputs], names=names)
        for piece in cut(table, BATCH_BYTES):
            told = told_columns(self.join, piece.num_rows, epoch, recovered=recovered)
            writer.write([*(column.combine_chunks() for column in piece.columns), *told])


def length_of(join: Join, place: int) -> int | None:
    """How long after its time a row of an input closes; None: at its deadline, or never."""
    return 0 if join.kind.is_asof else join.inputs[place].window_us


def ending(rows: Rows, window_us: int | None, before: int | None, reached: int) -> I64:
    """The rows whose last partner may have come until `reached`, and not until `before`."""
    length = 0 if window_us is None else window_us  # the deadline of an intermediate result is not before its time
    ends, length = (rows.times, length) if rows.deadlines is None else (rows.deadlines, 0)
    return between(ends, _FIRST if before is None else before - length, reached - length)


def filtered(rows: Rows, index: I64, bit: int | None) -> I64:
    """Of the rows at `index` those that pass a filter."""
    if bit is not None and rows.masks is not None:
        index = index[(rows.masks[index] & (1 << bit)) != 0]
    return index


def turned_on(join: Join, place: int) -> tuple[Comparison, ...]:
    """What a match satisfies, the needle's side first."""
    return join.on if place == 0 else turned(join.on)


def needles_of(join: Join, place: int, rows: Rows, index: I64) -> Needles:
    """Rows of an input, to look their partners up: until its own window ends, and not before theirs begin."""
    own, other = join.inputs[place].window_us, join.inputs[1 - place].window_us
    span = Span(other, 0 if join.kind.is_asof else own)
    for gap in join.gaps:
        bounds = (gap.low_us, gap.high_us) if gap.left == place else (_opposite(gap.high_us), _opposite(gap.low_us))
        span = span.narrowed(*bounds)
    return Needles.of(rows, index, span, turned_on(join, place))


def _opposite(bound: int | None) -> int | None:
    return None if bound is None else -bound


def unmatched(join: Join, place: int, rows: Rows, index: I64, partners: Asked) -> I64:
    """Those of the rows at `index` of an input that have no match."""
    able = filtered(rows, index, join.inputs[place].bit)
    needles = needles_of(join, place, rows, able)
    left: I64 = np.arange(len(able))
    for part in partners(needles):
        if not len(left):
            break
        left = part.unmatched(needles, left)
    unable = np.setdiff1d(index, able, assume_unique=True) if len(able) < len(index) else able[:0]
    return np.sort(np.concatenate([able[left], unable])) if len(unable) else able[left]


def with_newest(join: Join, stores: Sequence[Store], rows: Rows, partners: Asked) -> Iterator[Decided]:
    """Rows of an as-of join, each with its newest partner."""
    own = filtered(rows, np.arange(len(rows)), join.inputs[0].bit)
    asked = {out.column for out in join.outputs if out.input == 1}
    columns = [name for name in stores[join.inputs[1].store].columns if name in asked]
    index: I64 = np.full(len(rows), -1, dtype=np.int64)
    needles = needles_of(join, 0, rows, own)
    table, found = newest_partner(needles, list(partners(needles)), columns)
    index[own] = found
    if 0 not in join.kind.kept:
        chosen = np.flatnonzero(index >= 0)
        rows, index = rows.take(chosen), index[chosen]
    newest = None if table is None else table.take(pa.array(index, mask=index < 0))
    yield Decided(join, 0, rows, newest)


def alone(join: Join, place: int, rows: Rows, index: I64, *, is_keyless: bool = False) -> Iterator[Decided]:
    """The rows at `index` of one input, with NULLs for the other."""
    if len(index):
        asked = {out.column for out in join.taken if out.input == place} | {HASH, TIME, DEADLINE, MARK}
        columns = [name for name in rows.table.column_names if name in asked]
        yield Decided(join, place, Rows(take(rows.table.select(columns), index)), None, is_keyless)
