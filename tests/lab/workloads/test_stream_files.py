"""Written streams can be read in order by a source that knows names, or only modification times in milliseconds."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.errors import InputError
from braidstream.lab.workloads import (
    STREAM_SCHEMA,
    WSJ_PAYLOAD_BYTES,
    BModelKeys,
    StreamFiles,
    UniformKeys,
    append_files,
    cut,
    write_stream,
)


def written(folder: Path, **changed) -> StreamFiles:
    wanted = {"rate": 1000, "keys": UniformKeys(100), "rows_per_file": 300, "seed": 1, "n_rows": 1000} | changed
    return write_stream(folder, **wanted)


def test_names_and_modification_times_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    stream = written(tmp_path / "R")
    assert [file.name for file in sorted(stream.path.iterdir())] == [f"{i:05d}.parquet" for i in range(4)]
    modified_ms = [int(file.stat().st_mtime * 1000) for file in stream.files]
    assert all(later - earlier >= 1000 for earlier, later in pairwise(modified_ms))
    assert all(ms % 1000 == 0 for ms in modified_ms)
    assert modified_ms[-1] < time.time() * 1000


def test_rows_are_numbered_and_in_event_time_order_over_all_files(tmp_path: Path) -> None:
    stream = written(tmp_path / "R", start_us=5_000_000)
    table = pa.concat_tables(pq.read_table(file) for file in stream.files)
    assert table.schema.equals(STREAM_SCHEMA)
    assert table["v"].to_pylist() == list(range(1000))
    times = table["ts"].cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert (stream.rows, stream.first_us, stream.last_us) == (1000, times[0], times[-1])
    assert times[0] >= 5_000_000
    assert [pq.read_metadata(file).num_rows for file in stream.files] == [300, 300, 300, 100]


def test_a_file_is_one_row_group_without_compression(tmp_path: Path) -> None:
    metadata = pq.read_metadata(written(tmp_path / "R", n_rows=2_100_000, rows_per_file=2_100_000).files[0])
    assert metadata.num_row_groups == 1
    assert metadata.row_group(0).column(0).compression == "UNCOMPRESSED"


def test_a_tuple_of_wsj_has_64_bytes(tmp_path: Path) -> None:
    stream = written(tmp_path / "R", payload_bytes=WSJ_PAYLOAD_BYTES)
    table = pq.read_table(stream.files[0])
    assert table.schema.names == ["k", "v", "ts", "pad"]
    assert {len(pad) for pad in table["pad"].to_pylist()} == {40}
    fixed = sum(field.type.bit_width // 8 for field in STREAM_SCHEMA)
    assert fixed + 40 == 64
    assert len(set(table["pad"].to_pylist())) == 300


def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    first, again = written(tmp_path / "a", payload_bytes=8), written(tmp_path / "b", payload_bytes=8)
    other = written(tmp_path / "c", payload_bytes=8, seed=2)
    assert [file.read_bytes() for file in first.files] == [file.read_bytes() for file in again.files]
    for column in ("k", "ts", "pad"):
        assert pq.read_table(first.files[0])[column] != pq.read_table(other.files[0])[column]


def test_the_size_of_files_does_not_change_the_stream(tmp_path: Path) -> None:
    many, one = written(tmp_path / "a"), written(tmp_path / "b", rows_per_file=5000)
    assert pa.concat_tables(pq.read_table(f) for f in many.files).equals(pq.read_table(one.files[0]))


def test_seconds_and_constant_arrivals(tmp_path: Path) -> None:
    stream = written(tmp_path / "R", n_rows=None, seconds=0.5, arrivals="constant")
    assert (stream.rows, stream.first_us, stream.last_us) == (500, 0, 499_000)


def test_an_empty_stream_is_one_empty_file(tmp_path: Path) -> None:
    stream = written(tmp_path / "R", n_rows=0, payload_bytes=4)
    assert (stream.rows, stream.first_us, stream.last_us, len(stream.files)) == (0, None, None, 1)
    assert pq.read_schema(stream.files[0]).names == ["k", "v", "ts", "pad"]


def test_appended_files_go_on_after_those_that_are_there(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2, 3]})
    first = append_files(tmp_path / "R", cut(table, 2))
    second = append_files(tmp_path / "R", [table])
    assert [file.name for file in (*first, *second)] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    assert second[0].stat().st_mtime - first[-1].stat().st_mtime == 1
    assert [pq.read_table(file).num_rows for file in (*first, *second)] == [2, 1, 3]


def test_a_million_wsj_tuples_take_seconds(tmp_path: Path) -> None:
    started = time.monotonic()
    written(tmp_path / "R", keys=BModelKeys(), n_rows=1_000_000, rows_per_file=250_000, payload_bytes=WSJ_PAYLOAD_BYTES)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows_per_file": 0}, "rows_per_file is 0"),
        ({"payload_bytes": -1}, "payload_bytes is -1"),
        ({"payload_bytes": 40, "rows_per_file": 60_000_000}, "payload_bytes is 40 with 60000000 rows a file"),
        ({"arrivals": "weekly"}, "arrivals is 'weekly'"),
        ({"seconds": 1}, "n is 1000 and seconds is 1"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_and_nothing_is_written(changed: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        written(tmp_path / "R", **changed)
    assert not (tmp_path / "R").exists()


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "R")
    with pytest.raises(InputError, match="is not empty"):
        written(tmp_path / "R")


@pytest.mark.parametrize(("present", "said"), [("part-0.parquet", "not a file of a made"), ("99999.parquet", "100000")])
def test_a_folder_that_cannot_be_appended_to_is_refused(present: str, said: str, tmp_path: Path) -> None:
    (tmp_path / present).touch()
    with pytest.raises(InputError, match=said):
        append_files(tmp_path, [pa.table({"k": [1]})])
