"""The history of a flow: what the last thousands of epochs did, what was decided, and why the flow ended.

Entries are rows of one Arrow schema, an epoch each, beside marks of starts and ends. They stand in `history/` of the
checkpoint, in a ring of small Arrow IPC files named by the numbers of their first and last entry. A file never changes.
Many small files in a row are written again as one; what is older than the ring is long is deleted.

Invariant: no result depends on it. A lost entry is harmless, an epoch that comes again (after a rollback) replaces what
was said of it and of those after it, and a reader skips what it cannot read. Files are renamed into place through the
lease's gate, but not synced: a crash of the machine may cost the last ones.

Cost: an entry is written once, and again each time that small files are put together, at most `_FULL / _MANY` times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from braidstream.errors import LeaseLost
from braidstream.model.values import Json, of_numpy
from braidstream.state.files import Files

__all__ = [
    "EPOCHS",
    "FOLDER",
    "LISTS",
    "NO_WORDS",
    "Deciding",
    "Entry",
    "HeavyWords",
    "HistoryReader",
    "HistoryWriter",
    "Share",
    "Words",
    "leftovers",
    "read_history",
    "settled",
    "words_of",
]

FOLDER = "history"
EPOCHS = 4096
"""How many entries a ring has if nobody says otherwise."""
_MANY, _FULL = 32, 256
"""So many small files in a row are put together; one with so many entries is small no more."""

_NUMBER = "number"
_INT, _REAL = pa.int64(), pa.float64()
_SCALARS: Mapping[str, pa.DataType] = {
    _NUMBER: _INT, "kind": pa.string(), "at_us": _INT, "epoch": _INT, "step": _INT,
    "total_s": _REAL, "routing_s": _REAL, "exchange_s": _REAL, "join_s": _REAL, "store_s": _REAL, "deliver_s": _REAL,
    "commit_s": _REAL, "engine_s": _REAL, "spark_s": _REAL, "spare_s": _REAL,
    "state_rows": _INT, "state_bytes": _INT, "active_bytes": _INT, "pushed_bytes": _INT, "pushed_groups": _INT,
    "budget_bytes": _INT, "shed_bytes": _INT, "exchanged_bytes": _INT, "segments": _INT, "n_slots": _INT,
    "n_groups": _INT, "watermark": _INT, "peak_mb": _REAL,
}  # fmt: skip
_TEXTS, _WHOLE, _REALS = pa.list_(pa.string()), pa.list_(_INT), pa.list_(_REAL)
LISTS: Mapping[str, pa.DataType] = {
    "streams": _TEXTS, "stream_rows": _WHOLE, "stream_late": _WHOLE, "stream_newest": _WHOLE, "stream_delay": _WHOLE,
    "queries": _TEXTS, "query_matches": _WHOLE,
    "slots": _WHOLE, "slot_rows": _WHOLE, "slot_matches": _WHOLE, "slot_busy_s": _REALS, "slot_active": _WHOLE,
    "slot_cells": _WHOLE, "slot_pushed": _WHOLE,
    "group_ids": _WHOLE, "group_slots": _WHOLE, "group_stages": _WHOLE, "group_depths": _WHOLE,
    "loaded_groups": _WHOLE, "load_rows": _WHOLE, "load_matches": _WHOLE,
}  # fmt: skip
"""Columns with a list in each entry; those that begin alike are as long as each other."""
_LAYOUT = ("group_ids", "group_slots", "group_stages", "group_depths")
_LOADS = ("loaded_groups", "load_rows", "load_matches")
SCHEMA = pa.schema([*_SCALARS.items(), *LISTS.items(), ("told", pa.string())])

_ENCODER = msgspec.json.Encoder(enc_hook=of_numpy)
Numbers = npt.NDArray[Any] | Sequence[Any]


class Deciding(Struct, frozen=True, omit_defaults=True):
    """A decision, with the first of its instructions if it has many."""

    rule: str
    reason: str = ""
    refusal: str = ""
    instructions: tuple[Json, ...] = ()
    n_instructions: int = 0


class HeavyWords(Struct, frozen=True):
    """A heavy key and its grid."""

    key: str
    share: float
    counts: Mapping[str, int]
    dims: tuple[int, ...]
    slots: tuple[int, ...]


Share: TypeAlias = tuple[float, float, float]
"""How complete an answer is: estimate, low, high."""


class Words(Struct, frozen=True, omit_defaults=True):
    """What an entry says beside numbers. A later version may say more, which this one does not read."""

    decisions: tuple[Deciding, ...] = ()
    heavy: tuple[HeavyWords, ...] = ()
    complete: Mapping[str, Share] = {}
    """By query, of this epoch."""
    complete_so_far: Mapping[str, Share] = {}
    warnings: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    name: str = ""
    """Of the flow; this and the next are said by a start."""
    host: str = ""
    process: int = 0
    queries: Mapping[str, str] = {}
    replays: int | None = None
    """An epoch that was begun and not committed before."""
    took_over: bool = False
    came: Mapping[str, str] = {}
    went: tuple[str, ...] = ()
    how: str = ""
    """Of an end: "ended", "closed", "stopped" or "failed"."""
    cause: str = ""


NO_WORDS = Words()


def words_of(text: str | None) -> Words:
    """What an entry says."""
    return _DECODER.decode(text) if text else NO_WORDS


_DECODER = msgspec.json.Decoder(Words)


@dataclass(frozen=True)
class Entry:
    """An epoch (kind "epoch"), a start or an end of the flow, or a change of its queries."""

    kind: str
    at_us: int
    """Wall time."""
    epoch: int
    step: int = 0
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    """By column; what is not here is not known."""
    lists: Mapping[str, Numbers] = field(default_factory=dict)
    """Likewise. The layout of groups is here when it has changed."""
    told: Words = NO_WORDS
    """Decisions, heavy keys, warnings, why the flow ended."""


def table_of(entries: Sequence[Entry], first: int) -> pa.Table:
    """Entries as columns, numbered from `first`."""
    own = {one.name for one in fields(Entry)}
    columns = [pa.array(range(first, first + len(entries)), _INT)]
    for name, kind in list(_SCALARS.items())[1:]:
        values = [getattr(one, name) if name in own else one.numbers.get(name) for one in entries]
        columns.append(pa.array(values, kind, from_pandas=True))
    for name, kind in LISTS.items():
        columns.append(pa.array([one.lists.get(name) for one in entries], kind))
    columns.append(pa.array([_ENCODER.encode(one.told).decode() if one.told != NO_WORDS else None for one in entries]))
    return pa.Table.from_arrays([*columns[:-1], columns[-1].cast(pa.string())], schema=SCHEMA)


class HistoryWriter:
    """Adds to the ring of one checkpoint. One writes at a time: whoever holds the lease."""

    def __init__(self, files: Files, keep: int = EPOCHS) -> None:
        self._files, self._keep = files, keep
        self._known: dict[tuple[int, int], pa.Table | None] | None = None
        """The files that are there, by their first and last number, with what is in those that this process wrote."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries as a file; put small files together, and delete what the ring has no room for."""
        known = self._found()
        first = max((last for _, last in known), default=-1) + 1
        self._put((first, first + len(entries) - 1), table_of(entries, first))
        small = self._small()
        if len(small) >= _MANY:
            self._merge(small)
        self._retire()

    def _found(self) -> dict[tuple[int, int], pa.Table | None]:
        if self._known is None:
            self._files.make(FOLDER)
            self._known = dict.fromkeys(_spans(self._files))
        return self._known

    def _put(self, span: tuple[int, int], table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        self._files.note(_name(span), sink.getvalue().to_pybytes())
        self._found()[span] = table

    def _small(self) -> list[tuple[int, int]]:
        """The small files at the end, oldest first."""
        found: list[tuple[int, int]] = []
        for span in sorted(self._found(), reverse=True):
            if span[1] - span[0] + 1 >= _FULL:
                break
            found.append(span)
        return found[::-1]

    def _merge(self, spans: Sequence[tuple[int, int]]) -> None:
        known = self._found()
        tables = [table for span in spans if (table := self._table(span)) is not None]
        if tables:
            span = (spans[0][0], spans[-1][1])
            whole = _with_layout(_with_last_loads(pa.concat_tables(tables)), self._layout_before(spans[0]))
            self._put(span, whole)
            if whole.num_rows >= _FULL:
                known[span] = None  # nobody merges it again
        for one in spans:
            if one in known and (not tables or one != span):
                self._delete(one)

    def _table(self, span: tuple[int, int]) -> pa.Table | None:
        table = self._found()[span]
        return _read(self._files, span) if table is None else table

    def _layout_before(self, span: tuple[int, int]) -> pa.Table | None:
        """The last entry with a layout before a file."""
        for one in sorted((one for one in self._found() if one < span), reverse=True):
            table = self._table(one)
            if table is not None and (at := _filled(table, "group_ids")).size:
                return table.slice(int(at[-1]), 1)
        return None

    def _retire(self) -> None:
        spans = sorted(self._found())
        while len(spans) > 1 and spans[-1][1] - spans[0][1] >= self._keep:
            self._delete(spans.pop(0))

    def _delete(self, span: tuple[int, int]) -> None:
        del self._found()[span]
        self._files.delete(_name(span))


class HistoryReader:
    """Reads the ring of a checkpoint, of a flow that runs, here or elsewhere, or has ended. It changes nothing.

    Each look reads the files that are new. What the flow puts together was seen before, and is not read again.
    """

    def __init__(self, files: Files) -> None:
        self._files, self._seen = files, -1

    def news(self) -> pa.Table:
        """The entries since the last look, in the order in which they were written."""
        found = []
        for span in _spans(self._files):
            if span[1] > self._seen and (table := _read(self._files, span)) is not None:
                numbers = table.column(_NUMBER).to_numpy()
                found.append(table.filter(pa.array(numbers > self._seen)))
                self._seen = span[1]
        return pa.concat_tables(found) if found else SCHEMA.empty_table()


def read_history(files: Files) -> pa.Table:
    """All entries that hold: of an epoch that came again, only what was said last."""
    return settled(HistoryReader(files).news())


def settled(entries: pa.Table) -> pa.Table:
    """Without epochs at or after one that was written later: they were rolled back, or said again."""
    is_epoch = np.array([kind == "epoch" for kind in entries.column("kind").to_pylist()], dtype=np.bool_)
    places = entries.column("epoch").to_numpy() * (1 << 20) + entries.column("step").to_numpy()
    least = np.minimum.accumulate(np.where(is_epoch, places, np.iinfo(np.int64).max)[::-1])[::-1]
    after = np.append(least[1:], np.iinfo(np.int64).max)
    holds = ~is_epoch | (places < after)
    return entries if holds.all() else entries.filter(pa.array(holds))


def leftovers(files: Files) -> Iterator[str]:
    """Files that a lost process left: those that are in another one, and those on their way."""
    spans, names = set(_spans(files)), files.names(FOLDER)
    return (f"{FOLDER}/{name}" for name in names if _span(name) not in spans)


def _spans(files: Files) -> list[tuple[int, int]]:
    """The files of the ring, oldest first, without those whose entries are all in another one."""
    found = sorted({span for name in files.names(FOLDER) if (span := _span(name))}, key=lambda one: (one[0], -one[1]))
    kept: list[tuple[int, int]] = []
    for span in found:
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    return kept


def _span(name: str) -> tuple[int, int] | None:
    first, _, last = name.removesuffix(".arrow").partition("-")
    return (int(first), int(last)) if first.isdecimal() and last.isdecimal() else None


def _name(span: tuple[int, int]) -> str:
    return f"{FOLDER}/{span[0]:012d}-{span[1]:012d}.arrow"


def _read(files: Files, span: tuple[int, int]) -> pa.Table | None:
    """What a file has, in the columns that this version knows; None where it is gone or damaged."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(files.read(_name(span)))).read_all()
        n_rows = table.num_rows
        names = set(table.column_names)
        columns = [table.column(one.name) if one.name in names else pa.nulls(n_rows, one.type) for one in SCHEMA]
        return pa.table(columns, schema=SCHEMA)
    except (OSError, pa.ArrowException, LeaseLost):
        return None


def _filled(table: pa.Table, name: str) -> npt.NDArray[np.intp]:
    """The entries that have a list."""
    return np.flatnonzero(table.column(name).is_valid().to_numpy())


def _with_last_loads(table: pa.Table) -> pa.Table:
    """Of the loads of groups only the last are kept: they are for the present."""
    at = _filled(table, _LOADS[0])
    return _only(table, _LOADS, at[-1:].tolist()) if len(at) > 1 else table


def _with_layout(table: pa.Table, before: pa.Table | None) -> pa.Table:
    """A file that is on its own has the layout with its first entry."""
    if before is None or table.column(_LAYOUT[0])[0].is_valid:
        return table
    for name in _LAYOUT:
        values = pa.concat_arrays([before.column(name).combine_chunks(), table.column(name).combine_chunks().slice(1)])
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _only(table: pa.Table, names: Iterable[str], at: Sequence[int]) -> pa.Table:
    """With lists in some columns only at some entries."""
    for name in names:
        values = [table.column(name)[i].values if i in at else None for i in range(table.num_rows)]
        table = table.set_column(table.column_names.index(name), name, pa.array(values, LISTS[name]))
    return table
