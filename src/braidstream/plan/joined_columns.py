"""The columns of a plan's joins: under which names, what intermediate results carry along, and how far apart in time.

Invariant: names are the same wherever a column is stored, routed or put out. Cost: O(columns) for each query, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from braidstream.errors import QueryError
from braidstream.kernels.measures import AggregatePlan
from braidstream.kernels.rows import stored_name
from braidstream.model.stores import JoinGap, OutputColumn, Store
from braidstream.plan.direct_keys import ARROW_TYPES
from braidstream.plan.keys import hash_name, value_name
from braidstream.plan.retention import compared_columns
from braidstream.query import Query
from braidstream.query.tree import Leaf, Node

__all__ = [
    "arrow_type",
    "bit_of",
    "carried_classes",
    "carried_schema",
    "derived_name",
    "gaps_of",
    "is_plain",
    "refuse_equal_names",
    "stored_names",
    "summarized_stores",
    "within",
]


def stored_names(columns: Sequence[str]) -> tuple[str, ...]:
    """A stream's columns under the names that rows hold them by."""
    return tuple(stored_name(name) for name in columns)


def within(prefix: str, column: str) -> str:
    """A stored column of an input, or, with its alias in front, of the intermediate result that the input is in."""
    return stored_name(f"{prefix}{column}") if prefix else column


def gaps_of(query: Query, place: Mapping[str, tuple[int, str]]) -> tuple[JoinGap, ...]:
    """The query's gaps between streams that a join reads; of intermediate results it does not know the times."""
    at = {alias: number for alias, (number, prefix) in place.items() if not prefix}
    own = (gap for gap in query.gaps if gap.left in at and gap.right in at)
    return tuple(JoinGap(at[gap.left], at[gap.right], gap.low_us, gap.high_us) for gap in own)


def refuse_equal_names(query: Query, outputs: Sequence[OutputColumn]) -> None:
    """`a`.`b.c` and `a.b`.`c` would be one column where aliases and columns are put together."""
    names = [output.name for output in outputs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        wrong = f"query {query.name!r} has two columns that are called {twice!r} with their alias"
        raise QueryError(wrong, "aliases and columns that differ once put together", "use an alias without a dot")


def carried_classes(query: Query, tree: Node) -> dict[str, list[int]]:
    """For each input the classes whose hash and value it carries upwards for the intermediate results it is in."""
    carried: dict[str, list[int]] = {alias: [] for alias in query.aliases}
    for node in tree.nodes():
        for child in (node.left, node.right):
            if isinstance(child, Leaf):
                continue
            for c in node.classes:
                edge = query.join_edges[c]
                chosen = next(a for a in query.aliases if a in child.aliases and a in edge.aliases)
                if c not in carried[chosen]:
                    carried[chosen].append(c)
    return carried


def derived_name(query: Query, node: Node) -> str:
    """What an intermediate join, and the store of its results, is called."""
    return f"{query.name}:{''.join(str(node).split())}"


def carried_schema(query: Query, outputs: Sequence[OutputColumn], schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The types of an intermediate result's columns: what a LEFT JOIN found no match for has NULLs of these."""
    known = {
        within(f"{alias}.", name): kind
        for alias, schema in schemas.items()
        for name, kind in _carried_types(query, alias, schema)
    }
    return pa.schema([(out.name, known[out.name]) for out in outputs])


def _carried_types(query: Query, alias: str, schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """The stored columns of an input, and what is computed of them for matches and later exchanges."""
    yield from ((stored_name(field.name), field.type) for field in schema)
    for edge in (edge for edge in query.join_edges if alias in edge.aliases):
        yield hash_name(edge, alias), pa.int64()
        yield value_name(edge, alias), arrow_type(edge.type)
    for column in compared_columns(query, alias, schema):
        if column.computed is not None:
            yield column.name, arrow_type(column.type)


def arrow_type(kind: str) -> pa.DataType:
    """The type of a computed column; what is not known here takes that of other rows."""
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind.startswith(("array<", "struct<", "map<")):  # compared as text
        return pa.string()
    return pa.binary() if kind == "binary" else ARROW_TYPES.get(kind, pa.null())


def bit_of(store: Store, condition: str | None) -> int | None:
    """The bit of a filter on a store's rows; None where every row passes."""
    return None if condition is None or not store.masked else store.filters.index(condition)


def summarized_stores(aggregates: Sequence[AggregatePlan]) -> set[int]:
    """The stores whose rows aggregates summarize: they need all rows of a key in one slot."""
    return {entry.store for plan in aggregates for entry in plan.aggregation.inputs}


def is_plain(query: Query) -> bool:
    """Whether the results are columns of the streams as they are."""
    return not query.residual and all(output.column is not None for output in query.outputs)
