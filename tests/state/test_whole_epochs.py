"""A reader in the middle of a delivery sees whole epochs only."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream import result_files
from braidstream.spark.sink import Delivery
from braidstream.spark.sinks import FileSink
from braidstream.state.files import Files
from braidstream.state.staging import Staging

SCHEMA = pa.schema([("epoch", pa.int64()), ("v", pa.int64())])
ACTS = ("move", "delete", "replace")


def no_frame() -> NoReturn:
    raise AssertionError("plain results need no Spark")


def staged(staging: Staging, epoch: int, slots: int) -> list[str]:
    """What slots stage: the same rows however many slots there are."""
    writers = [staging.writer(SCHEMA, max(epoch, 0), slot) for slot in range(slots)]
    for v in range(10):
        writers[v % slots].write([pa.array([epoch]), pa.array([v])])
    return [file.name for writer in writers if (file := writer.close())]


def seen(path: Path) -> dict[int, int]:
    """How many rows of each epoch a reader sees."""
    counts: dict[int, int] = {}
    for file in result_files(str(path)):
        for epoch in pq.read_table(file).column("epoch").to_pylist():
            counts[epoch] = counts.get(epoch, 0) + 1
    return counts


def deliver(path: Path, epoch: int, slots: int) -> None:
    sink = FileSink("parquet", str(path), {})
    sink.claim("flow", "owner")
    names = staged(sink.staging("unused", finished=True), epoch, slots)
    sink.deliver(Delivery("q", epoch, names, no_frame, finished=True))


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_before_and_after_every_change_sees_whole_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, looks = Random(seed), [0]

    def watched(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            before = seen(tmp_path)
            done = act(*arguments, **named)
            for counts in (before, seen(tmp_path)):
                assert set(counts.values()) <= {10}, counts
                looks[0] += 1
            return done

        return run

    for name in ACTS:
        monkeypatch.setattr(Files, name, watched(getattr(Files, name)))
    epochs = [0, 1, 2, -1, 3]
    for epoch in epochs:
        deliver(tmp_path, epoch, random.randint(1, 5))
        if random.random() < 0.5:
            deliver(tmp_path, epoch, random.randint(1, 5))
        assert set(seen(tmp_path)) == set(epochs[: epochs.index(epoch) + 1])
    assert looks[0] > 50


def test_epochs_that_a_version_without_marks_wrote_are_whole(tmp_path: Path) -> None:
    for epoch in (0, 1):
        deliver(tmp_path, epoch, 2)
    shutil.rmtree(tmp_path / "_epochs")
    assert seen(tmp_path) == {0: 10, 1: 10}
    deliver(tmp_path, 2, 3)
    assert seen(tmp_path) == {0: 10, 1: 10, 2: 10}


def test_a_folder_without_results_has_no_files(tmp_path: Path) -> None:
    assert result_files(str(tmp_path)) == []
    assert result_files(tmp_path / "none") == []
