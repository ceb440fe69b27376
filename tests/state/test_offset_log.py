"""What a crash leaves in Spark's log is swept; what is missing or damaged is named before Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from braidstream.errors import DamagedState
from braidstream.model.directory import Directory
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest

N_EPOCHS = 13
FILE = '{"path":"file:///R/0.parquet","timestamp":1,"batchId":0}'


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.with_name(f".{path.name}.crc").write_bytes(b"crc")


def made(folder: Path, n_epochs: int = N_EPOCHS) -> Checkpoint:
    """A checkpoint after some epochs, with Spark's log as Spark writes it: every tenth entry of a source is compact."""
    checkpoint = Checkpoint(str(folder), n_epochs + 1)
    checkpoint.create(Identity.new("flow", {}, {}), Manifest(-1, Directory.of(1), 1))
    checkpoint.sweep()
    log = folder / "offsets"
    put(log / "metadata", '{"id":"x"}')
    for epoch in range(n_epochs):
        for source in "01":
            put(log / "sources" / source / (f"{epoch}.compact" if epoch % 10 == 9 else str(epoch)), f"v1\n{FILE}")
        put(log / "offsets" / str(epoch), f'v1\n{{"conf":{{}}}}\n{{"logOffset":{epoch}}}\n{{"logOffset":{epoch}}}')
        checkpoint.commit(replace(checkpoint.latest(), epoch=epoch))
        put(log / "commits" / str(epoch), 'v1\n{"nextBatchWatermarkMs":0}')
    return checkpoint


def listed(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("where", ["", "offsets", "commits", "sources/0", "sources/1", "state/0/0"])
def test_files_on_their_way_are_swept_wherever_they_are(tmp_path: Path, where: str) -> None:
    made(tmp_path)
    before = listed(tmp_path)
    for name in (".12.5a.tmp", "..12.5a.tmp.crc", ".19.compact.5a.tmp", "..metadata.5a.tmp.crc", ".99.crc"):
        path = tmp_path / "offsets" / where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    again = Checkpoint(str(tmp_path), N_EPOCHS + 1)
    again.check_offsets(N_EPOCHS - 1)
    again.sweep()
    assert listed(tmp_path) == before


@pytest.mark.parametrize("content", ["", "v1", "v1\n{}", 'v1\n{"conf":{}}\n{"logOff'])
def test_half_an_entry_of_an_epoch_that_was_not_committed_is_swept(tmp_path: Path, content: str) -> None:
    made(tmp_path)
    before = listed(tmp_path)
    for name in (f"offsets/{N_EPOCHS}", f"sources/0/{N_EPOCHS}"):
        put(tmp_path / "offsets" / name, "" if "sources" in name else content)
    put(tmp_path / "offsets" / "commits" / str(N_EPOCHS - 1), "")
    again = Checkpoint(str(tmp_path), N_EPOCHS + 1)
    again.check_offsets(N_EPOCHS - 1)
    again.sweep()
    assert before - listed(tmp_path) == {f"offsets/commits/{x}" for x in (f"{N_EPOCHS - 1}", f".{N_EPOCHS - 1}.crc")}
    assert listed(tmp_path) < before


def test_a_log_without_an_epoch_begins_anew(tmp_path: Path) -> None:
    made(tmp_path, 0)
    put(tmp_path / "offsets" / "metadata", "")
    put(tmp_path / "offsets" / "sources" / "0" / "0", f"v1\n{FILE}")
    put(tmp_path / "offsets" / "offsets" / "0", "")
    again = Checkpoint(str(tmp_path))
    again.check_offsets(-1)
    again.sweep()
    assert not (tmp_path / "offsets").exists()


def test_an_epoch_that_was_begun_is_kept(tmp_path: Path) -> None:
    made(tmp_path, 0)
    put(tmp_path / "offsets" / "metadata", '{"id":"x"}')
    put(tmp_path / "offsets" / "sources" / "0" / "0", f"v1\n{FILE}")
    put(tmp_path / "offsets" / "offsets" / "0", 'v1\n{}\n{"logOffset":0}')
    before = listed(tmp_path)
    again = Checkpoint(str(tmp_path))
    again.check_offsets(-1)
    again.sweep()
    assert listed(tmp_path) == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [Path.unlink, cut, empty], ids=["missing", "cut off", "empty"])
@pytest.mark.parametrize(
    "name", ["metadata", "offsets/12", "offsets/11", "sources/0/12", "sources/1/10", "sources/1/9.compact"]
)
def test_a_file_that_a_start_needs_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    checkpoint = made(tmp_path)
    checkpoint.check_offsets(N_EPOCHS - 1)
    victim = tmp_path / "offsets" / name
    damage(victim)
    with pytest.raises(DamagedState) as caught:
        checkpoint.check_offsets(N_EPOCHS - 1)
    if not (name == "offsets/12" and damage is Path.unlink):  # then the log ends before the state
        assert str(victim).removesuffix(".compact") == caught.value.path.removesuffix(".compact")
    assert "restore" in caught.value.fix


@pytest.mark.parametrize("name", ["offsets/3", "commits/4", "sources/0/8"])
def test_a_file_that_no_start_needs_any_more_may_be_gone(tmp_path: Path, name: str) -> None:
    checkpoint = made(tmp_path)
    (tmp_path / "offsets" / name).unlink()
    checkpoint.check_offsets(N_EPOCHS - 1)
