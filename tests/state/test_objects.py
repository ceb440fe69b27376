"""Checkpoints and results in an object store: obstore's own in memory here, a real server in tests/world/test_s3.py."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import MemoryStore

from braidstream.errors import DamagedState, InputError
from braidstream.state import copies, files, objects
from braidstream.state import lease as leases
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.rolling_back import plan_rollback
from braidstream.state.verifying import verify
from tests.state import object_stories as stories


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    store = MemoryStore()
    monkeypatch.setattr(objects, "_s3_store", lambda _: store)
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    files._resolve.cache_clear()
    yield stories.new_root("bucket")
    files._resolve.cache_clear()


@pytest.mark.parametrize("is_fast", [True, False], ids=["the other has gone on", "the other has just begun"])
def test_an_owner_that_wakes_up_after_a_takeover_changes_nothing(tmp_path: Path, root: str, is_fast: bool) -> None:
    stories.check_steps(tmp_path, root, 12, is_fast=is_fast)


@pytest.mark.slow
@pytest.mark.parametrize("is_fast", [True, False], ids=["the other has gone on", "the other has just begun"])
def test_an_owner_is_stopped_before_each_of_its_steps(tmp_path: Path, root: str, is_fast: bool) -> None:
    stories.check_steps(tmp_path, root, 1, is_fast=is_fast)


@pytest.mark.parametrize("every", [23, pytest.param(3, marks=pytest.mark.slow)])
def test_an_owner_changes_nothing_whatever_became_of_its_lease(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(leases, "_TTL_S", 0.0)
    stories.check_damaged_leases(tmp_path, root, every)


@pytest.mark.parametrize("kind", list(stories.ACTS))
@pytest.mark.parametrize("is_fast", [True, False], ids=["the flow has gone on", "the flow has just started"])
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_who_is_stopped_while_a_checkpoint_is_rolled_back_changes_nothing(
    tmp_path: Path, root: str, every: int, kind: str, is_fast: bool
) -> None:
    """Names of roots and marks come again after it."""
    stories.check_rolled_back_under(tmp_path, root, every, kind, is_fast=is_fast)


def test_restarts_with_other_slots_give_the_same_results(tmp_path: Path, root: str) -> None:
    stories.check_restarts(tmp_path, root, seed=1)


@pytest.mark.parametrize(
    "check",
    [
        stories.check_one_of_many,
        stories.check_claims,
        stories.check_taken_away,
        stories.check_replaced,
        stories.check_leases,
    ],
)
def test_puts_are_conditional(root: str, check: object) -> None:
    assert callable(check)
    check(root)


def test_a_copy_of_sparks_log_counts_when_it_is_whole(root: str) -> None:
    store = Checkpoint(root)
    for name in ("metadata", "offsets/0", "commits/0"):
        store.files.replace(f"offsets/{name}", b"v1")
    store.files.replace("offsets-3/metadata", b"v1")
    assert store.offsets == f"s3a://{store.files.path('offsets')}"
    store.files.replace("offsets-3/_copied", b"")
    assert store.offsets == f"s3a://{store.files.path('offsets-3')}"


def test_a_start_asks_for_one_object_however_many_there_are(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, listed = Files(root), []
    for n in range(5):
        store.replace(f"{n}.parquet", b"")
    real = obstore.list

    def counting(*given: Any, **options: Any) -> Iterator[Any]:
        for part in real(*given, **options):
            listed.extend(part)
            yield part

    monkeypatch.setattr(objects.obstore, "list", counting)
    monkeypatch.setattr(objects.Objects, "_listed", lambda *_: pytest.fail("all of a folder was listed"))
    store.ask()
    assert len(listed) == 1


def test_the_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files._resolve.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError) as refused:
        Files("s3://bucket/ck")
    for part in ("s3://bucket/ck", "obstore", "pip install 'braidstream[s3]'"):
        assert part in str(refused.value)


def test_copies_beyond_the_limit_go_those_unused_for_longest_first(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(copies.LIMIT_VARIABLE, "1")
    copies._SINCE.clear()
    store, kept = Files(root), Files(root)
    names = [f"segments/{n}.arrow" for n in range(16)]
    for n, name in enumerate(names):
        with store.creating(name) as sink:
            sink.write(bytes([n]) * 100_000)
        kept.map(names[0]).close()
    assert store.fetched == 0
    here = {path.name for path in (tmp_path / "tmp").rglob("*.arrow")}
    assert sum(path.stat().st_size for path in (tmp_path / "tmp").rglob("*.arrow")) <= 1.1 * (1 << 20)
    assert {"0.arrow", "15.arrow"} <= here
    assert "1.arrow" not in here
    with store.map(names[1]) as again:
        assert again.read() == bytes([1]) * 100_000
    assert (store.fetched, kept.fetched) == (1, 0)


@pytest.mark.parametrize("is_done", [True, False], ids=["it was done", "it was not done"])
@pytest.mark.parametrize(
    ("what", "name", "lost", "n_whole"),
    [("add", "1.ledger", 1, 1), ("add", "1.root", 1, 2), ("add", "1.root", 2, 2), ("replace", "1.root", 1, 1)],
    ids=["of a name that never comes again", "a claim", "over a claim", "in the place of another"],
)
def test_a_put_whose_answer_was_lost_is_done_once(
    root: str, monkeypatch: pytest.MonkeyPatch, what: str, name: str, lost: int, n_whole: int, is_done: bool
) -> None:
    real, n_puts = obstore.put, []

    def put(*given: Any, **named: Any) -> Any:
        n_puts.append(1)
        if len(n_puts) != lost:
            return real(*given, **named)
        if is_done:
            real(*given, **named)
        raise GenericError("connection closed before message completed")

    monkeypatch.setattr(objects.obstore, "put", put)
    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    store = Files(root)
    getattr(store, what)(f"manifests/{name}", b"content")
    assert store.read(f"manifests/{name}") == b"content"
    assert len(n_puts) == n_whole + (not is_done)


def test_who_comes_second_is_told_so_even_if_its_answer_was_lost(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = Files(root), Files(root)
    other.add("manifests/1.root", b"of the other")

    def put(*_: Any, **__: Any) -> Any:
        raise AlreadyExistsError("a second try of the client finds what the first has put, or another one did")

    monkeypatch.setattr(objects.obstore, "put", put)
    with pytest.raises(FileExistsError):
        store.add("manifests/1.root", b"mine")
    store.add("manifests/1.root", b"of the other")  # the same content is the same commit


def test_a_large_object_is_fetched_in_parts(root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A segment may be larger than an executor's memory."""
    monkeypatch.setattr(objects, "_BUFFER", 1 << 12)
    monkeypatch.setattr(files, "_CHUNK", 1 << 12)
    store, content, parts = Files(root), random.Random(1).randbytes(100_001), list[int]()
    plain = objects._Opened.read

    def counted(self: Any, size: int = -1) -> bytes:
        part = plain(self, size)
        parts.append(len(part))
        return part

    monkeypatch.setattr(objects._Opened, "read", counted)
    for name, own in (("segments/large.arrow", content), ("segments/empty.arrow", b""), ("segments/small.arrow", b"x")):
        store.replace(name, own)
        with store.map(name) as copy:
            assert copy.read() == own
        assert store.read(name) == own
    assert sum(parts) == 2 * len(content)
    assert max(parts[:25]) <= 1 << 12
    assert store.fetched == 3


def test_an_object_that_goes_while_it_is_read_is_missing_and_no_riddle(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_BUFFER", 1 << 12)
    store = Files(root)
    store.replace("segments/a.arrow", bytes(1 << 16))
    store.direct = True
    with store.reading("segments/a.arrow") as source:
        assert len(source.read(1 << 12)) == 1 << 12
        store.delete("segments/a.arrow")
        with pytest.raises(FileNotFoundError):
            source.read()


def test_a_lease_that_was_deleted_does_not_begin_anew(root: str, tmp_path: Path) -> None:
    stories.check_deleted_lease(tmp_path, root)


def test_offsets_that_were_changed_are_refused_by_name(root: str, tmp_path: Path) -> None:
    """Hadoop writes no checksums there. What was changed can be read, and would be believed."""
    flow = stories.started(tmp_path, root)
    store, checkpoint = Files(f"{root}/ck"), Checkpoint(f"{root}/ck")

    def log(epoch: int, offset: int) -> None:
        folder = checkpoint.log.folder
        store.replace(f"{folder}/metadata", b"{}")
        store.replace(f"{folder}/offsets/{epoch}", b'v1\n{"batchWatermarkMs":0}\n{"logOffset":%d}' % offset)
        store.replace(f"{folder}/sources/0/{epoch}", b"v1\n{}")
        store.replace(f"{folder}/commits/{epoch}", b"v1\n{}")

    for epoch in range(3):
        log(epoch, epoch)
        flow.epoch(stories.rows(epoch))
    checkpoint.check_offsets(2)
    assert verify(checkpoint).damaged == []
    for epoch in (2, 1):
        log(epoch, 0)
        with pytest.raises(DamagedState, match="its checksum does not fit") as caught:
            checkpoint.check_offsets(2)
        assert caught.value.path == store.path(f"offsets/offsets/{epoch}")
        assert [one.path for one in verify(checkpoint).damaged] == [caught.value.path]
        with pytest.raises(DamagedState, match=f"offsets/{epoch}"):
            plan_rollback(checkpoint, epoch)
        log(epoch, epoch)
    flow.restart()
    checkpoint.check_offsets(2)
    log(3, 3)
    flow.epoch(stories.rows(3))
    checkpoint.check_offsets(3)
