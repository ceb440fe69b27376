"""Segments: what is written is found again, by group; what is missing or damaged is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidstream.errors import DamagedState
from braidstream.kernels.join import gather
from braidstream.kernels.rows import HASH, TIME, Rows, sort_rows
from braidstream.model.directory import Directory
from braidstream.model.snapshots import UNSEALED
from braidstream.state.files import Files
from braidstream.state.segments import Place, open_segment, owned_index, owned_rows
from tests.scale import examples

SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
HASHES = st.lists(
    st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**63, 2**63 - 1, 2**64 - 1]), min_size=1, max_size=40
)


def rows_of(hashes: list[int], times: list[int] | None = None) -> Rows:
    signed = np.array(hashes, dtype=np.uint64).view(np.int64)
    return sort_rows(pa.table({HASH: signed, TIME: times or list(range(len(hashes))), "v": np.arange(len(hashes))}))


def folder(path: Path) -> Files:
    files = Files(str(path))
    files.make("segments")
    return files


@SETTINGS
@given(HASHES, st.integers(1, 40), st.integers(1, 5))
def test_each_group_finds_its_rows_and_no_others(tmp_path: Path, hashes: list[int], n_groups: int, slots: int) -> None:
    directory = Directory.of(n_groups, slots)
    rows = rows_of(hashes)
    files = folder(tmp_path)
    segment = Place(files, 3, 0, directory.groups).write(rows, "R[k]", 10)
    assert (segment.rows, segment.live_rows, segment.epoch) == (len(rows), len(rows), 3)
    assert segment.bytes == (tmp_path / segment.name).stat().st_size
    assert segment.deadline == max(rows.times.tolist()) + 10
    opened = open_segment(files, segment)
    assert opened.table.equals(rows.table)
    for slot in range(slots):
        groups = directory.of_slot(slot)
        mine = [i for i, h in enumerate(rows.hashes.tolist()) if any(g.low <= h <= g.high for g in groups)]
        assert owned_rows(opened, segment, groups).table["v"].to_pylist() == [rows.table["v"][i].as_py() for i in mine]
        everything = np.arange(len(rows))
        assert owned_index(opened, everything, segment, groups).tolist() == mine
        rest = segment.without([(g.low, g.high) for g in directory.groups if g.slot != slot])
        assert owned_index(opened, everything, rest, directory.groups).tolist() == mine


@SETTINGS
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=40),
    st.sets(st.integers(0, 8)),
    st.none() | st.integers(0, 30),
    st.none() | st.integers(0, 10),
)
def test_gathering_takes_the_wanted_keys_that_are_alive(
    values: list[tuple[int, int]], hashes: set[int], watermark: int | None, window: int | None
) -> None:
    rows = rows_of([h for h, _ in values], [t for _, t in values])
    found = gather(rows, np.array(sorted(hashes), dtype=np.uint64), watermark, window)
    expected = [
        i
        for i, (h, t) in enumerate(zip(rows.hashes.tolist(), rows.times.tolist(), strict=True))
        if h in hashes and (watermark is None or window is None or t + window >= watermark)
    ]
    assert found.tolist() == expected


def test_damage_is_named(tmp_path: Path) -> None:
    files = folder(tmp_path)
    place = Place(files, 0, 0, Directory.of(2).groups)
    segment, other = (place.write(rows_of(list(range(n))), "R[k]", None) for n in (5, 6))
    path = tmp_path / segment.name
    content = path.read_bytes()
    for damaged, said in (
        ((tmp_path / other.name).read_bytes(), "bytes were written"),
        (content[:100], "this segment has 100 bytes"),
        (b"", "this segment has 0 bytes"),
        (content[:-9] + bytes([content[-9] ^ 1]) + content[-8:], "its checksum does not fit"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DamagedState, match=said) as caught:
            open_segment(files, segment)
        assert caught.value.path == str(path)
    for unsealed, said in (((tmp_path / other.name).read_bytes(), "holds 6 rows"), (content[:100], "is damaged")):
        path.write_bytes(unsealed)  # by a version without checksums
        with pytest.raises(DamagedState, match=said):
            open_segment(files, replace(segment, checksum=UNSEALED))
    path.unlink()
    with pytest.raises(DamagedState, match="this segment is missing"):
        open_segment(files, segment)
