"""The times of files, the delay that an order needs, and what is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.errors import StreamError
from braidstream.plan.footers import FileTimes
from braidstream.spark.file_order import check_order, needed_delay
from braidstream.spark.file_times import _column_times, _file_times
from braidstream.spark.sources import FilesSource

TIMES = [5_000_000, None, 2_000_000, 9_000_000]


def table(kind: pa.DataType, **more: pa.Array) -> pa.Table:
    scale = {"ms": 1000, "us": 1, "ns": 1}[kind.unit]
    per = 1000 if kind.unit == "ns" else 1
    values = [None if t is None else t // scale * per for t in TIMES]
    return pa.table({**more, "Ts": pa.array(values, pa.int64()).cast(kind)})


@pytest.mark.parametrize("kind", [pa.timestamp(u, z) for u in ("ms", "us", "ns") for z in (None, "UTC")], ids=str)
def test_a_footer_tells_the_times_of_a_file(tmp_path: Path, kind: pa.DataType) -> None:
    """In any unit; behind a nested column, which has several leaves; in whatever case; over all row groups."""
    nested = pa.array([{"a": 1, "b": 2}] * len(TIMES))
    pq.write_table(table(kind, nested=nested), tmp_path / "f", row_group_size=2)
    assert _file_times(str(tmp_path / "f"), "ts") == FileTimes(2_000_000, 9_000_000)
    assert _column_times(str(tmp_path / "f"), "ts") == FileTimes(2_000_000, 9_000_000)


@pytest.mark.parametrize("how", ["INT96", "no statistics"])
def test_where_a_footer_does_not_tell_the_column_does(tmp_path: Path, how: str) -> None:
    options = {"use_deprecated_int96_timestamps": True} if how == "INT96" else {"write_statistics": False}
    pq.write_table(table(pa.timestamp("us")), tmp_path / "f", row_group_size=2, **options)
    told = _file_times(str(tmp_path / "f"), "ts")
    assert told is not None
    assert told.oldest > told.newest
    assert _column_times(str(tmp_path / "f"), "ts") == FileTimes(2_000_000, 9_000_000)


@pytest.mark.parametrize("what", ["no rows", "no time column", "no times", "not Parquet", "no file"])
def test_some_files_have_no_times(tmp_path: Path, what: str) -> None:
    full = table(pa.timestamp("us"))
    made = {
        "no rows": full.slice(0, 0),
        "no time column": pa.table({"k": [1]}),
        "no times": pa.table({"ts": pa.nulls(3, pa.timestamp("us"))}),
    }
    if what in made:
        pq.write_table(made[what], tmp_path / "f")
    elif what == "not Parquet":
        (tmp_path / "f").write_bytes(b"not Parquet")
    assert _file_times(str(tmp_path / "f"), "ts") is None
    assert _column_times(str(tmp_path / "f"), "ts") is None


def late_rows(files: list[FileTimes], delay: int, newest: int | None, watermark: int | None) -> int:
    """How many of the files' ends are late, one file an epoch; what was late before is not counted."""
    late, before = 0, watermark
    for file in files:
        late += sum(
            watermark is not None and t < watermark and (before is None or t >= before)
            for t in (file.oldest, file.newest)
        )
        newest = file.newest if newest is None else max(newest, file.newest)
        watermark = newest - delay if watermark is None else max(watermark, newest - delay)
    return late


@pytest.mark.parametrize("seed", range(30))
def test_the_needed_delay_is_the_least_with_which_no_row_is_late(seed: int) -> None:
    random = Random(seed)
    files = [FileTimes(t, t + random.randint(0, 20)) for t in (random.randint(0, 100) for _ in range(12))]
    if seed % 2:
        files.sort(key=lambda file: file.oldest)
    newest, watermark = random.choice([(None, None), (40, 30), (40, None)])
    needed = needed_delay([[file] for file in files], newest, watermark)
    assert late_rows(files, needed, newest, watermark) == 0
    if needed and newest is None:
        assert late_rows(files, needed - 1, newest, watermark) > 0


@pytest.mark.parametrize("seed", range(10))
def test_files_of_one_step_may_come_in_any_order(seed: int) -> None:
    random = Random(seed)
    files = [FileTimes(t, t + random.randint(0, 20)) for t in (random.randint(0, 100) for _ in range(9))]
    steps = [files[:3], files[3:4], files[4:]]
    needed = needed_delay(steps, None, None)
    for _ in range(50):
        order = [file for step in steps for file in random.sample(step, len(step))]
        assert late_rows(order, needed, None, None) == 0


@pytest.mark.parametrize(
    ("order", "source", "wrong"),
    [
        ("tme", FilesSource("x"), "'tme'"),
        ("time", FilesSource("x", {"latestFirst": "true"}), "latestFirst"),
        ("name", FilesSource("x", {"cleanSource": "delete"}), "cleanSource"),
        ("time", FilesSource("x", is_partitioned=True), "partitions"),
    ],
)
def test_an_order_that_a_source_cannot_have_is_refused(order: str, source: FilesSource, wrong: str) -> None:
    with pytest.raises(StreamError, match=wrong):
        check_order("R", order, source)
