"""Segments that stay mapped from task to task: nobody sees another file than there is, and nothing is kept for long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from braidstream.kernels.rows import Rows
from braidstream.state import opened
from braidstream.state.opened import begin_task, kept_open


@pytest.fixture(autouse=True)
def _nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_kept", opened._Kept())


def rows_of(path: Path, n: int) -> Callable[[], Rows]:
    """What opens a file, which says how many rows it has."""

    def look() -> Rows:
        if not path.exists():
            raise FileNotFoundError(path)
        return Rows(pa.table({"n": list(range(n))}))

    return look


def test_a_file_is_opened_once_in_a_few_tasks(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"rows")
    first = kept_open(str(path), rows_of(path, 1))
    for _ in range(10):
        begin_task()
        assert kept_open(str(path), rows_of(path, 2)) is first


def test_what_no_task_has_used_for_some_time_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"rows")
    kept_open(str(path), rows_of(path, 1))
    for _ in range(opened._TASKS):
        begin_task()
    assert len(kept_open(str(path), rows_of(path, 2))) == 2


def test_another_file_of_that_name_is_seen_and_a_deleted_one_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"rows")
    kept_open(str(path), rows_of(path, 1))
    (tmp_path / "b").write_bytes(b"rows")
    (tmp_path / "b").replace(path)
    assert len(kept_open(str(path), rows_of(path, 2))) == 2
    path.unlink()
    with pytest.raises(FileNotFoundError):
        kept_open(str(path), rows_of(path, 3))
