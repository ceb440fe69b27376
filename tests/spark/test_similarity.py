"""Similarity joins against brute force: nothing beyond the radius, each pair once, few missed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import braidstream
from braidstream.kernels.lsh import Lsh
from braidstream.spark.similarity import similar_in_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RADIUS, DIMENSIONS = 0.15, 6
SCHEMA = "photo long, place array<double>, ts timestamp"


def vectors(n: int, seed: int) -> np.ndarray:
    """Vectors in clusters, so that there are near pairs and crowded buckets."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(size=(8, DIMENSIONS))
    return centers[rng.integers(8, size=n)] + rng.normal(scale=0.06, size=(n, DIMENSIONS))


def write(folder: Path, points: np.ndarray, n_files: int) -> None:
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(points)), n_files)):
        times = pa.array(part * 1000).cast(pa.timestamp("us", tz="UTC"))
        table = pa.table({"photo": part, "place": list(points[part]), "ts": times})
        pq.write_table(table, folder / f"{i}.parquet")


def near(left: np.ndarray, right: np.ndarray) -> set[tuple[int, int]]:
    distances = np.linalg.norm(left[:, None] - right[None], axis=2)
    return set(zip(*(side.tolist() for side in np.nonzero(distances <= RADIUS)), strict=True))


def sharing(left: np.ndarray, right: np.ndarray) -> set[tuple[int, int]]:
    """The pairs within the radius that share a bucket: what must be found."""
    lsh = Lsh.sensitive(DIMENSIONS, RADIUS)
    agree = (lsh.buckets(left)[:, None] == lsh.buckets(right)[None]).any(axis=2)
    return {(i, j) for i, j in near(left, right) if agree[i, j]}


def pairs_of(table: pa.Table | None) -> list[tuple[int, int]]:
    assert table is not None
    return list(zip(table["left_photo"].to_pylist(), table["right_photo"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.spark
def test_two_streams_of_vectors(tmp_path: Path, spark: SparkSession) -> None:
    points = {"A": vectors(120, 1), "B": vectors(150, 1)[30:]}
    for name, some in points.items():
        write(tmp_path / name, some, 3)
    left, right = (spark.readStream.schema(SCHEMA).parquet(str(tmp_path / name)) for name in "AB")
    joined = braidstream.similar(
        left, right, vector="place", radius=RADIUS, dimensions=DIMENSIONS, within=None, slots=2
    ).to("memory")
    assert joined.start(tmp_path / "ck").await_termination(120)
    found = pairs_of(joined.table())
    expected = sharing(points["A"], points["B"])
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert len(expected) >= 0.9 * len(near(points["A"], points["B"]))
    table = joined.table()
    assert table is not None
    assert max(table["distance"].to_pylist()) <= RADIUS


@pytest.mark.spark
def test_a_stream_with_itself_gives_each_pair_once_and_so_does_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    points = vectors(100, 2)
    write(tmp_path / "A", points, 2)
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "A"))
    joined = braidstream.similar(
        stream, None, vector="place", id="photo", radius=RADIUS, dimensions=DIMENSIONS, within=None, slots=2
    ).to("memory")
    assert joined.start(tmp_path / "ck").await_termination(120)
    expected = {(i, j) for i, j in sharing(points, points) if i < j}
    found = pairs_of(joined.table())
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert len(expected) > 100
    lsh = Lsh.sensitive(DIMENSIONS, RADIUS)
    rest = spark.read.schema(SCHEMA).parquet(str(tmp_path / "A"))
    batch = similar_in_batch(rest, None, vector="place", id="photo", radius=RADIUS, lsh=lsh)
    rows = [(row.left_photo, row.right_photo) for row in batch.collect()]
    assert sorted(rows) == sorted(expected)


@pytest.mark.spark
def test_wrong_columns_are_refused_before_anything_starts(tmp_path: Path, spark: SparkSession) -> None:
    write(tmp_path / "A", vectors(3, 1), 1)
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "A"))
    with pytest.raises(braidstream.InputError, match="without an id"):
        braidstream.similar(stream, None, vector="place", radius=1, dimensions=6, within=None)
    with pytest.raises(braidstream.StreamError, match=r"has no column 'plac'[\s\S]*did you mean 'place'"):
        braidstream.similar(stream, stream, vector="plac", radius=1, dimensions=6, within=None)
    with pytest.raises(braidstream.StreamError, match="'photo' of the left side is bigint"):
        braidstream.similar(stream, stream, vector="photo", radius=1, dimensions=6, within=None)
