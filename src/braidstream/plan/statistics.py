"""What the planner knows of streams when it chooses the tree of a type-2 query: rates and selectivities.

*Sampled*, before the first epoch, where that is cheap: of a stream of Parquet files, the number of rows and the span of
times in the footers of a few files, and how often keys repeat in some thousand rows. *Measured*, once the flow runs:
the manifest remembers rates (`control.rates`) and the matches that a probe of each input gives (`control.probing`), so
a query that is submitted later is planned from them. What is not known counts the same for all streams.

The number of distinct keys stands for a selectivity: the inverse of the chance that two tuples have the same key, which
skew makes smaller than the number of different keys.

A tree that has state is kept, since stored rows and intermediate results are indexed for it; `better_trees` says where
the measured figures would choose another. Cost: a few footers a stream, once; O(joins) at a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braidstream.control.rates import rates_of
from braidstream.plan.footers import footer_times
from braidstream.plan.shapes import StreamShape
from braidstream.query import Query
from braidstream.query.tree import Leaf, Node, Statistics, estimated, plan_tree
from braidstream.state.manifest import Manifest

__all__ = ["better_trees", "known_statistics", "measured_statistics", "sampled_statistics"]

_FILES = 4
_ROWS = 20_000
MUCH_BETTER = 0.5
"""Another tree is worth a word when it makes at most this share of the intermediate results."""


def known_statistics(
    manifest: Manifest | None,
    streams: Mapping[str, StreamShape],
    queries: Sequence[Query],
    trees: Mapping[str, Node],
) -> Statistics:
    """What trees are chosen from: a sample before the first epoch, then what was measured."""
    if manifest is None or manifest.epoch < 0:
        return sampled_statistics(streams, queries)
    if manifest.notes.trees is None:  # written before trees were remembered: they were chosen from nothing
        return Statistics()
    return measured_statistics(manifest, queries, trees)


def sampled_statistics(streams: Mapping[str, StreamShape], queries: Sequence[Query]) -> Statistics:
    """From a few files of each stream that a type-2 query reads; what cannot be read is not known."""
    wanted: dict[str, set[str]] = {}
    for query in (query for query in queries if query.type == 2):
        for alias, expression in (member for edge in query.join_edges for member in edge.members):
            wanted.setdefault(query.input(alias).stream, set()).add(expression)
    rates: dict[str, float] = {}
    distinct: dict[tuple[str, str], float] = {}
    for name, expressions in wanted.items():
        files = list(_files(streams[name]))
        if (rate := _rate(files, streams[name].time)) is not None:
            rates[name] = rate
        columns = {expression: expression.strip("`") for expression in expressions}
        for expression, values in _values(files, columns).items():
            distinct[name, expression] = _distinct(values)
    return Statistics(rates, distinct)


def measured_statistics(manifest: Manifest, queries: Sequence[Query], trees: Mapping[str, Node]) -> Statistics:
    """From what the manifest remembers of the epochs so far."""
    rates = rates_of(manifest.notes.rates)
    distinct: dict[tuple[str, str], float] = {}
    for query in queries:
        for join, place, alias, classes in _probed(query, trees.get(query.name)):
            fanout = manifest.notes.fanouts.get(join, {}).get(place)
            entry = query.input(alias)
            if fanout is None or len(classes) != 1 or entry.stream not in rates:
                continue
            rows = manifest.totals.get(f"{entry.stream}.rows", 0)
            live = rows if entry.window_us is None else min(rows, rates[entry.stream] * entry.window_us / 1e6)
            for member, expression in classes[0].members:
                address = (query.input(member).stream, expression)
                # Probes of stored and of new rows are counted apart, so estimates are too high: the least is nearest.
                estimate = max(live / max(fanout, 1e-6), 1.0)
                distinct[address] = min(distinct.get(address, estimate), estimate)
    return Statistics(rates, distinct)


def better_trees(
    queries: Sequence[Query], trees: Mapping[str, Node], statistics: Statistics
) -> dict[str, tuple[Node, float]]:
    """For each query that another tree would suit much better: that tree, and its share of intermediate results."""
    found: dict[str, tuple[Node, float]] = {}
    for query in (query for query in queries if query.name in trees and statistics.rates):
        best, now = plan_tree(query, statistics), trees[query.name]
        cost = estimated(query, now, statistics)
        if cost and (share := estimated(query, best, statistics) / cost) <= MUCH_BETTER:
            found[query.name] = (best, share)
    return found


def _probed(query: Query, tree: Node | None) -> Iterator[tuple[str, int, str, list[Any]]]:
    """For each input that is probed itself: the join, its place there, its alias, and the classes it is probed by."""
    if tree is None:
        for place, alias in enumerate(query.aliases):
            yield query.name, place, alias, list(query.key_classes)
        return
    for node in tree.nodes():
        join = query.name if node.aliases == tree.aliases else f"{query.name}:{''.join(str(node).split())}"
        join = f"{join}:composites" if join == query.name and query.is_aggregate else join
        for place, side in enumerate((node.left, node.right)):
            if isinstance(side, Leaf):
                yield join, place, side.alias, [query.join_edges[c] for c in node.classes]


def _files(stream: StreamShape) -> Iterator[pq.ParquetFile]:
    if stream.folder is None or not Path(stream.folder).is_dir():
        return
    for path in islice(sorted(Path(stream.folder).glob("*.parquet")), _FILES):
        with suppress(OSError, pa.ArrowException):  # reading it for the join will say what is wrong with it
            yield pq.ParquetFile(path)


def _rate(files: Sequence[pq.ParquetFile], time: str) -> float | None:
    """Rows a second of event time, by the statistics in the footers."""
    found = [times for file in files if (times := footer_times(file.metadata, time)) is not None]
    told = [times for times in found if times.oldest <= times.newest]
    seconds = (max(t.newest for t in told) - min(t.oldest for t in told)) / 1e6 if told else 0
    rows = sum(file.metadata.num_rows for file in files)
    return rows / seconds if rows and seconds and len(told) == len(found) else None


def _values(files: Sequence[pq.ParquetFile], columns: Mapping[str, str]) -> dict[str, pa.Array]:
    """Some thousand values of each key that is a plain column."""
    found: dict[str, pa.Array] = {}
    for file in files[:1]:
        plain = {expression: name for expression, name in columns.items() if name in file.schema_arrow.names}
        batch = next(file.iter_batches(_ROWS, columns=list(plain.values())), None) if plain else None
        found = {} if batch is None else {expression: batch.column(name) for expression, name in plain.items()}
    return found


def _distinct(values: pa.Array) -> float:
    """The inverse of the chance that two rows have the same key, from the pairs in the sample that do."""
    counts = pc.value_counts(values.drop_null()).field("counts").to_numpy(zero_copy_only=False)
    n = int(counts.sum())
    pairs = float((counts * (counts - 1)).sum())
    return n * (n - 1) / max(pairs, 1.0) if n > 1 else 1.0
