"""`WindowBatch`: many windows of one shape, as NumPy arrays. What user code sees, and what nodes send to each other.

Every field is an array whose first axis is the window: a number a window is (n,), a vector a window (n, size). Fields
may be stride views into the stream, so windows that overlap cost no copy until they are sent. They are not writable.

`seq` is the window's number in its stream: the order of the stream, always, also where time stamps are equal.

Packing is Arrow IPC with one fixed-width binary column a field: one copy to pack, none to unpack. Invariant:
unpack(pack(b)) equals b. Windows of different shapes cannot share a batch: a stream is a list of them (`ordered`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Window", "WindowBatch", "ordered", "pack", "pieces", "unpack"]

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]
_OWN = ("seq", "ts", "attempts")


@dataclass(frozen=True)
class WindowBatch:
    """Windows of one shape. `batch["x"]` gives a field of all of them."""

    seq: I64
    ts: I64
    """Time stamps, in microseconds."""
    fields: Mapping[str, Array] = field(default_factory=dict)
    attempts: I64 | None = None
    """How often each window was answered with "later" before; None when never."""

    def __len__(self) -> int:
        return len(self.seq)

    def __getitem__(self, name: str) -> Array:
        return self.fields[name]

    def __iter__(self) -> Iterator[Window]:
        return (self.window(i) for i in range(len(self)))

    @property
    def times(self) -> npt.NDArray[np.datetime64]:
        """The time stamps as NumPy's datetimes (UTC)."""
        return self.ts.view("datetime64[us]")

    @property
    def nbytes(self) -> int:
        """The size of the windows' contents, as if they shared nothing."""
        return sum(int(np.prod(a.shape)) * a.itemsize for a in self.fields.values()) + 16 * len(self)

    @property
    def shape(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of the fields of one window: what batches must share to be put together."""
        return tuple((name, a.shape[1:]) for name, a in self.fields.items())

    def offered(self) -> I64:
        """How often each window was offered to the function before."""
        return np.zeros(len(self), dtype=np.int64) if self.attempts is None else self.attempts

    def window(self, i: int) -> Window:
        """One window."""
        return Window(
            int(self.seq[i]), int(self.ts[i]), {n: a[i] for n, a in self.fields.items()}, int(self.offered()[i])
        )

    def take(self, index: Any) -> WindowBatch:
        """Some of the windows: a slice (without a copy), a mask, or positions."""
        attempts = None if self.attempts is None else self.attempts[index]
        return WindowBatch(self.seq[index], self.ts[index], {n: a[index] for n, a in self.fields.items()}, attempts)

    def with_fields(self, fields: Mapping[str, Array]) -> WindowBatch:
        """The same windows with other contents."""
        return WindowBatch(self.seq, self.ts, fields, self.attempts)


@dataclass(frozen=True)
class Window:
    """One window: `window["x"]` is its vector x."""

    seq: int
    ts: int
    fields: Mapping[str, Array]
    attempts: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def time(self) -> np.datetime64:
        """The time stamp as NumPy's datetime (UTC)."""
        return np.datetime64(self.ts, "us")


def pieces(batch: WindowBatch, most_bytes: int) -> Iterator[WindowBatch]:
    """The batch in runs of at most `most_bytes` (but at least one window each)."""
    if not len(batch):
        return
    at_once = max(most_bytes // max(batch.nbytes // len(batch), 1), 1)
    for begin in range(0, len(batch), at_once):
        yield batch.take(slice(begin, begin + at_once))


def ordered(batches: Sequence[WindowBatch]) -> list[WindowBatch]:
    """The windows of all batches in the order of their numbers, as few batches as their shapes allow."""
    filled = [batch for batch in batches if len(batch)]
    if not filled:
        return []
    if len(filled) == 1 and _is_rising(filled[0].seq):
        return filled
    seq = np.concatenate([batch.seq for batch in filled])
    rank = np.empty(len(seq), dtype=np.int64)
    rank[np.argsort(seq, kind="stable")] = np.arange(len(seq))
    ends = np.cumsum([len(batch) for batch in filled])
    ranks = np.split(rank, ends[:-1])
    if len({batch.shape for batch in filled}) == 1:
        return [_scattered(filled, ranks, len(seq))]
    return _by_runs(filled, ranks, len(seq))


def _is_rising(values: I64) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _scattered(batches: Sequence[WindowBatch], ranks: Sequence[I64], n: int) -> WindowBatch:
    """Each batch's windows at their places: one copy."""

    def put(arrays: Sequence[Array]) -> Array:
        out = np.empty((n, *arrays[0].shape[1:]), dtype=np.result_type(*arrays))
        for array, at in zip(arrays, ranks, strict=True):
            out[at] = array
        return out

    fields = {name: put([batch.fields[name] for batch in batches]) for name in batches[0].fields}
    tried = None
    if any(batch.attempts is not None for batch in batches):
        tried = put([batch.offered() for batch in batches])
    return WindowBatch(put([b.seq for b in batches]), put([b.ts for b in batches]), fields, tried)


def _by_runs(batches: Sequence[WindowBatch], ranks: Sequence[I64], n: int) -> list[WindowBatch]:
    """Windows of different shapes: a batch for each run of windows of one shape."""
    shapes = {batch.shape: i for i, batch in enumerate(batches)}
    shape_at = np.empty(n, dtype=np.int64)
    for batch, rank in zip(batches, ranks, strict=True):
        shape_at[rank] = shapes[batch.shape]
    cuts = [0, *(np.flatnonzero(np.diff(shape_at)) + 1).tolist(), n]
    found = []
    for begin, end in itertools.pairwise(cuts):
        parts, places = [], []
        for batch, rank in zip(batches, ranks, strict=True):
            inside = (rank >= begin) & (rank < end)
            if inside.any():
                parts.append(batch.take(inside))
                places.append(rank[inside] - begin)
        found.append(_scattered(parts, places, end - begin))
    return found


def pack(batch: WindowBatch) -> pa.Buffer:
    """A batch as bytes."""
    names, columns, forms = list(_OWN), [pa.array(batch.seq), pa.array(batch.ts), pa.array(batch.offered())], {}
    for name, array in batch.fields.items():
        forms[name] = [array.dtype.str, list(array.shape[1:])]
        names.append(f"={name}")
        columns.append(_fixed_width(array))
    schema = pa.schema(
        [(n, c.type) for n, c in zip(names, columns, strict=True)], metadata={"forms": json.dumps(forms)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def unpack(blob: pa.Buffer | bytes) -> WindowBatch:
    """A batch from its bytes, without a copy."""
    with pa.ipc.open_stream(blob) as reader:
        rows = reader.read_next_batch()
    forms = json.loads(rows.schema.metadata[b"forms"])
    own = [np.asarray(rows.column(name).to_numpy()) for name in _OWN]
    fields = {name: _from_fixed_width(rows.column(f"={name}"), *form) for name, form in forms.items()}
    return WindowBatch(own[0], own[1], fields, own[2] if own[2].any() else None)


def _fixed_width(array: Array) -> pa.Array:
    dense = np.ascontiguousarray(array)
    width = dense.itemsize * int(np.prod(dense.shape[1:]))
    if width == 0 or not len(dense):
        return pa.nulls(len(dense))
    data = pa.py_buffer(dense.reshape(-1).view(np.uint8))
    return pa.Array.from_buffers(pa.binary(width), len(dense), [None, data])


def _from_fixed_width(column: pa.Array, dtype: str, shape: Sequence[int]) -> Array:
    kind = np.dtype(dtype)
    if pa.types.is_null(column.type):
        return np.empty((len(column), *shape), dtype=kind)
    width = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8, count=len(column) * width, offset=column.offset * width)
    return data.view(kind).reshape(len(column), *shape)
