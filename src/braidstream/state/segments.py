"""Segments: immutable Arrow IPC files of rows sorted by (hash, time).

Writing one gives its entry for the manifest, with the rows of each group that it holds. Opening one maps it into memory
and checks that it is what the manifest says; what is missing or damaged is named, and nothing is changed.

A segment is one record batch, however large it is: columns beyond what Arrow's ordinary types hold are of its large
ones (`kernels.sizes`). Segments of
version 0.1.0 hold users' columns under their own names, whatever these are; they get their stored names when opened.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from braidstream.errors import DamagedState
from braidstream.kernels.rows import DEADLINE, HASH, I64, KEY, MARK, MASK, TIME, Rows, take
from braidstream.kernels.sizes import joined, whole
from braidstream.model.directory import Group
from braidstream.model.numbers import SlotId
from braidstream.state.files import Files
from braidstream.state.manifest import Part, Segment
from braidstream.state.opened import kept_open
from braidstream.state.seals import check_seal, sealing

__all__ = ["FOLDER", "FOREVER", "Place", "copied", "open_segment", "owned_index", "owned_rows", "rows_between"]

FOLDER = "segments"


FOREVER = 1 << 62
"""The deadline of rows with an unbounded window."""


@dataclass(frozen=True)
class Place:
    """Where and when a segment is written: the epoch, and the slot with its groups of the store's stage, in order."""

    files: Files
    epoch: int
    slot: SlotId
    groups: Sequence[Group]

    def write(
        self, rows: Rows, store: str, window_us: int | None, first_epoch: int | None = None, *, sample: bool = False
    ) -> Segment:
        """Write rows of one store as a segment."""
        cuts = rows.cuts(np.array([group.first for group in self.groups], dtype=np.uint64))
        counts = np.diff(cuts).tolist()
        parts = tuple(Part(g.prefix, g.depth, n) for g, n in zip(self.groups, counts, strict=True) if n)
        return replace(self._written(rows, store, window_us, first_epoch), parts=parts, sample=sample)

    def write_cells(
        self, rows: Rows, store: str, use: int, window_us: int | None, first_epoch: int | None = None
    ) -> Segment:
        """Write rows of cells, which have codes in the place of hashes, as a segment."""
        codes = rows.distinct_hashes()
        counts = np.diff(rows.cuts(codes)).tolist()
        cells = tuple(zip(codes.tolist(), counts, strict=True))
        return replace(self._written(rows, store, window_us, first_epoch), cells=cells, use=use)

    def write_unit(
        self, rows: Rows, store: str, use: int, window_us: int | None, first_epoch: int | None = None
    ) -> Segment:
        """Write rows that a unit of a biclique stores: they keep their hashes, and the slot is their only cell."""
        cells = ((self.slot, len(rows)),)
        return replace(self._written(rows, store, window_us, first_epoch), cells=cells, use=use)

    def _written(self, rows: Rows, store: str, window_us: int | None, first_epoch: int | None) -> Segment:
        name = f"{FOLDER}/{self.epoch:010d}-{self.slot}-{uuid.uuid4().hex}.arrow"
        table = whole(rows.table)
        with sealing(self.files, name) as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        oldest, newest = int(rows.times.min()), int(rows.times.max())
        return Segment(
            name=name,
            store=store,
            rows=len(rows),
            bytes=sink.size,
            oldest=oldest,
            newest=newest,
            deadline=_deadline(rows, newest, window_us),
            first_epoch=self.epoch if first_epoch is None else first_epoch,
            epoch=self.epoch,
            parts=(),
            checksum=sink.checksum,
        )


def _deadline(rows: Rows, newest: int, window_us: int | None) -> int:
    if rows.deadlines is not None:
        return int(rows.deadlines.max())
    return FOREVER if window_us is None else newest + window_us


def open_segment(files: Files, segment: Segment) -> Rows:
    """The rows of a segment, mapped into memory; one that is not what was written is refused."""
    check_seal(files, segment.name, segment.checksum, segment.bytes, run=files.run)
    return (
        kept_open(files.path(segment.name), lambda: _opened(files, segment))
        if files.is_local
        else _opened(files, segment)
    )


def _opened(files: Files, segment: Segment) -> Rows:
    try:
        table = _table(files, segment.name)
    except FileNotFoundError:
        raise DamagedState(files.path(segment.name), "this segment is missing") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedState(files.path(segment.name), f"this segment is damaged ({error})") from None
    if table.num_rows != segment.rows:
        raise DamagedState(
            files.path(segment.name), f"this segment holds {table.num_rows} rows, its manifest says {segment.rows}"
        )
    return Rows(_with_stored_names(whole(table), segment.store), f"{files.path(segment.name)} {segment.checksum}")


def _table(files: Files, name: str) -> pa.Table:
    """A copy without a checksum that cannot be opened is torn, maybe, and is fetched again."""
    try:
        return pa.ipc.open_file(files.map(name)).read_all()
    except pa.ArrowInvalid:
        if not files.forget(name):
            raise
        return pa.ipc.open_file(files.map(name)).read_all()


def _with_stored_names(table: pa.Table, store: str) -> pa.Table:
    """The table of a segment, with columns of users that were written before `stored_name` under that name."""
    own, old = (_OWN_OF_STREAM, _OLD_OF_STREAM) if _STREAM.match(store) else (_OWN_OF_RESULT, _OLD_OF_RESULT)
    names = [
        field.name if own.fullmatch(field.name) and _may_be_mark(field) else old.sub("\\1\x1f__", field.name, count=1)
        for field in table.schema
    ]
    return table if names == table.column_names else table.rename_columns(names)


_STREAM = re.compile(r"[\w+.]+\[")
"""How a store of a stream's rows is named, with tables or without; others hold intermediate results or summaries."""
_OWN_OF_STREAM = re.compile(f"{HASH}|{TIME}|{MASK}|{MARK}|{KEY}[0-9]+")
_OWN_OF_RESULT = re.compile(f"{HASH}|{TIME}|{MASK}|{MARK}|{DEADLINE}|__[gro]|{KEY}[0-9]+")
_OLD_OF_STREAM = re.compile(r"^()__")
_OLD_OF_RESULT = re.compile(r"^(\w+\.|[+<>](?:[a-z]+:)?(?:[0-9]+:)?|)__")
"""Names with a user's `__` in them: of a column, of a component's column, of what a summary holds of a column."""


def _may_be_mark(field: pa.Field) -> bool:
    return bool(field.name != MARK or pa.types.is_boolean(field.type))


def owned_ranges(rows: Rows, segment: Segment, groups: Sequence[Group]) -> list[tuple[int, int]]:
    """The ranges of rows that are live and belong to the groups (in the order of their addresses, of any stages)."""
    lows = [group.low for group in groups]
    own = [p for p in segment.parts if (at := bisect_right(lows, p.low)) and p.low <= groups[at - 1].high]
    begins = np.searchsorted(rows.hashes, np.array([part.first for part in own], dtype=np.uint64)).tolist()
    ends = np.searchsorted(rows.hashes, np.array([part.last for part in own], dtype=np.uint64), side="right").tolist()
    return _without_given(rows, segment, _joined(sorted(r for r in zip(begins, ends, strict=True) if r[1] > r[0])))


def rows_between(rows: Rows, segment: Segment, low: int, high: int) -> pa.Table:
    """The live rows of a segment with hashes from `low` to `high`, whatever parts they are in."""
    begin = int(np.searchsorted(rows.hashes, np.uint64(low)))
    end = int(np.searchsorted(rows.hashes, np.uint64(high), side="right"))
    ranges = _without_given(rows, segment, [(begin, end)] if begin < end else [])
    return pa.concat_tables([rows.table.slice(0, 0), *(rows.table.slice(a, b - a) for a, b in ranges)])


def copied(table: pa.Table) -> pa.Table:
    """A copy, so that the file it was mapped from can go: of many files mapped at once more pages count than are read.

    The system maps what lies around a page, too, so a few rows of each of a hundred segments take megabytes.
    """
    return take(table, np.arange(table.num_rows))


def owned_rows(rows: Rows, segment: Segment, groups: Sequence[Group]) -> Rows:
    """Only the rows that are live and belong to the groups; no copy when that is all of them."""
    ranges = owned_ranges(rows, segment, groups)
    if ranges == [(0, len(rows))]:
        return rows
    slices = [rows.table.slice(begin, end - begin) for begin, end in ranges]
    return Rows(joined(slices) if slices else rows.table.slice(0, 0))


def owned_index(rows: Rows, index: I64, segment: Segment, groups: Sequence[Group]) -> I64:
    """Those of the rows at `index` that are live and belong to the groups."""
    ranges = owned_ranges(rows, segment, groups)
    if ranges == [(0, len(rows))] or not len(index):
        return index
    begins, ends = (np.array(side, dtype=np.int64) for side in zip(*ranges, strict=True)) if ranges else ((), ())
    at = np.searchsorted(begins, index, side="right") - 1
    return index[(at >= 0) & (index < np.asarray(ends)[np.maximum(at, 0)])] if ranges else index[:0]


def _without_given(rows: Rows, segment: Segment, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges without the rows of keys that cells have taken over."""
    given = np.array(segment.given, dtype=np.uint64)
    gaps = zip(np.searchsorted(rows.hashes, given), np.searchsorted(rows.hashes, given, side="right"), strict=True)
    for first, last in ((int(first), int(last)) for first, last in gaps):
        cut = (piece for begin, end in ranges for piece in ((begin, min(end, first)), (max(begin, last), end)))
        ranges = [(begin, end) for begin, end in cut if begin < end] if first < last else ranges
    return ranges


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in ranges:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined
