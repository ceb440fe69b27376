"""Scanned digits that look alike: a stream of images joined with itself by similarity, each pair once.

.venv/bin/python examples/similar_digits.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import braidstream
from braidstream.lab.workloads.digits import DIMENSIONS, digit_histograms

BUILD = Path(__file__).parents[1] / "build" / "examples" / "digits"
RADIUS = 0.05


def main() -> None:
    images = digit_histograms()
    if not BUILD.exists():
        write(images)
    spark = braidstream.local_session()
    stream = spark.readStream.schema("image long, ink array<double>, ts timestamp").parquet(str(BUILD / "stream"))

    # Hardly any two images are ten radii apart, so the hash must tell three of them from one.
    alike = braidstream.similar(
        stream, None, vector="ink", id="image", radius=RADIUS, dimensions=DIMENSIONS, within=None, ratio=3.0
    ).to("parquet", path=str(BUILD / "pairs"))
    alike.start(checkpoint=BUILD / "checkpoint").await_termination()

    pairs = spark.read.parquet(str(BUILD / "pairs")).select("left_image", "right_image", "distance")
    found = pairs.count()
    print(f"{found} pairs of {len(images)} images are within {RADIUS}; there are {brute_force(images)}. The closest:")
    pairs.orderBy("distance", "left_image").show(3)
    spark.stop()


def write(images: np.ndarray) -> None:
    """The images as a stream of three files, one image a millisecond."""
    (BUILD / "stream").mkdir(parents=True)
    for i, part in enumerate(np.array_split(np.arange(len(images)), 3)):
        times = pa.array(part * 1000).cast(pa.timestamp("us", tz="UTC"))
        table = pa.table({"image": part, "ink": list(images[part]), "ts": times})
        pq.write_table(table, BUILD / "stream" / f"{i}.parquet")


def brute_force(images: np.ndarray) -> int:
    """How many pairs there are, by comparing all of them."""
    distances = np.linalg.norm(images[:, None] - images[None], axis=2)
    return int((np.triu(distances <= RADIUS, 1)).sum())


if __name__ == "__main__":
    main()
