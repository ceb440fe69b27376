"""A full disk, or a folder that may not be written: the run stops with a message, and the checkpoint restarts."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.overflow import Overflow
from braidstream.errors import RunError
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.faults import armed
from braidstream.state.files import Files, unwritable
from tests.state import damage

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
N = 2000


def epoch_of(number: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(number)
    times = pa.array(np.arange(N) + number * N, pa.timestamp("us", "UTC"))
    return {name: pa.table([rng.integers(0, 5000, N), np.arange(N), times], schema=SCHEMA) for name in "RS"}


def harness(folder: Path, root: Path) -> Harness:
    inputs = {"q": [Indexed(name, name, ("k",), None) for name in "RS"]}
    overflow = Overflow(100_000)
    return Harness(folder, dict.fromkeys("RS", SCHEMA), inputs, slots=2, root=str(root), overflow=overflow)


def undisturbed(folder: Path, n_epochs: int) -> int:
    whole = harness(folder, folder / "ck")
    for number in range(n_epochs):
        whole.epoch(epoch_of(number))
    whole.finish()
    return len(whole.results("q"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB, where this process may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only the superuser may mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_the_checkpoint_restarts(tmp_path: Path, small_disk: Path) -> None:
    flow = harness(tmp_path, small_disk / "ck")
    told, done = until_it_fails(flow)
    assert "cannot be written: No space left on device" in told.wrong
    assert told.expected == "room on the disk"
    assert "start again with the same checkpoint" in told.fix
    assert 1 <= done < 99
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    flow.restart()
    assert flow.manifest.epoch == done - 1
    for number in range(done, done + 3):
        flow.epoch(epoch_of(number))
    flow.finish()
    assert len(flow.results("q")) == undisturbed(tmp_path / "whole", done + 3)


def until_it_fails(flow: Harness) -> tuple[RunError, int]:
    try:
        for number in range(100):
            flow.epoch(epoch_of(number))
    except RunError as error:
        return error, flow.manifest.epoch + 1
    raise AssertionError("the disk never was full")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("method", ["creating", "add"])
def test_whoever_meets_it_slot_or_driver(tmp_path: Path, number: int, method: str) -> None:
    """A state folder that cannot be written, for a segment (by a slot) or for a manifest (by the driver)."""
    flow = harness(tmp_path, tmp_path / "ck")
    flow.epoch(epoch_of(0))

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, "refused")

    with mock.patch.object(Files, method, refuse), pytest.raises(RunError, match="ck cannot be written"):
        flow.epoch(epoch_of(1))
    flow.restart()
    flow.epoch(epoch_of(1))
    flow.finish()
    assert len(flow.results("q")) == undisturbed(tmp_path / "whole", 2)


def test_an_error_that_may_pass_is_left_to_sparks_retries() -> None:
    assert unwritable(OSError(errno.EIO, "for the moment"), "ck") is None


@pytest.mark.parametrize("point", ["task-after-segment", "after-results", "before-root"])
def test_a_disk_that_is_full_at_a_point_ends_the_epoch_and_it_is_done_again(tmp_path: Path, point: str) -> None:
    expected = damage.finished(damage.flow_in(tmp_path / "whole"))
    flow = damage.flow_in(tmp_path / "flow")
    with armed(f"{point}:{damage.BEFORE}:full"), pytest.raises(RunError, match="No space left on device"):
        flow.epoch(damage.epoch_of(damage.BEFORE))
    flow.restart()
    assert damage.finished(flow) == expected
