"""From queries to what runs: stores, branches and joins.

Queries over the same stream and key share a store, with the union of the columns they need and the longest window
(DHTJoin 3.2). The plan of a query whose outputs are plain columns is carried out by the slots alone; where a query has
expressions or predicates between streams, the slots put out the columns these need and Spark's SQL engine finishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from braidstream.errors import StreamError
from braidstream.kernels.hashing import INJECTIVE, hashable
from braidstream.kernels.plan import Branch, Join, JoinInput, OutputColumn, Store
from braidstream.query import Query
from braidstream.spark.sources import DIRECT_OPTIONS, Stream

__all__ = ["Plan", "arrow_schema", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """What runs for a set of queries."""

    stores: tuple[Store, ...]
    branches: tuple[Branch, ...]
    joins: tuple[Join, ...]
    direct: Mapping[str, Mapping[int, Sequence[tuple[str, pa.DataType]]]]
    """For each stream that is read directly: the key columns and their types, by store."""
    finished: Mapping[str, bool]
    """For each query whether the slots' output is its result, or Spark still has to finish it."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which columns are stored: time zones in UTC, 32-bit offsets."""
    return to_arrow_schema(schema, timezone="UTC")


def make_plan(streams: Mapping[str, Stream], queries: Sequence[Query], late: Mapping[str, bool]) -> Plan:
    """Plan a set of queries. `late` says for which streams late tuples are wanted as rows."""
    stores: dict[tuple[str, tuple[str, ...]], Store] = {}
    uses: list[tuple[Query, list[tuple[tuple[str, tuple[str, ...]], int | None, str | None]]]] = []
    for query in queries:
        entries = []
        classes = sorted(query.key_classes, key=lambda c: sorted((query.input(a).stream, e) for a, e in c.members))
        for entry in query.inputs:
            members = [(c.expression(entry.alias), c.type) for c in classes]
            key = tuple(f"CAST({expression} AS {kind})" for expression, kind in members)
            kinds = [kind for _, kind in members]
            known = stores.get((entry.stream, key)) or _new_store(len(stores), entry.stream, key, kinds)
            stores[entry.stream, key] = _with_use(known, entry.columns, entry.window_us, entry.filter, streams)
            entries.append(((entry.stream, key), entry.window_us, entry.filter))
        uses.append((query, entries))
    made = {address: _settled(store) for address, store in stores.items()}
    joins = tuple(_join(query, entries, made, streams) for query, entries in uses)
    branches = tuple(
        Branch(
            index,
            name,
            tuple(store for store in made.values() if store.stream == name),
            tuple(streams[name].schema.names) if late.get(name) else (),
        )
        for index, name in enumerate(dict.fromkeys(store.stream for store in made.values()))
    )
    direct = {b.stream: keys for b in branches if (keys := _direct_keys(streams[b.stream], b)) is not None}
    return Plan(tuple(made.values()), branches, joins, direct, {query.name: _is_plain(query) for query in queries})


def finish(query: Query, raw: DataFrame) -> DataFrame:
    """The result of a query from the columns that the slots put out: predicates and expressions by Spark."""
    structs = [
        F.struct(*(F.col(f"`{entry.alias}.{name}`").alias(name) for name in entry.columns) or F.lit(1)).alias(entry.alias)
        for entry in query.inputs
    ]
    frame = raw.select(*structs)
    for predicate in query.residual:
        frame = frame.where(predicate)
    return frame.select(*(F.expr(output.sql).alias(output.name) for output in query.outputs))


def _is_plain(query: Query) -> bool:
    return not query.residual and all(output.column is not None for output in query.outputs)


def _new_store(index: int, stream: str, key: tuple[str, ...], kinds: Sequence[str]) -> Store:
    verified = not (len(kinds) == 1 and kinds[0] in INJECTIVE)
    nested = ("array<", "struct<", "map<")
    compared = tuple(
        f"to_json(named_struct('k', {k}))" if kind.startswith(nested) else k for k, kind in zip(key, kinds, strict=True)
    )
    name = f"{stream}[{', '.join(key)}]"
    return Store(index, name, stream, key, compared, verified, (), takes_all=False, columns=(), window_us=-1)


def _with_use(
    store: Store, columns: Sequence[str], window_us: int | None, condition: str | None, streams: Mapping[str, Stream]
) -> Store:
    needed = {*store.columns, *columns}
    wider = None if window_us is None or store.window_us is None else max(store.window_us, window_us)
    filters = store.filters if condition is None or condition in store.filters else (*store.filters, condition)
    return replace(
        store,
        columns=tuple(name for name in streams[store.stream].schema.names if name in needed),
        window_us=wider,
        filters=filters,
        takes_all=store.takes_all or condition is None,
    )


def _settled(store: Store) -> Store:
    if len(store.filters) > 62:
        raise StreamError(f"stream {store.stream!r} has {len(store.filters)} filters on one key", "at most 62")
    return store


def _join(query: Query, entries: Sequence[tuple], made: Mapping, streams: Mapping[str, Stream]) -> Join:  # type: ignore[type-arg]
    inputs = []
    for address, window_us, condition in entries:
        store = made[address]
        bit = None if condition is None or not store.masked else store.filters.index(condition)
        inputs.append(JoinInput(store.index, window_us, bit))
    place = {entry.alias: i for i, entry in enumerate(query.inputs)}
    if _is_plain(query):
        outputs = [OutputColumn(out.name, place[out.column[0]], out.column[1]) for out in query.outputs if out.column]
    else:
        outputs = [
            OutputColumn(f"{entry.alias}.{name}", place[entry.alias], name)
            for entry in query.inputs
            for name in entry.columns
        ]
    fields = []
    for out in outputs:
        schema = arrow_schema(streams[query.inputs[out.input].stream].schema)
        fields.append(schema.field(out.column).with_name(out.name).with_nullable(True))
    return Join(query.name, tuple(inputs), tuple(outputs), pa.schema(fields))


def _direct_keys(stream: Stream, branch: Branch) -> Mapping[int, Sequence[tuple[str, pa.DataType]]] | None:
    """The key columns by store when the stream can be read directly, else None."""
    source = stream.files
    if source is None or not {option.lower() for option in source.options} <= DIRECT_OPTIONS:
        return None
    if any(store.filters for store in branch.stores):
        return None
    schema = arrow_schema(stream.schema)
    columns = {f"`{name}`": name for name in stream.schema.names}
    keys: dict[int, list[tuple[str, pa.DataType]]] = {}
    for store in branch.stores:
        keys[store.index] = []
        for key in store.key:
            expression, _, kind = key.removeprefix("CAST(").removesuffix(")").rpartition(" AS ")
            name = columns.get(expression)
            target = _ARROW.get(kind)
            if name is None or target is None or not hashable(schema.field(name).type):
                return None
            if schema.field(name).type != target and not _widens(schema.field(name).type, target):
                return None
            keys[store.index].append((name, target))
    return keys


def _widens(kind: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and pa.types.is_integer(target) and kind.bit_width <= target.bit_width)


_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
