"""Results that somebody deleted or changed between two starts are told; what was only copied is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from braidstream.lab.testing.harness import Harness
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
