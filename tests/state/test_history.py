"""The history of a flow: a ring of small files that nothing depends on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import LeaseLost
from braidstream.state import history
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.history import Entry, HistoryReader, HistoryWriter, Words, leftovers, read_history
from tests.scale import examples


def _epoch(number: int, step: int = 0, **lists: list[int]) -> Entry:
    numbers = {"total_s": 0.5, "state_rows": number}
    return Entry("epoch", 1_000_000 + number, number, step, numbers, {"slots": [0, 2], **lists}, Words(warnings=("w",)))


def _epochs(table: pa.Table) -> list[int]:
    return table.column("epoch").to_pylist()


def _files(folder: Path, kind: str = "plain") -> Files:
    return Files(f"copy+file://{folder}" if kind == "copy" else str(folder))


@pytest.mark.parametrize("kind", ["plain", "copy"])
def test_entries_come_back_as_they_were_written(tmp_path: Path, kind: str) -> None:
    files = _files(tmp_path, kind)
    HistoryWriter(files).append([Entry("start", 7, -1, told=Words(name="f")), _epoch(0, slot_active=[5, 6]), _epoch(1)])
    found = read_history(files)
    assert found.column("kind").to_pylist() == ["start", "epoch", "epoch"]
    assert found.column("state_rows").to_pylist() == [None, 0, 1]
    assert found.column("slot_active").to_pylist() == [None, [5, 6], None]
    assert found.column("told").to_pylist() == ['{"name":"f"}', '{"warnings":["w"]}', '{"warnings":["w"]}']


@settings(deadline=None, max_examples=examples(15))
@given(st.lists(st.integers(1, 40), min_size=1, max_size=120), st.integers(400, 600), st.integers(1, 9))
def test_the_ring_is_bounded_and_a_reader_misses_nothing(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], keep: int, every: int
) -> None:
    """A reader who looks before the ring has gone round gets what is new, once, in order; few files are ever there."""
    files = _files(tmp_path_factory.mktemp("ring"))
    writer, reader, seen, number = HistoryWriter(files, keep), HistoryReader(files), list[int](), 0
    for at, size in enumerate(sizes):
        if at % 17 == 16:
            writer = HistoryWriter(files, keep)  # another start
        writer.append([_epoch(number + i) for i in range(size)])
        number += size
        if at % every == 0:
            seen += _epochs(reader.news())
        names = files.names(history.FOLDER)
        assert len(names) <= 33 + keep // 256 + 1
    seen += _epochs(reader.news())
    assert seen == list(range(number))
    left = _epochs(read_history(files))
    assert left == list(range(number - len(left), number))
    assert min(keep, number) <= len(left) <= keep + 256 + 33 * 40


def test_an_epoch_that_comes_again_replaces_what_was_said_of_it_and_of_later_ones(tmp_path: Path) -> None:
    files = _files(tmp_path)
    writer = HistoryWriter(files)
    writer.append([_epoch(i) for i in range(5)])
    writer.append([_epoch(2), _epoch(2, 1)])
    found = read_history(files)
    assert list(zip(_epochs(found), found.column("step").to_pylist(), strict=True)) == [(0, 0), (1, 0), (2, 0), (2, 1)]


def test_a_damaged_file_is_skipped_and_what_a_lost_process_left_is_swept(tmp_path: Path) -> None:
    files = _files(tmp_path)
    writer = HistoryWriter(files)
    for i in range(31):
        writer.append([_epoch(i)])
    names = files.names(history.FOLDER)
    held = {name: files.read(f"{history.FOLDER}/{name}") for name in names}
    writer.append([_epoch(31)])  # puts them together
    (tmp_path / history.FOLDER / names[3]).write_bytes(held[names[3]])
    (tmp_path / history.FOLDER / ".on-its-way").write_bytes(b"half")
    assert sorted(leftovers(files)) == sorted([f"{history.FOLDER}/.on-its-way", f"{history.FOLDER}/{names[3]}"])
    writer.append([_epoch(32)])
    last = files.names(history.FOLDER)[-1]
    (tmp_path / history.FOLDER / last).write_bytes(b"damaged")
    assert _epochs(read_history(files)) == list(range(32))


def test_the_layout_outlives_the_file_that_had_it(tmp_path: Path) -> None:
    """Groups are written when they change; a file that is left on its own still knows where they are."""
    files, writer = _files(tmp_path), HistoryWriter(_files(tmp_path), keep=256)
    placed = {"group_ids": [1, 2], "group_slots": [0, 1], "group_stages": [0, 0], "group_depths": [1, 1]}
    writer.append([_epoch(0, **placed)])
    for i in range(1, 1200):
        writer.append([_epoch(i, loaded_groups=[1], load_rows=[i], load_matches=[0])])
    found = read_history(files)
    assert _epochs(found)[0] > 0
    assert found.column("group_slots")[0].as_py() == [0, 1]
    loads = [one for one in found.column("load_rows").to_pylist() if one is not None]
    assert loads[-1] == [1199]
    assert len(loads) < 64


def test_a_later_version_may_have_other_columns(tmp_path: Path) -> None:
    files = _files(tmp_path)
    HistoryWriter(files).append([_epoch(0)])
    name = f"{history.FOLDER}/{files.names(history.FOLDER)[0]}"
    table = pa.ipc.open_file(files.read(name)).read_all().drop_columns(["spark_s"])
    table = table.append_column("new", pa.array(np.ones(table.num_rows)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    files.note(name, sink.getvalue().to_pybytes())
    assert read_history(files).column("spark_s").to_pylist() == [None]


def test_who_has_lost_the_lease_writes_no_history(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path / "ck"), history=100)
    first.take(ttl_s=0.0)
    writer = HistoryWriter(first.files)
    writer.append([_epoch(0)])
    second = Checkpoint(str(tmp_path / "ck"))
    second.take(ttl_s=0.0)
    with pytest.raises(LeaseLost):
        writer.append([_epoch(1)])
    assert _epochs(read_history(second.files)) == [0]
