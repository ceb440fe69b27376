"""Large values in real sizes: gigabytes of one key, results of gigabytes, rows of tens of megabytes.

The engine in this process. The same cuts with limits of a few bytes are in `test_sizes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from braidstream.lab.testing.harness import Harness, Indexed

TEXT = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
PLAIN = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def texts(n: int, length: int, first: int = 0) -> pa.Table:
    """Rows of one key with a long text each, whose first letters say which it is."""
    long = pc.binary_join_element_wise(
        pa.array([f"{i:09d}" for i in range(first, first + n)]), pa.repeat(pa.scalar("x" * (length - 9)), n), ""
    )
    numbers = np.arange(first, first + n)
    return pa.table([np.ones(n, dtype=np.int64), numbers, long, pa.array(numbers, pa.int64())], schema=TEXT)


def plain(n: int) -> pa.Table:
    return pa.table([np.ones(n, dtype=np.int64), np.arange(n), pa.array(np.zeros(n, np.int64))], schema=PLAIN)


def run(folder: Path, epochs: Iterable[dict[str, pa.Table]]) -> Harness:
    schemas = {"R": TEXT, "S": PLAIN}
    inputs = [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]
    harness = Harness(folder, schemas, {"q": inputs}, groups=1)
    for tables in epochs:
        harness.epoch(tables)
    return harness


def results(harness: Harness) -> Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array]]:
    """Of each result: the numbers of both rows, how the text begins, how long it is."""
    for file in sorted((harness.folder / "out" / "q").glob("*.parquet")):
        reader = pq.ParquetFile(file)
        for group in range(reader.num_row_groups):
            rows = reader.read_row_group(group, columns=["R.v", "S.v", "R.s"])
            own = rows.column("R.s")
            yield rows.column("R.v"), rows.column("S.v"), pc.utf8_slice_codeunits(own, 0, 9), pc.binary_length(own)


def check(harness: Harness, n_texts: int, n_plain: int, length: int) -> None:
    found = np.zeros((n_texts, n_plain), dtype=np.int64)
    for r, s, first, lengths in results(harness):
        np.add.at(found, (r.to_numpy(), s.to_numpy()), 1)
        assert pc.all(pc.equal(first.cast(pa.int64()), r)).as_py()
        assert pc.all(pc.equal(lengths, length)).as_py()
    assert (found == 1).all()


def test_one_long_text_with_many_rows(tmp_path: Path) -> None:
    """80 MB of results in an epoch, more than a batch may take."""
    check(run(tmp_path, [{"R": texts(1, 1 << 16)}, {"S": plain(1200)}]), 1, 1200, 1 << 16)


@pytest.mark.slow
def test_64_kb_joined_with_40_000_rows(tmp_path: Path) -> None:
    check(run(tmp_path, [{"R": texts(1, 1 << 16)}, {"S": plain(40_000)}]), 1, 40_000, 1 << 16)


@pytest.mark.acceptance
def test_more_than_2_gb_stored_of_one_key(tmp_path: Path) -> None:
    """1.9 GB are stored, then 0.3 GB come, then the rows that they are joined with."""
    parts = ({"R": texts(475, 1 << 20, first)} for first in range(0, 1900, 475))
    last = ({"R": texts(300, 1 << 20, 1900), "S": plain(1)} for _ in range(1))
    check(run(tmp_path, chain(parts, last)), 2200, 1, 1 << 20)


@pytest.mark.slow
def test_rows_of_30_mb(tmp_path: Path) -> None:
    check(run(tmp_path, [{"R": texts(5, 30 << 20)}, {"S": plain(2)}]), 5, 2, 30 << 20)
