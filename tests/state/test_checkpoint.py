"""A checkpoint keeps what it needs, sweeps what nobody refers to, and refuses what it does not belong to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.model.directory import Directory
from braidstream.state import copies as local_copies
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Part, Segment

STREAMS = {"R": {"schema": "struct<k:bigint>", "time": "ts"}}


def segment(name: str) -> Segment:
    return Segment(f"segments/{name}", "R[k]", 1, 4, 0, 0, 0, 0, 0, (Part(0, 0, 1),))


def made(folder: Path, keep: int = 3) -> Checkpoint:
    checkpoint = Checkpoint(str(folder), keep)
    checkpoint.create(Identity.new("flow", STREAMS, {"q": "abc"}), Manifest(-1, Directory.of(1), 1))
    checkpoint.sweep()
    return checkpoint


def commit(checkpoint: Checkpoint, epoch: int, *names: str) -> None:
    for name in names:
        path = Path(checkpoint.files.path(f"segments/{name}"))
        if not path.exists():
            path.write_bytes(b"data")
    last = checkpoint.latest()
    checkpoint.commit(replace(last, epoch=epoch).with_segments(segment(name) for name in names))
    checkpoint.retire(epoch)


def stored(checkpoint: Checkpoint) -> list[str]:
    return checkpoint.files.names("segments")


def test_old_manifests_go_with_the_segments_that_only_they_refer_to(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    commit(checkpoint, 0, "a")
    commit(checkpoint, 1, "a", "b")
    commit(checkpoint, 2, "ab")
    assert stored(checkpoint) == ["a", "ab", "b"]
    commit(checkpoint, 3, "ab", "c")
    assert Manifest.epochs(checkpoint.files) == [1, 2, 3]
    commit(checkpoint, 4, "ab", "c", "d")
    assert Manifest.epochs(checkpoint.files) == [2, 3, 4]
    assert stored(checkpoint) == ["ab", "c", "d"]


def test_a_start_sweeps_what_no_kept_manifest_refers_to(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    commit(checkpoint, 0, "a")
    commit(checkpoint, 1, "b")
    for orphan in ("segments/lost", "staged/lost"):
        (tmp_path / orphan).write_bytes(b"data")
    again = Checkpoint(str(tmp_path), 3)
    assert again.sweep() == 2
    assert stored(again) == ["a", "b"]
    commit(again, 2, "b")
    commit(again, 3, "b")
    commit(again, 4, "b")
    assert stored(again) == ["b"]
    assert Manifest.epochs(again.files) == [2, 3, 4]


def test_nothing_is_swept_beside_a_damaged_manifest(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    commit(checkpoint, 0, "a")
    commit(checkpoint, 1, "b")
    (tmp_path / "manifests" / "0000000001.root").write_bytes(b"damaged")
    with pytest.raises(DamagedState):
        Checkpoint(str(tmp_path), 3).sweep()
    assert stored(checkpoint) == ["a", "b"]


def test_segments_are_looked_for_before_a_start(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    commit(checkpoint, 0, "a", "b")
    checkpoint.verify(checkpoint.latest())
    (tmp_path / "segments" / "a").write_bytes(b"more data")
    with pytest.raises(DamagedState, match="has 9 bytes, its manifest says 4"):
        checkpoint.verify(checkpoint.latest())
    (tmp_path / "segments" / "a").unlink()
    with pytest.raises(DamagedState, match="this segment is missing") as caught:
        checkpoint.verify(checkpoint.latest())
    assert caught.value.path == str(tmp_path / "segments" / "a")


def test_manifests_and_offsets_must_fit_together(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    (tmp_path / "offsets" / "offsets").mkdir(parents=True)
    checkpoint.check_offsets(-1)
    (tmp_path / "offsets" / "metadata").write_text('{"id": "x"}')
    for epoch in range(3):
        (tmp_path / "offsets" / "offsets" / str(epoch)).write_text("v1\n{}\n{}")
    checkpoint.check_offsets(2)  # Spark died before its commit
    checkpoint.check_offsets(1)  # we died before ours
    with pytest.raises(DamagedState, match="offset log ends at epoch 2, the state at epoch 3"):
        checkpoint.check_offsets(3)
    with pytest.raises(DamagedState, match="the state ends at epoch 0, Spark's offset log at epoch 2"):
        checkpoint.check_offsets(0)


def test_the_identity_reads_back_and_refuses_others(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    known = checkpoint.identity()
    assert known is not None
    known.check(Identity.new("renamed", STREAMS, {"q": "abc"}), "ck")
    for other, said in (
        (Identity.new("flow", STREAMS, {"q": "def"}), "query 'q' is another query"),
        (Identity.new("flow", STREAMS, {"q": "abc", "p": "abc"}), "query 'p' is not in it"),
        (Identity.new("flow", STREAMS, {}), "query 'q' is in it, but not in this flow"),
        (Identity.new("flow", {"R": {**STREAMS["R"], "time": "at"}}, {"q": "abc"}), "time is 'at', there 'ts'"),
    ):
        with pytest.raises(CheckpointMismatch, match=said):
            known.check(other, "ck")


def test_a_lost_or_damaged_identity_is_named(tmp_path: Path) -> None:
    assert Checkpoint(str(tmp_path / "nothing there")).identity() is None
    checkpoint = made(tmp_path / "ck")
    (tmp_path / "ck" / "flow.json").unlink()
    assert checkpoint.identity() is None  # it died while it was made: nothing is lost
    commit(checkpoint, 0, "a")
    with pytest.raises(DamagedState, match="identity is missing"):
        checkpoint.identity()
    (tmp_path / "ck" / "flow.json").write_text("{")
    with pytest.raises(DamagedState, match="identity is damaged"):
        checkpoint.identity()


@pytest.fixture
def remote(tmp_path: Path) -> Files:
    """A folder that is treated like a remote one, with copies in `near`."""
    files = Files(f"copy+file://{tmp_path}/far", cache=str(tmp_path / "near"))
    files.make("segments")
    return files


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "near").rglob("*") if path.is_file())


def test_a_remote_file_is_fetched_once(remote: Files, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with remote.create(f"segments/{name}") as sink:
            sink.write(name.encode())
    assert copies(tmp_path) == []
    assert [remote.map(f"segments/{name}").read() for name in ("a", "b", "a")] == [b"a", b"b", b"a"]
    assert remote.fetched == 2
    remote.delete("segments/b")
    assert not remote.exists("segments/b")
    assert copies(tmp_path) == ["a"]
    with pytest.raises(FileNotFoundError):
        remote.map("segments/b")


def test_who_writes_state_need_not_fetch_it(remote: Files, tmp_path: Path) -> None:
    with remote.creating("segments/a") as sink:
        sink.write(b"state")
        assert not (tmp_path / "far" / "segments" / "a").exists()
    assert (tmp_path / "far" / "segments" / "a").read_bytes() == b"state"
    assert remote.map("segments/a").read() == b"state"
    assert remote.fetched == 0
    with pytest.raises(KeyboardInterrupt):
        _die_while_writing(remote, "segments/b")
    assert copies(tmp_path) == ["a"]
    assert not remote.exists("segments/b")


def _die_while_writing(files: Files, name: str) -> None:
    with files.creating(name) as sink:
        sink.write(b"half")
        raise KeyboardInterrupt


def test_old_copies_are_dropped_and_fresh_ones_spared(remote: Files, tmp_path: Path) -> None:
    for name in ("kept", "old", "fresh"):
        with remote.creating(f"segments/{name}") as sink:
            sink.write(b"state")
    near = next((tmp_path / "near").rglob("old")).parent
    (near / ".old.half").touch()
    (near / ".fresh.half").touch()  # another worker is fetching
    for name in ("kept", "old", ".old.half"):
        os.utime(near / name, (1, 1))
    Path(remote.path("segments/old")).unlink()
    remote.drop_copies()
    assert copies(tmp_path) == [".fresh.half", "fresh", "kept"]


def test_a_file_larger_than_all_copies_may_be_is_read_all_the_same(
    remote: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy goes as soon as it has come. It was fetched again and again, for ever."""
    monkeypatch.setenv(local_copies.LIMIT_VARIABLE, "0")
    plain, n_fetched = Files.path, list[str]()

    def counted(self: Files, name: str) -> str:
        n_fetched.append(name)
        assert len(n_fetched) < 20
        return plain(self, name)

    with remote.create("segments/a") as sink:
        sink.write(b"state")
    monkeypatch.setattr(Files, "path", counted)
    for n in (1, 2):
        with remote.map("segments/a") as source:
            assert source.read() == b"state"
        assert remote.fetched == n
    assert copies(tmp_path) == []


def test_what_another_process_is_just_writing_is_no_copy_to_make_room_with(
    remote: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file that is there would be called missing."""
    monkeypatch.setenv(local_copies.LIMIT_VARIABLE, "0.000001")
    with remote.creating("segments/a") as sink:
        sink.write(b"state")
        sink.flush()
        with remote.creating("segments/b") as other:
            other.write(b"more")
    assert Path(remote.path("segments/a")).read_bytes() == b"state"
    assert copies(tmp_path) == []
    left = next((tmp_path / "near").rglob("segments")) / ".a.left"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    remote.map("segments/a").close()
    assert copies(tmp_path) == []


def test_what_spark_left_is_swept_though_a_manifest_is_missing_in_the_middle(tmp_path: Path) -> None:
    """Spark does not start beside it, and until it has started for some epochs the gap stays."""
    checkpoint = made(tmp_path)
    log = tmp_path / "offsets"
    for name in ("offsets", "commits"):
        (log / name).mkdir(parents=True)
    (log / "metadata").write_text('{"id": "x"}')
    for epoch in range(4):
        commit(checkpoint, epoch, "a")
        (log / "offsets" / str(epoch)).write_text("v1\n{}\n{}")
        (log / "commits" / str(epoch)).write_text("v1\n{}")
    (tmp_path / "manifests" / "0000000003.root").unlink()
    torn, on_its_way, orphan = log / "offsets" / "4", log / "commits" / ".4.0.tmp", tmp_path / "segments" / "orphan"
    for path in (torn, on_its_way, orphan):
        path.write_bytes(b"")
    again = Checkpoint(str(tmp_path), 3)
    assert again.sweep() == 2
    assert [path.exists() for path in (torn, on_its_way, orphan)] == [False, False, True]
    assert again.log.leftovers(3) == []
