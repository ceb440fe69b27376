"""`braidstream.similar`: vectors of two streams (or of one) that are within a distance of each other.

    braidstream.similar(photos, None, vector="histogram", id="photo", radius=0.1, within="1 hour").to("memory")

Every row is repeated once for each band of a locality-sensitive hash (`kernels.lsh`), the bands' buckets are the join
key, and the engine joins them like any other streams: windows, exactly-once and grids for crowded buckets included.
What shares a bucket is only a candidate; Spark's SQL engine computes the distance of each and keeps those within
`radius`. Pairs beyond it are never in the result; of those within it the hash may miss some, at most one in ten with
the default `near`.

A pair that shares the buckets of several bands is found in each of them and is a result once: both rows carry the
buckets of all bands, and only the first band in which they agree counts. That needs no memory of what was given out.

Cost: `bands` times the rows through the exchange and in state; for each candidate pair both vectors are staged and a
distance is computed. So the candidates decide: a smaller `ratio` means fewer of them, and more bands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, IntegerType, LongType, NumericType, StructField, StructType

from braidstream.arguments import checked_arguments
from braidstream.errors import InputError, StreamError, nearest
from braidstream.kernels.lsh import Lsh
from braidstream.kernels.sizes import BATCH_BYTES, cuts, table_bytes
from braidstream.query import join as build_join
from braidstream.query.types import quote_name
from braidstream.spark.declared import check_count
from braidstream.spark.flow import Flow
from braidstream.spark.oneliner import Joined, only_time, session_of

__all__ = ["bucketed", "similar", "similar_in_batch"]

BAND, BUCKET, BUCKETS = "lsh_band", "lsh_bucket", "lsh_buckets"
_ADDED = (BAND, BUCKET, BUCKETS)


@checked_arguments(
    "similar",
    {
        "vector": 'name the array column: vector="histogram"',
        "radius": "say how near: radius=0.1",
        "dimensions": "say how long the vectors are: dimensions=64",
        "within": 'say how far apart in time: within="1 hour", or None for unbounded',
        "right": "give another stream, or None to join the stream with itself",
    },
)
def similar(
    left: DataFrame,
    right: DataFrame | None,
    *,
    vector: str,
    radius: float,
    dimensions: int,
    within: str | timedelta | None,
    id: str | None = None,  # noqa: A002  (what users call it)
    time: str | None = None,
    delay: str | timedelta = "0 seconds",
    near: float = 0.9,
    far: float = 0.1,
    ratio: float = 10.0,
    seed: int = 1,
    name: str = "similar",
    slots: int | None = None,
    groups: int | None = None,
    controller: bool = True,
) -> Joined:
    """Join two streaming DataFrames where the Euclidean distance of their vectors is at most `radius`.

    `vector` is an array column of `dimensions` numbers that both sides have. With `right=None` the stream is joined
    with itself, and `id`, a column with a different value in each row, leaves each pair once, the smaller id first.
    Results have the columns of both sides as `left_...` and `right_...`, and `distance`. (`radius`, `ratio` radius,
    `near`, `far`) is how sensitive the hash is: a pair within the radius is found with a probability of `near` or more.
    With `controller=False` groups stay where they are.
    """
    if right is None and id is None:
        raise InputError(
            "a stream is joined with itself without an id", "id=...", "name a column that tells rows apart"
        )
    session = session_of(left, left if right is None else right)
    check_count("dimensions", dimensions, 1, 1 << 20)
    for word, value in (("radius", radius), ("near", near), ("far", far), ("ratio", ratio)):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise InputError(f"{word} is {value!r}", "a number", "radius=0.1")
    lsh = Lsh.sensitive(dimensions, radius, ratio=ratio, near=near, far=far, seed=seed)
    flow = Flow(session, name, slots=slots, groups=groups, controller=controller)
    frames = {"left": left, "right": left if right is None else right}
    for side, frame in frames.items():
        _check(side, frame, vector, id)
        flow.stream(side, bucketed(frame, vector, lsh), time=time or only_time(side, frame), delay=delay)
    builder = build_join("left", "right").window(left=within, right=within).on(left=BUCKET, right=BUCKET)
    for condition in _conditions("left", "right", vector, radius, id if right is None else None):
        builder = builder.where(condition)
    distance = f"{_distance('left', 'right', vector)} AS distance"
    return Joined(flow, builder.select(*_columns(frames), distance).cql)


def similar_in_batch(
    left: DataFrame,
    right: DataFrame | None,
    *,
    vector: str,
    radius: float,
    lsh: Lsh,
    id: str | None = None,  # noqa: A002
) -> DataFrame:
    """The same pairs of two batch DataFrames, by Spark's own join: for data at rest."""
    frames = {"left": left, "right": left if right is None else right}
    for side, frame in frames.items():
        _check(side, frame, vector, id)
    joined = bucketed(frames["left"], vector, lsh).alias("left")
    other = bucketed(frames["right"], vector, lsh).alias("right")
    joined = joined.join(other, F.expr(f"left.{BUCKET} = right.{BUCKET}"))
    for condition in _conditions("left", "right", vector, radius, id if right is None else None):
        joined = joined.where(condition)
    distance = f"{_distance('left', 'right', vector)} AS distance"
    return joined.selectExpr(*_columns(frames), distance)


def bucketed(frame: DataFrame, vector: str, lsh: Lsh) -> DataFrame:
    """Each row once for each band, with the band, its bucket, and the buckets of all bands. Rows without vector go."""
    added = [
        StructField(BAND, IntegerType(), False),
        StructField(BUCKET, LongType(), False),
        StructField(BUCKETS, ArrayType(LongType(), False), False),
    ]
    return frame.mapInArrow(_bucketing(vector, lsh), StructType([*frame.schema.fields, *added]))


def _bucketing(vector: str, lsh: Lsh) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = batch.filter(batch.column(vector).is_valid())
            each = table_bytes(pa.Table.from_batches([known])) * lsh.bands
            for begin, end in cuts(each, BATCH_BYTES):
                piece = known.slice(begin, end - begin)
                yield _with_buckets(piece, lsh.buckets(_matrix(piece.column(vector), lsh.dimensions)))

    return run


def _matrix(column: pa.ListArray, dimensions: int) -> npt.NDArray[np.float64]:
    """The vectors as rows of a matrix."""
    lengths = np.diff(column.offsets.to_numpy())
    if not (lengths == dimensions).all() or column.flatten().null_count:
        wrong = next((int(n) for n in lengths if n != dimensions), dimensions)
        raise InputError(
            f"a vector has {wrong} numbers" if wrong != dimensions else "a vector has a NULL",
            f"{dimensions} numbers in every vector",
            "filter such rows out, or set dimensions",
        )
    flat = column.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float64).reshape(-1, dimensions)


def _with_buckets(batch: pa.RecordBatch, buckets: npt.NDArray[np.int64]) -> pa.RecordBatch:
    n, bands = buckets.shape
    repeated = batch.take(pa.array(np.repeat(np.arange(n), bands)))
    offsets = np.arange(n * bands + 1, dtype=np.int32) * bands
    every = pa.ListArray.from_arrays(offsets, np.repeat(buckets, bands, axis=0).ravel())
    columns = [pa.array(np.tile(np.arange(bands, dtype=np.int32), n)), pa.array(buckets.ravel()), every]
    return pa.RecordBatch.from_arrays([*repeated.columns, *columns], names=[*batch.schema.names, *_ADDED])


def _conditions(left: str, right: str, vector: str, radius: float, id_: str | None) -> list[str]:
    """First agreeing band; within the radius; of a self-join each pair once."""
    agree = f"zip_with({left}.{BUCKETS}, {right}.{BUCKETS}, (x, y) -> x = y)"
    conditions = [
        f"array_position({agree}, true) = {left}.{BAND} + 1",
        f"{left}.{BAND} - {right}.{BAND} = 0",
        f"{_distance(left, right, vector)} <= {radius!r}",
    ]
    return [*conditions, f"{left}.{quote_name(id_)} < {right}.{quote_name(id_)}"] if id_ is not None else conditions


def _distance(left: str, right: str, vector: str) -> str:
    name = quote_name(vector)
    squares = f"zip_with({left}.{name}, {right}.{name}, (x, y) -> CAST((x - y) * (x - y) AS DOUBLE))"
    return f"sqrt(aggregate({squares}, CAST(0 AS DOUBLE), (s, d) -> s + d))"


def _columns(frames: dict[str, DataFrame]) -> list[str]:
    return [
        f"{side}.{quote_name(name)} AS {quote_name(f'{side}_{name}')}"
        for side, frame in frames.items()
        for name in frame.columns
    ]


def _check(side: str, frame: DataFrame, vector: str, id_: str | None) -> None:
    fields = {field.name: field.dataType for field in frame.schema.fields}
    for name in (vector, *([id_] if id_ is not None else [])):
        if name not in fields:
            raise StreamError(f"the {side} side has no column {name!r}", "a column of it", nearest(name, fields))
    kind = fields[vector]
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType)):
        wrong = f"column {vector!r} of the {side} side is {kind.simpleString()}"
        raise StreamError(wrong, "an array of numbers", f"cast it: CAST({vector} AS ARRAY<DOUBLE>)")
    taken: Sequence[str] = [name for name in _ADDED if name in fields]
    if taken:
        raise StreamError(f"the {side} side has a column {taken[0]!r}", "a name of its own", "rename it")
