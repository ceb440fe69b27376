"""The branches of one stream that is read in several ways: as it is, and with tables.

Spark knows the sources of a streaming query by their number and order, so that a stream is read once, whatever tables
queries join to it and whoever comes and goes. Where one way is asked for, the stream's frame is joined with its tables.
Where there are several, every row is repeated for each (`explode`), a table is joined to the copies of its way alone,
and what routing needs is computed at once, so that the names of one way's columns are not in another's.

Invariant: a row of the stream is seen by each way as if it were the only one. Cost: a copy of the row for each way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from braidstream.query.model import Lookup
from braidstream.spark.joined_tables import enriched_frame
from braidstream.spark.names import column_of
from braidstream.spark.sources import Router, Stream, general_columns, general_frame
from braidstream.spark.tasks import ENVELOPE
from braidstream.spark.trying import Tries

__all__ = ["variants_frame"]

_WAY, _MADE = "__braidstream way", "__braidstream made"
_BYTES_AT_ONCE = 1 << 27

Way = tuple[Sequence[Lookup], Router]


def variants_frame(stream: Stream, ways: Sequence[Way], tables: Mapping[str, DataFrame], n_tasks: int) -> DataFrame:
    """The envelopes of a stream, read in each of the ways that some query needs."""
    used = [way for way in ways if way[1].branch.stores] or list(ways[:1])
    if len(used) == 1:
        ((lookups, router),) = used
        return general_frame(replace(stream, frame=enriched_frame(stream.frame, lookups, tables)), router, n_tasks)
    frame = stream.frame.withColumn(_WAY, F.explode(F.array(*map(F.lit, range(len(used))))))
    columns = frame.columns
    names: list[list[str]] = []
    for place, (lookups, router) in enumerate(used):
        needed = general_columns(stream.time, router.branch, router.keys)
        names.append(list(needed))
        own = F.struct(*(column.alias(f"c{i}") for i, column in enumerate(needed.values())))
        joined = enriched_frame(frame, [_only(lookup, place) for lookup in lookups], tables)
        joined = Tries(router.branch.tried).over(joined)
        made = F.when(column_of(_WAY) == place, own).alias(f"{_MADE} {place}")
        frame = joined.select(*(column_of(name) for name in columns), made)
        columns = frame.columns
    rows = [column_of(_WAY).alias("way"), *(_numbered(place) for place in range(len(used)))]
    routers = [router for _, router in used]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[list[pa.Table]] = [[] for _ in routers]
        size = 0
        for batch in batches:
            for place, own in enumerate(waiting):
                own.append(_rows_of(batch, place, names[place]))
            size += batch.nbytes
            if size >= _BYTES_AT_ONCE:
                yield from _routed(routers, waiting)
                waiting, size = [[] for _ in routers], 0
        yield from _routed(routers, waiting)

    return frame.select(*rows).coalesce(n_tasks).mapInArrow(run, ENVELOPE)


def _only(lookup: Lookup, place: int) -> Lookup:
    """The table joined to the copies of one way."""
    return replace(lookup, condition=f"`{_WAY}` = {place} AND {lookup.condition}")


def _numbered(place: int) -> Column:
    return column_of(f"{_MADE} {place}").alias(f"made{place}")


def _rows_of(batch: pa.RecordBatch, place: int, names: Sequence[str]) -> pa.Table:
    """The copies of one way in a batch, as routing takes them."""
    own = batch.filter(pc.equal(batch.column("way"), place)).column(f"made{place}")
    return pa.table(own.flatten(), names=names)


def _routed(routers: Sequence[Router], waiting: Sequence[Sequence[pa.Table]]) -> Iterator[pa.RecordBatch]:
    for router, tables in zip(routers, waiting, strict=True):
        yield from router.envelopes(router.cast(table) for table in tables)
