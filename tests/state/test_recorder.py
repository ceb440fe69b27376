"""What a flow leaves in its history, epoch by epoch, and what that costs the epochs: nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from braidstream.epoch import recorder as recorders
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.directory import Directory
from braidstream.model.faults import armed
from braidstream.state.files import Files
from braidstream.state.history import Words, read_history

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
JOINS = {"pairs": [Indexed("R", "R", ("k",), 50), Indexed("S", "S", ("k",), 50)]}


def _table(epoch: int, n: int = 40) -> pa.Table:
    keys, times = np.arange(n) % 7, epoch * 100 + np.arange(n)
    return pa.table({"k": keys, "v": keys, "ts": times}, schema=SCHEMA)


def _harness(folder: Path, **more: Any) -> Harness:
    return Harness(folder, {"R": SCHEMA, "S": SCHEMA}, JOINS, slots=3, groups=8, history=100, **more)


def _run(harness: Harness, n: int) -> None:
    for _ in range(n):
        number = harness.manifest.epoch + 1
        harness.epoch({"R": _table(number), "S": _table(number)})


def _told(harness: Harness) -> pa.Table:
    harness.runner.flow.recorder.flush()
    return read_history(harness.runner.checkpoint.files)


def test_every_epoch_is_recorded_as_its_progress_tells_it(tmp_path: Path) -> None:
    harness = _harness(tmp_path)
    _run(harness, 5)
    found, progress = _told(harness), list(harness.runner.progress)
    assert found.column("epoch").to_pylist() == [0, 1, 2, 3, 4]
    assert found.column("state_bytes").to_pylist() == [one.state_bytes for one in progress]
    assert found.column("watermark").to_pylist() == [one.watermark for one in progress]
    assert found.column("query_matches").to_pylist() == [list(one.matches.values()) for one in progress]
    assert found.column("stream_rows").to_pylist() == [[40, 40]] * 5
    for active, own in zip(found.column("slot_active").to_pylist(), progress, strict=True):
        assert sum(active) == sum(own.slot_bytes)


def test_groups_are_told_when_they_are_placed_anew(tmp_path: Path) -> None:
    harness = _harness(tmp_path)
    _run(harness, 3)
    elsewhere = Directory.of(8, 3).moved({0: 2})
    harness.runner.flow.recorder.flush()
    harness.restart(directory=elsewhere)
    _run(harness, 2)
    placed = [one for one in _told(harness).column("group_slots").to_pylist() if one is not None]
    assert placed == [Directory.of(8, 3).columns().slots.tolist(), elsewhere.columns().slots.tolist()]


def test_an_epoch_that_was_lost_is_told_once_when_it_was_done_again(tmp_path: Path) -> None:
    harness = _harness(tmp_path)
    _run(harness, 2)
    with armed("before-manifest:2:raise"), pytest.raises(Exception, match="before-manifest"):
        _run(harness, 1)
    harness.runner.flow.recorder.flush()
    harness.restart()
    _run(harness, 1)
    assert _told(harness).column("epoch").to_pylist() == [0, 1, 2]


def test_a_flow_goes_on_when_its_history_cannot_be_written(tmp_path: Path) -> None:
    harness = _harness(tmp_path)
    _run(harness, 1)
    harness.runner.flow.recorder.flush()
    folder = tmp_path / "ck" / "history"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("a file in its place")
    _run(harness, 2)
    harness.runner.flow.recorder.flush()
    assert harness.manifest.epoch == 2


def test_a_sweep_leaves_the_history_alone(tmp_path: Path) -> None:
    harness = _harness(tmp_path)
    _run(harness, 3)
    before = _told(harness)
    harness.restart()
    assert _told(harness).equals(before)


def test_without_history_there_is_no_folder_and_no_thread(tmp_path: Path) -> None:
    harness = Harness(tmp_path, {"R": SCHEMA, "S": SCHEMA}, JOINS)
    _run(harness, 1)
    assert not Files(str(tmp_path / "ck")).exists("history")
    assert harness.runner.flow.recorder._thread is None


def test_marks_say_who_started_what_came_and_why_it_ended(tmp_path: Path) -> None:
    harness = _harness(tmp_path)
    recorder = harness.runner.flow.recorder
    recorder.runs(-1, {"pairs": "SELECT 1"}, Words(name="f"))
    recorder.runs(3, {"other": "SELECT 2"}, Words(name="f"))
    recorder.end(5, "failed", "the disk is full")
    recorder.end(5, "stopped")
    found = read_history(harness.runner.checkpoint.files)
    told = [msgspec.json.decode(one) for one in found.column("told").to_pylist()]
    assert found.column("kind").to_pylist() == ["start", "queries", "end"]
    assert (told[0]["name"], told[0]["queries"]) == ("f", {"pairs": "SELECT 1"})
    assert told[1] == {"came": {"other": "SELECT 2"}, "went": ["pairs"]}
    assert told[2] == {"how": "failed", "cause": "the disk is full"}


def test_tiny_epochs_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "SPAN_S", 3600.0)
    harness = _harness(tmp_path)
    _run(harness, 6)
    assert len(_told(harness)) == 6
    assert len(harness.runner.checkpoint.files.names("history")) <= 2
