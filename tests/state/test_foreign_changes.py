"""Results that somebody deleted or changed between two starts are told; what was only copied is not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from braidstream.epoch.outlets import Outlet
from braidstream.lab.testing.harness import Harness
from braidstream.model.numbers import EpochNumber
from braidstream.model.snapshots import Placed
from braidstream.spark.outlets import SparkOutlets
from braidstream.spark.sink import Delivery, Sink
from braidstream.state.files import Files
from braidstream.state.foreign_changes import foreign_changes
from tests.state.damage import BEFORE, epoch_of, flow_in


@pytest.fixture
def flow(tmp_path: Path) -> Harness:
    return flow_in(tmp_path / "flow")


def told(flow: Harness) -> tuple[str, ...]:
    return foreign_changes(Files(flow._root))


def known(flow: Harness) -> list[Path]:
    """Files of the epochs that are kept, and those of earlier ones."""
    return sorted((flow.folder / "out" / "q").glob("*.parquet"))


def test_nothing_is_said_of_what_is_as_it_was(flow: Harness) -> None:
    assert told(flow) == ()
    flow.restart()
    flow.epoch(epoch_of(BEFORE))
    flow.finish()
    assert told(flow) == ()


def test_what_was_deleted_or_changed_is_named_and_older_epochs_are_the_users(flow: Harness) -> None:
    files = known(flow)
    deleted, flipped, longer, old = files[-1], files[-2], files[-3], files[0]
    stamp = flipped.stat()
    deleted.unlink()
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    os.utime(flipped, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    longer.write_bytes(longer.read_bytes() + b"x")
    old.unlink()
    (line,) = told(flow)
    assert f"deleted {deleted.name} and changed" in line
    assert flipped.name in line
    assert longer.name in line
    assert old.name not in line
    assert str(flow.folder / "out" / "q") in line


def test_a_copy_that_was_put_back_is_no_change(flow: Harness) -> None:
    for path in known(flow):
        path.write_bytes(path.read_bytes())
        os.utime(path, ns=(1, 1))
    assert told(flow) == ()


def test_a_crowd_of_files_is_cut_short(flow: Harness) -> None:
    for path in known(flow):
        path.unlink()
    (line,) = told(flow)
    assert " more" in line


class Written(Sink):
    """As a sink that Spark writes for: nobody knows the checksums of its files."""

    description = "files of text"

    def __init__(self, folder: Path) -> None:
        self.out = folder

    def deliver(self, delivery: Delivery) -> None:
        """One file an epoch."""
        self.out.mkdir(exist_ok=True)
        (self.out / f"part-{delivery.number}.csv").write_text("1,2\n3,4\n")
        (self.out / "_braidstream.json").write_text("{}")
        stamps = Files(str(self.out)).stamps("")
        self.placed = {str(self.out): tuple(Placed(n, *s) for n, s in stamps.items() if n.endswith(".csv"))}


def test_what_spark_has_written_is_sealed_when_it_is_delivered(flow: Harness, tmp_path: Path) -> None:
    out = tmp_path / "written"
    outlets = SparkOutlets(lambda: pytest.fail("no frame is asked for"), flow._root, {"q": Written(out)})
    placed = outlets.deliver(Outlet("q", pa.schema([("a", pa.int64())])), BEFORE, [])
    files, checkpoint = Files(flow._root), flow.runner.checkpoint
    checkpoint.commit(replace(flow.manifest, epoch=EpochNumber(BEFORE), delivered=placed))
    assert foreign_changes(files) == ()
    victim = out / f"part-{BEFORE}.csv"
    victim.write_text("1,2\n3,5\n")
    os.utime(victim, ns=(1, 1))
    (line,) = foreign_changes(files)
    assert f"changed {victim.name}" in line
    victim.write_text("1,2\n3,4\n")
    assert foreign_changes(files) == ()
