"""Between Arrow columns and NumPy arrays: how numbers, complex numbers and vectors look in a table.

A real vector is a list of numbers. A complex number, which neither Arrow nor Parquet has, is read from any of

    struct<re, im>                                              x.re, x.im
    two columns x_re and x_im                                   (numbers only)
    a list of such structs                                      a vector
    a list of twice as many numbers, re and im in turn          a vector
    binary, raw little-endian float64 or complex128             a vector of either kind, the fastest

and written as struct<re, im>, or a list of them. A NULL that is a real or complex number is NaN; a row with a NULL in
place of its time, a vector or anything else is left out and counted.

Cost: plain numbers and lists of them without a copy; structs and pairs of columns one copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.errors import InputError, RunError, nearest
from braidstream.functions.stream_types import Field, Kind, StreamType
from braidstream.functions.window_batch import I64, Array, WindowBatch

__all__ = ["check_columns", "infer_type", "needed_columns", "result_arrays", "result_schema", "to_batches"]

_RE, _IM = "re", "im"


def infer_type(name: str, schema: pa.Schema, time: str) -> StreamType:
    """The type of a stream from its columns; those that are no numbers, texts or vectors of numbers are left out."""
    names = set(schema.names)
    fields = [Field(time, Kind("timestamp"))]
    for column in schema:
        base = column.name.removesuffix("_re")
        if column.name != base and f"{base}_im" in names:
            fields.append(Field(base, Kind("complex")))
        elif column.name.endswith("_im") and f"{column.name.removesuffix('_im')}_re" in names:
            continue
        elif column.name != time and (kind := _kind_of(column.type)) is not None:
            fields.append(Field(column.name, kind))
    return StreamType(name, tuple(fields))


def check_columns(declared: StreamType, schema: pa.Schema, stream: str) -> None:
    """Refuse a stream that lacks a declared field, or has it in a form that cannot hold the kind."""
    for field in declared.values:
        present = [name for name in needed_columns(field, schema) if name in schema.names]
        if not present or (len(present) == 1 and present[0] != field.name):
            wrong = f"stream {stream!r} has no column {field.name!r} of its type {declared.name!r}"
            raise InputError(wrong, f"{field.name}: {field.kind}", nearest(field.name, schema.names))
        if len(present) == 1 and not _can_hold(field.kind, schema.field(present[0]).type):
            actual = schema.field(present[0]).type
            raise InputError(
                f"column {field.name!r} of stream {stream!r} is {actual}, its type {declared.name!r} says {field.kind}",
                _FORMS[field.kind.word if not field.kind.is_vector else f"vector of {field.kind.word}"],
                "correct the type, or cast the column",
            )


def needed_columns(field: Field, schema: pa.Schema) -> list[str]:
    """The columns that a field is read from."""
    if field.name not in schema.names and not field.kind.is_vector and np.dtype(field.kind.dtype).kind == "c":
        return [f"{field.name}_{_RE}", f"{field.name}_{_IM}"]
    return [field.name]


def to_batches(table: pa.Table, declared: StreamType, time: str) -> tuple[list[WindowBatch], int]:
    """The rows of a table in their order, as batches of one shape each; and how many rows were left out."""
    columns = {field.name: needed_columns(field, table.schema) for field in declared.values}
    table = table.select(list(dict.fromkeys([time, *(name for names in columns.values() for name in names)])))
    filled = [f.name for f in declared.values if f.kind.is_vector or f.kind.word in ("int", "bool", "text")]
    whole = _without_nulls(table, [time, *filled])
    n_left_out = table.num_rows - whole.num_rows
    if not whole.num_rows:
        return [], n_left_out
    fields: dict[str, tuple[Array, I64 | None]] = {}
    for field in declared.values:
        given = [whole.column(name).combine_chunks() for name in columns[field.name]]
        fields[field.name] = (
            _vectors(given[0], field.kind) if field.kind.is_vector else (_scalars(given, field.kind), None)
        )
    times = _times(whole.column(time))
    return _cut(times, fields), n_left_out


def result_schema(gives: StreamType, time: str, time_type: pa.DataType) -> pa.Schema:
    """The columns of results: time stamp and number of the window, then the function's fields."""
    fields = [pa.field(time, time_type), pa.field("seq", pa.int64())]
    return pa.schema([*fields, *(pa.field(field.name, _arrow_type(field.kind)) for field in gives.values)])


def result_arrays(batch: WindowBatch, gives: StreamType, time_type: pa.DataType) -> list[pa.Array]:
    """The columns of a batch of results."""
    own = [pa.array(batch.ts).cast(time_type), pa.array(batch.seq)]
    return [*own, *(_to_arrow(batch[field.name], field.kind) for field in gives.values)]


def _kind_of(kind: pa.DataType) -> Kind | None:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _kind_of(kind.value_type)
        return None if inner is None or inner.is_vector or inner.word in ("bool", "text") else Kind(inner.word, True)
    if pa.types.is_struct(kind):
        both = {kind.field(i).name for i in range(kind.num_fields)} == {_RE, _IM}
        return Kind("complex64" if both and kind.field(0).type == pa.float32() else "complex") if both else None
    if pa.types.is_floating(kind):
        return Kind("float32" if kind == pa.float32() else "float")
    if pa.types.is_integer(kind):
        return Kind("int")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Kind("text")
    return Kind("bool") if pa.types.is_boolean(kind) else None


def _can_hold(kind: Kind, actual: pa.DataType) -> bool:
    if kind.is_vector and (pa.types.is_binary(actual) or pa.types.is_large_binary(actual)):
        return True
    found = _kind_of(actual)
    if found is None or found.is_vector != kind.is_vector:
        return False
    is_complex = kind.word.startswith("complex")
    if is_complex and kind.is_vector and found.word in ("float", "float32"):
        return True
    order = ("int", "float32", "float") if not is_complex else ("complex64", "complex")
    if kind.word in order and found.word in order:
        return kind.word == found.word or kind.word in ("float", "float32", "complex", "complex64")
    return kind.word == found.word


_FORMS = {
    "int": "a whole number",
    "float": "a number",
    "float32": "a number",
    "complex": "struct<re, im>, or columns NAME_re and NAME_im",
    "complex64": "struct<re, im>, or columns NAME_re and NAME_im",
    "bool": "boolean",
    "text": "string",
    "vector of int": "array<bigint>, or binary",
    "vector of float": "array<double>, or binary",
    "vector of float32": "array<float>, or binary",
    "vector of complex": "array<struct<re, im>>, array<double> with re and im in turn, or binary",
    "vector of complex64": "array<struct<re, im>>, array<float> with re and im in turn, or binary",
}


def _without_nulls(table: pa.Table, names: Sequence[str]) -> pa.Table:
    holes = [name for name in names if table.column(name).null_count]
    for name in holes:
        table = table.filter(pc.is_valid(table.column(name)))
    return table


def _times(column: pa.ChunkedArray) -> I64:
    micro = column.cast(pa.timestamp("us", column.type.tz)) if column.type.unit != "us" else column
    return np.asarray(micro.cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False))


def _scalars(columns: Sequence[pa.Array], kind: Kind) -> Array:
    if len(columns) == 2:
        return _complexes(columns[0], columns[1], kind)
    column = columns[0]
    if pa.types.is_struct(column.type):
        return _complexes(_part(column, _RE), _part(column, _IM), kind)
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    return values.astype(kind.dtype, copy=False)


def _part(column: pa.Array, name: str) -> pa.Array:
    return column.flatten()[column.type.get_field_index(name)]


def _complexes(real: pa.Array, imaginary: pa.Array, kind: Kind) -> Array:
    out = np.empty(len(real), dtype=kind.dtype)
    out.real = real.to_numpy(zero_copy_only=False)
    out.imag = imaginary.to_numpy(zero_copy_only=False)
    return out


def _vectors(column: pa.Array, kind: Kind) -> tuple[Array, I64]:
    """All elements one after the other, and how many each row has."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return _raw_vectors(column, kind)
    lengths = np.asarray(pc.list_value_length(column).to_numpy(zero_copy_only=False)).astype(np.int64)
    values = column.flatten()
    if pa.types.is_struct(values.type):
        return _complexes(_part(values, _RE), _part(values, _IM), kind), lengths
    flat = np.asarray(values.to_numpy(zero_copy_only=False))
    if kind.word.startswith("complex"):
        return _paired(flat, kind), lengths // 2
    return flat.astype(kind.dtype, copy=False), lengths


def _raw_vectors(column: pa.Array, kind: Kind) -> tuple[Array, I64]:
    wide = pa.types.is_large_binary(column.type)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if wide else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    width = np.dtype(kind.dtype).itemsize
    lengths = np.diff(offsets)
    if (lengths % width).any():
        raise RunError(f"a vector has {lengths[lengths % width != 0][0]} bytes", f"a multiple of {width}: {kind.dtype}")
    data = column.buffers()[2]
    n_bytes = int(offsets[-1] - offsets[0])
    flat = np.frombuffer(data, np.uint8, n_bytes, int(offsets[0])) if n_bytes else np.empty(0, np.uint8)
    return flat.view(kind.dtype), lengths // width


def _paired(flat: Array, kind: Kind) -> Array:
    half = "float32" if kind.word == "complex64" else "float64"
    return np.ascontiguousarray(flat, dtype=half).view(kind.dtype)


def _cut(times: I64, fields: dict[str, tuple[Array, I64 | None]]) -> list[WindowBatch]:
    """Batches of rows whose vectors have the same lengths."""
    n = len(times)
    change = np.zeros(max(n - 1, 0), dtype=np.bool_)
    for _, lengths in fields.values():
        if lengths is not None:
            change |= lengths[1:] != lengths[:-1]
    edges = [0, *(np.flatnonzero(change) + 1).tolist(), n]
    seq = np.arange(n, dtype=np.int64)
    ends = {
        name: np.concatenate([[0], np.cumsum(lengths)]) for name, (_, lengths) in fields.items() if lengths is not None
    }
    found = []
    for begin, end in itertools.pairwise(edges):
        own: dict[str, Any] = {}
        for name, (values, lengths) in fields.items():
            if lengths is None:
                own[name] = values[begin:end]
            else:
                own[name] = values[ends[name][begin] : ends[name][end]].reshape(end - begin, int(lengths[begin]))
        found.append(WindowBatch(seq[begin:end], times[begin:end], own))
    return found


def _arrow_type(kind: Kind) -> pa.DataType:
    number = _ARROW.get(kind.word)
    return pa.list_(number) if kind.is_vector else number


_ARROW = {
    "int": pa.int64(),
    "float": pa.float64(),
    "float32": pa.float32(),
    "complex": pa.struct([(_RE, pa.float64()), (_IM, pa.float64())]),
    "complex64": pa.struct([(_RE, pa.float32()), (_IM, pa.float32())]),
    "bool": pa.bool_(),
    "text": pa.string(),
}


def _to_arrow(values: Array, kind: Kind) -> pa.Array:
    if kind.word == "text":
        return pa.array(values.astype(object).tolist(), pa.string())
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "c":
        halves = [pa.array(np.ascontiguousarray(part)) for part in (flat.real, flat.imag)]
        column = pa.StructArray.from_arrays(halves, fields=list(_ARROW[kind.word]))
    else:
        column = pa.array(flat)
    if not kind.is_vector:
        return column
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets), column, type=_arrow_type(kind))
