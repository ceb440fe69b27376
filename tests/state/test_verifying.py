"""`braid verify` in one process: everything whole, everything damaged at once, and files from before checksums."""

from __future__ import annotations

import errno
import json
import shutil
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from braidstream.errors import CheckpointMismatch, DamagedState, InputError
from braidstream.lab.testing.harness import Harness
from braidstream.model.snapshots import Ref
from braidstream.state import files as files_module
from braidstream.state import manifest as manifests
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.exporting import export
from braidstream.state.files import Files
from braidstream.state.identity import FORMAT, Identity
from braidstream.state.manifest import FileRef, manifest_name
from braidstream.state.seals import check_seal, file_checksum, seal_seconds, sealing
from braidstream.state.section import Section
from braidstream.state.verifying import verify
from tests.state.damage import BEFORE, elsewhere, finished, flow_in, remote_flow_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    flow_in(tmp_path / "flow")
    return tmp_path / "flow" / "ck"


def test_a_whole_checkpoint_is_whole_and_all_its_bytes_are_read(root: Path) -> None:
    told: list[tuple[int, int]] = []
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = verify(Checkpoint(str(root)), lambda done, total: told.append((done, total)))
    assert (found.damaged, found.unsealed) == ([], 0)
    assert found.epochs == [3, 4, 5]
    assert found.bytes == sum(path.stat().st_size for path in (root / "segments").iterdir())
    assert told[-1] == (found.bytes, found.bytes)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_damaged_file_is_named_not_only_the_first(root: Path) -> None:
    victims = [
        root / "flow.json",
        sorted(root.glob("manifests/[0-9]*.root"))[0],
        sorted(root.glob("segments/*.arrow"))[0],
        sorted(root.glob("segments/*.arrow"))[-1],
        root / "offsets" / "offsets" / "5",
    ]
    for victim in victims:
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    assert {one.path for one in verify(Checkpoint(str(root))).damaged} >= {str(victim) for victim in victims}


@pytest.mark.parametrize("kind", ["routing", "ledger"])
def test_beside_a_damaged_part_of_a_manifest_the_rest_is_looked_at(root: Path, kind: str) -> None:
    victims = [*root.glob(f"manifests/*.{kind}"), sorted(root.glob("segments/*.arrow"))[-1]]
    for victim in victims:
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    found = verify(Checkpoint(str(root)))
    assert {one.path for one in found.damaged} == {str(victim) for victim in victims}
    assert found.epochs == []


def test_a_log_that_is_gone_is_told(root: Path) -> None:
    shutil.rmtree(root / "offsets")
    assert [one.what for one in verify(Checkpoint(str(root))).damaged] == [
        "Spark's offset log ends at epoch -1, the state at epoch 5"
    ]


def test_an_epoch_that_is_committed_meanwhile_is_no_contradiction(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifests were listed before it, the log after it."""
    plain = Checkpoint.check_offsets

    def a_moment_later(self: Checkpoint, latest: int) -> None:
        if latest == 4:
            late.rename(there)
            monkeypatch.undo()
        plain(self, latest)

    there = root / "manifests" / "0000000006.root"
    late = there.rename(root.parent / there.name)
    monkeypatch.setattr(Checkpoint, "check_offsets", a_moment_later)
    assert verify(Checkpoint(str(root))).damaged == []


@pytest.mark.parametrize("n_epochs", [BEFORE, 0])
def test_a_checkpoint_that_is_closed_contradicts_nothing(tmp_path: Path, n_epochs: int) -> None:
    """The end of a flow is an epoch that Spark knows nothing of."""
    flow = flow_in(tmp_path / "flow", n_epochs=n_epochs)
    flow.finish(final=True)
    checkpoint = Checkpoint(flow._root)
    assert checkpoint.latest().notes.is_closed
    assert verify(checkpoint).damaged == []
    assert set(checkpoint.orphans()) <= {"manifests/pending.root"}
    if n_epochs:
        shutil.rmtree(tmp_path / "flow" / "ck" / "offsets")
        assert verify(checkpoint).damaged


def test_a_manifest_that_is_missing_in_the_middle_is_told(root: Path) -> None:
    """`braid repair` refuses for that reason; this is where one looks for more."""
    lost = root / manifest_name(4)
    lost.unlink()
    (damage,) = verify(Checkpoint(str(root))).damaged
    assert str(damage) == f"{lost}: this manifest is missing: those of epochs 3 and 5 are there"


@pytest.mark.parametrize("when", ["before its ledger is read", "before its sections are read"])
def test_a_manifest_that_is_replaced_meanwhile_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A clean-up at the end of the input, and a change of queries, write that of the last epoch again."""
    flow = flow_in(tmp_path / "flow")
    last, read, got = flow.manifest, Section.read, manifests._got

    def goes_on() -> None:
        monkeypatch.undo()
        flow.finish()

    def late_section(files: Files, ref: Ref) -> Section:
        if ref.name.startswith("sections/0000000006-"):  # of the last epoch
            goes_on()
        return read(files, ref)

    def late_ledger(files: Files, ref: FileRef, what: str) -> bytes:
        if ref == last.ledger:
            goes_on()
        return got(files, ref, what)

    if "ledger" in when:
        monkeypatch.setattr(manifests, "_got", late_ledger)
    else:
        monkeypatch.setattr(Section, "read", late_section)
    found = verify(Checkpoint(flow._root))
    assert (found.damaged, found.epochs) == ([], [3, 4, 5])
    assert flow.manifest.notes.steps > 0


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        verify(Checkpoint(str(tmp_path / "no")))
    with pytest.raises(InputError, match="is no checkpoint"):
        verify(Checkpoint(str(tmp_path)))


def test_an_older_format_is_upgraded_after_a_copy_and_a_newer_one_refused(root: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(root))
    known = checkpoint.identity()
    assert known is not None
    old = json.dumps({"format": 1, **known.__dict__}).encode()
    (root / "flow.json").write_bytes(old)
    assert checkpoint.identity() == known
    metadata = {path.relative_to(root): path.read_bytes() for path in (root / "manifests").iterdir()}
    checkpoint.sweep()
    copies = root / f"before-format-{FORMAT}"
    assert {name: (copies / name).read_bytes() for name in metadata} == metadata
    assert (copies / "flow.json").read_bytes() == old
    assert json.loads((root / "flow.json").read_bytes())["format"] == FORMAT
    assert checkpoint.identity() == known
    (root / "flow.json").write_bytes(json.dumps({"format": FORMAT + 1, "what": "ever"}).encode())
    with pytest.raises(CheckpointMismatch, match=f"of format {FORMAT + 1}"):
        checkpoint.identity()


def test_a_changed_id_of_the_flow_is_damage(root: Path) -> None:
    plain = json.loads((root / "flow.json").read_text())
    (root / "flow.json").write_text(json.dumps({**plain, "flow": "another"}))
    with pytest.raises(DamagedState, match="its checksum does not fit"):
        Identity.read(Checkpoint(str(root)).files)


def test_slots_say_what_checksums_cost(tmp_path: Path) -> None:
    flow = flow_in(tmp_path / "flow")
    other = elsewhere(flow, tmp_path / "other")
    other.restart()
    before = seal_seconds()
    finished(other)
    told = sum(entry.sealing_s for entry in other.runner.progress)
    assert 0 < told <= seal_seconds() - before


def test_a_segment_that_is_fetched_to_be_checked_counts_as_fetched(tmp_path: Path) -> None:
    """Once: what was checked in a run is not read again."""
    files = Files(f"copy+file://{tmp_path}/remote", cache=str(tmp_path / "copies"), run="a run")
    files.make("segments")
    with sealing(files, "segments/a.arrow") as sink:
        sink.write(b"some bytes")
    shutil.rmtree(tmp_path / "copies")
    for _ in range(2):
        check_seal(files, "segments/a.arrow", sink.checksum, sink.size, run=files.run)
        assert files.fetched == 1
    (tmp_path / "remote" / "segments" / "a.arrow").write_bytes(b"other byte")
    shutil.rmtree(tmp_path / "copies")
    with pytest.raises(DamagedState, match="its checksum does not fit"):
        check_seal(files, "segments/a.arrow", sink.checksum, sink.size, run="another run")


@pytest.mark.parametrize("content", [b"", b"x", b"some bytes" * 100_000], ids=["empty", "one byte", "many pieces"])
def test_what_format_2_sealed_is_checked_by_its_checksum(tmp_path: Path, content: bytes) -> None:
    """CRC-32 then, xxh3 now: the number tells which."""
    files = Files(str(tmp_path))
    with sealing(files, "a.arrow") as sink:
        sink.write(content)
    old = zlib.crc32(content)
    assert sink.checksum >= 1 << 62 > old
    for checksum in (sink.checksum, old):
        check_seal(files, "a.arrow", checksum, len(content))
        assert file_checksum(files, "a.arrow", checksum) == (checksum, len(content))
    (tmp_path / "a.arrow").write_bytes(b"y" + content[1:])
    for checksum in (sink.checksum, old):
        with pytest.raises(DamagedState, match="its checksum does not fit" if content else "1 bytes, 0 bytes were"):
            check_seal(files, "a.arrow", checksum, len(content))


def remote_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Harness, Path, Path]:
    """A flow whose checkpoint is treated like a remote one, the folder of it, and that of its copies."""
    monkeypatch.setattr(files_module.tempfile, "gettempdir", lambda: str(tmp_path / "copies"))
    flow = remote_flow_in(tmp_path / "flow")
    (copies,) = (tmp_path / "copies" / "braidstream-copies").iterdir()
    return flow, tmp_path / "flow" / "ck", copies


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_is_fetched_again_is_checked_again(tmp_path: Path) -> None:
    """Copies go when there are too many of them; the file may have been damaged since it was checked."""
    files = Files(f"copy+file://{tmp_path}/remote", cache=str(tmp_path / "copies"), run="a run")
    files.make("segments")
    with sealing(files, "segments/a.arrow") as sink:
        sink.write(b"some bytes")
    check_seal(files, "segments/a.arrow", sink.checksum, sink.size, run=files.run)
    (tmp_path / "remote" / "segments" / "a.arrow").write_bytes(b"other byte")
    check_seal(files, "segments/a.arrow", sink.checksum, sink.size, run=files.run)
    shutil.rmtree(tmp_path / "copies")
    with pytest.raises(DamagedState, match="its checksum does not fit"):
        check_seal(files, "segments/a.arrow", sink.checksum, sink.size, run=files.run)


KINDS = ["segments/*.arrow", "sections/*.section", "manifests/*.ledger", "manifests/*.routing"]


@pytest.mark.parametrize("kind", KINDS[:2])
def test_of_a_remote_checkpoint_the_files_are_verified_and_not_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    flow, root, copies = remote_flow(tmp_path, monkeypatch)
    assert verify(Checkpoint(flow._root)).damaged == []
    for copy in copies.glob(kind):
        damage(copy)
    assert verify(Checkpoint(flow._root)).damaged == []
    victim = sorted(root.glob(kind))[-1]
    shutil.copy(victim, copies / victim.relative_to(root))
    damage(victim)
    assert [one.path for one in verify(Checkpoint(flow._root)).damaged] == [str(victim)]


@pytest.mark.parametrize("how", ["torn", "empty"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_was_torn_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    """Copies are on no disk for sure: after a power failure a start is not refused for them."""
    expected = finished(remote_flow_in(tmp_path / "whole"))
    flow, root, copies = remote_flow(tmp_path, monkeypatch)
    (names := [path.relative_to(root) for path in root.glob(kind)]).sort()
    assert names
    for name in names:
        (copies / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, copies / name)
        if how == "torn":
            damage(copies / name)
        else:
            (copies / name).write_bytes(b"")
    flow.restart()
    assert finished(flow) == expected
    assert export(Files(flow._root), flow.manifest, tmp_path / "state", lambda done, total: None).damaged == {}


def test_what_is_damaged_itself_is_refused_by_name_and_its_copy_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, root, copies = remote_flow(tmp_path, monkeypatch)
    victim = Path(root, next(s.name for s in flow.manifest.segments if s.rows))
    damage(victim)
    shutil.rmtree(copies)
    flow.restart()
    with pytest.raises(DamagedState, match="its checksum does not fit") as caught:
        finished(flow)
    assert caught.value.path == str(victim)


BAD_SECTOR = "/proc/self/mem"
"""Whoever reads it from its beginning is told of an input/output error."""


@pytest.mark.parametrize(
    "kind", ["segments/*.arrow", "sections/*.section", "manifests/[0-9]*.root", "offsets/offsets/5"]
)
def test_a_file_that_the_disk_does_not_give_is_damaged_and_the_rest_is_looked_at(root: Path, kind: str) -> None:
    victim = sorted(root.glob(kind))[-1]
    victim.unlink()
    victim.symlink_to(BAD_SECTOR)
    other = sorted(root.glob("segments/*.arrow"))[0]
    damage(other)
    found = {one.path: one.what for one in verify(Checkpoint(str(root))).damaged}
    assert "cannot be read (Input/output error)" in found[str(victim)]
    assert str(other) in found


def test_a_segment_that_the_disk_does_not_give_is_refused_by_name(root: Path) -> None:
    victim = sorted(root.glob("segments/*.arrow"))[0]
    victim.unlink()
    victim.symlink_to(BAD_SECTOR)
    with pytest.raises(DamagedState, match="this file cannot be read") as caught:
        check_seal(Files(str(root)), f"segments/{victim.name}", 1, run="a run")
    assert caught.value.path == str(victim)


def test_a_file_that_may_not_be_read_is_damaged_and_an_error_of_the_network_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"segments/{sorted(root.glob('segments/*.arrow'))[0].name}"
    for number, has_renames, expected in (
        (errno.EACCES, True, DamagedState),
        (errno.EIO, True, DamagedState),
        (errno.EMFILE, True, OSError),
        (errno.EIO, False, OSError),
    ):

        def refused(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, "no")

        store = Files(str(root))
        monkeypatch.setattr(store, "_system", SimpleNamespace(open_input_stream=refused))
        monkeypatch.setattr(Files, "has_renames", has_renames)
        with pytest.raises(expected):
            check_seal(store, name, 1)
        monkeypatch.undo()
