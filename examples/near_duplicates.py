"""Near-duplicates: a stream of scanned digits joined with itself by similarity, each pair once.

    .venv/bin/python examples/near_duplicates.py

A locality-sensitive hash finds candidates and the distance of each is computed, so no pair beyond the radius is in the
result, and one within it is missed with a probability of at most 0.1. Both are compared with all pairs, and the closest
are drawn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import braidstream
from braidstream.lab.workloads import append_files
from braidstream.lab.workloads.digits import DIMENSIONS, digit_histograms
from braidstream.pictures import drawing, head, save

PICTURE = Path(__file__).parents[1] / "build" / "examples" / "near-duplicates.png"
RADIUS = 0.05


def main() -> None:
    images = digit_histograms()
    spark = braidstream.local_session()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name) / "stream", images)
        stream = spark.readStream.schema("image long, ink array<double>, ts timestamp").parquet(f"{name}/stream")
        # Hardly any two images are ten radii apart, so the hash must tell three of them from one.
        alike = braidstream.similar(
            stream, None, vector="ink", id="image", radius=RADIUS, dimensions=DIMENSIONS, within=None, ratio=3.0
        ).to("parquet", path=f"{name}/pairs")
        alike.start(checkpoint=f"{name}/checkpoint").await_termination()
        pairs = spark.read.parquet(f"{name}/pairs").select("left_image", "right_image", "distance")
        found = sorted((r.distance, *sorted((r.left_image, r.right_image))) for r in pairs.collect())
    spark.stop()
    there = brute_force(images)
    got = {(left, right) for _, left, right in found}
    assert len(got) == len(found), "each pair once"
    assert got <= there, "no pair beyond the radius"
    assert len(got) >= 0.9 * len(there)
    print(f"verified: {len(found)} pairs of {len(images)} images are within {RADIUS}; there are {len(there)}")
    draw(images, found[:8])


def write(folder: Path, images: np.ndarray) -> None:
    """The images as a stream of three files, one image a millisecond."""
    parts = np.array_split(np.arange(len(images)), 3)
    times = [pa.array(part * 1000).cast(pa.timestamp("us", tz="UTC")) for part in parts]
    tables = (pa.table({"image": p, "ink": list(images[p]), "ts": ts}) for p, ts in zip(parts, times, strict=True))
    append_files(folder, tables)


def brute_force(images: np.ndarray) -> set[tuple[int, int]]:
    """The pairs that there are, by comparing all of them."""
    distances = np.linalg.norm(images[:, None] - images[None], axis=2)
    left, right = np.nonzero(np.triu(distances <= RADIUS, 1))
    return set(zip(left.tolist(), right.tolist(), strict=True))


def draw(images: np.ndarray, closest: list[tuple[float, int, int]]) -> None:
    """The closest pairs, one above the other."""
    side = round(DIMENSIONS**0.5)
    with drawing({"axes.grid": False}) as plt:
        figure, rows = plt.subplots(2, len(closest), figsize=(7.2, 2.4), layout="constrained")
        for at, (distance, *pair) in enumerate(closest):
            for axes, image in zip(rows[:, at], pair, strict=True):
                axes.imshow(images[image].reshape(side, side), cmap="Greys")
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set(visible=True, color="#d8d5cd")
            rows[1, at].set_xlabel(f"{distance:.3f}")
        head(figure, "The closest pairs, and their distances")
        save(plt, figure, PICTURE)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
