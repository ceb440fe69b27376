"""`braid verify` in one process: everything whole, everything damaged at once, and files from before checksums."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from braidstream.errors import CheckpointMismatch, DamagedState, InputError
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.identity import FORMAT, Identity
from braidstream.state.seals import check_seal, seal_seconds, sealing
from braidstream.state.verifying import verify
from tests.state.damage import elsewhere, finished, flow_in


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
