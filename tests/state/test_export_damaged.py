"""An export beside damage, and beside a flow that goes on: what can be read is there, and what is gone is no damage."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer

from braidstream.cli.rollback import export_state
from braidstream.errors import DamagedState, RunError
from braidstream.model.snapshots import Ref
from braidstream.state.exporting import export
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.section import Section
from tests.state.damage import BEFORE, epoch_of, flow_in


def test_an_export_goes_on_beside_what_is_damaged_and_names_it(tmp_path: Path) -> None:
    """It is the last resort: what can be read is saved, and one may try it again."""
    flow = flow_in(tmp_path / "flow")
    files, manifest = Files(flow._root), flow.manifest
    whole = export(files, manifest, tmp_path / "whole", lambda done, total: None)
    assert not whole.damaged
    entries = [entry for entry in manifest.sections.entries().values() if entry.ref and entry.section.segments]
    section, held = entries[0].ref.name, {one.name for one in entries[0].section.segments}
    segment = min({one.name for one in manifest.segments} - held)
    victims = [Path(flow._root, name) for name in (section, segment)]
    for victim in victims:
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    made = export(files, Manifest.read(files, manifest.epoch), tmp_path / "out", lambda done, total: None)
    assert set(made.damaged) == {str(victim) for victim in victims}
    here = {path.stem: path for path in (tmp_path / "out").rglob("*.parquet")}
    there = {path.stem: path for path in (tmp_path / "whole").rglob("*.parquet")}
    lost = {Path(name).stem for name in (segment, *held)}
    assert there.keys() - lost <= here.keys() < there.keys()
    assert all(pq.read_table(here[name]).equals(pq.read_table(there[name])) for name in there.keys() - lost)
    assert sum(made.rows.values()) == sum(pq.read_table(path).num_rows for path in here.values())


def test_the_command_says_what_an_export_has_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = flow_in(tmp_path / "flow")
    victim = Path(flow._root, sorted(segment.name for segment in flow.manifest.segments if segment.rows)[0])
    victim.unlink()
    with pytest.raises(typer.Exit) as ended:
        export_state(flow._root, tmp_path / "out", None, as_json=False)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().out
    assert f"left out: {victim}: this segment is missing" in said
    assert "but for the rows of 1 damaged file" in said


def test_an_epoch_that_a_flow_retires_while_it_is_exported_is_not_called_damaged(tmp_path: Path) -> None:
    flow = flow_in(tmp_path / "flow")

    def goes_on(done: int, total: int) -> None:
        for number in range(flow.manifest.epoch + 1, BEFORE + 4 if done == 1 else 0):
            flow.epoch(epoch_of(number))

    with pytest.raises(RunError, match=f"epoch {BEFORE - 1} was retired while it was exported"):
        export(Files(flow._root), flow.manifest, tmp_path / "out", goes_on)
    made = export(Files(flow._root), flow.manifest, tmp_path / "out", lambda done, total: None)
    assert made.rows
    assert not made.damaged


def test_a_manifest_that_is_replaced_while_it_is_exported_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As clean-ups at the end of the input do, and changes of queries: what it was in then is gone."""
    flow = flow_in(tmp_path / "flow")
    files, plain = Files(flow._root), Section.read

    def late(files: Files, ref: Ref) -> Section:
        monkeypatch.undo()
        flow.finish()
        return plain(files, ref)

    manifest = Manifest.read(files, flow.manifest.epoch)
    monkeypatch.setattr(Section, "read", late)
    with pytest.raises(RunError, match=f"epoch {BEFORE - 1} was replaced while it was exported"):
        export(files, manifest, tmp_path / "out", lambda done, total: None)
    assert not export(files, Manifest.read(files, BEFORE - 1), tmp_path / "out", lambda done, total: None).damaged


def test_the_command_exports_without_a_ledger_and_names_a_checkpoint_without_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger says nothing of rows."""
    flow = flow_in(tmp_path / "flow")
    for path in Path(flow._root).glob("manifests/*.ledger"):
        path.write_bytes(b"no")
    export_state(flow._root, tmp_path / "out", None, as_json=False)
    assert f"has the state of {flow._root} after epoch {BEFORE - 1}\n" in capsys.readouterr().out
    for path in Path(flow._root).glob("manifests/*.root"):
        path.unlink()
    with pytest.raises(DamagedState, match="no manifest is left"):
        export_state(flow._root, tmp_path / "other", 3, as_json=False)
