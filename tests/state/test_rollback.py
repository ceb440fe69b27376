"""Back to any kept epoch: the answer after it is exact, whatever dies on the way; and what repair and export do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from braidstream.errors import DamagedState, InputError, RunError
from braidstream.lab.testing.harness import Harness
from braidstream.model.values import changed
from braidstream.state.checkpoint import INTENT, Checkpoint, refuse_begun
from braidstream.state.exporting import export
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.rolling_back import plan_rollback, roll_back
from braidstream.state.verifying import verify
from braidstream.state.whole_epochs import result_files
from tests.state.damage import AFTER, BEFORE, N, epoch_of, finished, flow_in


def noted(flow: Harness) -> Harness:
    """The harness with what a launch notes: the folders of its sinks."""
    notes = changed(flow.manifest.notes, folders={str(flow.folder / "out" / "q"): -1})
    flow.runner.manifest = flow.runner.flow.checkpoint.commit(flow.manifest.with_notes(notes))
    return flow


def rolled(flow: Harness, epoch: int) -> list[str]:
    checkpoint = Checkpoint(flow._root, 3)
    checkpoint.take(ttl_s=0.0)
    removed = roll_back(checkpoint, plan_rollback(checkpoint, epoch), flow._identity.flow)
    checkpoint.release()
    return removed


@pytest.mark.parametrize("epoch", [BEFORE - 1, BEFORE - 2, BEFORE - 3])
def test_after_a_rollback_the_answer_is_exact(tmp_path: Path, epoch: int) -> None:
    expected = finished(flow_in(tmp_path / "whole"))
    flow = noted(flow_in(tmp_path / "flow"))
    removed = rolled(flow, epoch)
    assert (not removed) == (epoch == BEFORE - 1)
    assert not verify(Checkpoint(flow._root)).damaged
    assert Manifest.epochs(Files(flow._root))[-1] == epoch
    log = Checkpoint(flow._root).log
    assert (log.last("offsets"), log.last("commits")) == (epoch, epoch)
    listed = (flow.folder / "ck" / log.folder / "sources" / "0").glob("[0-9]*")
    assert max(int(path.name) for path in listed) == epoch
    flow.restart()
    assert flow.manifest.epoch == epoch
    assert finished(flow) == expected


def test_results_of_steps_after_the_epoch_go_too(tmp_path: Path) -> None:
    """The last clean-up delivers in steps, which are no epochs."""
    flow = noted(flow_in(tmp_path / "flow"))
    expected = finished(flow)
    assert flow.manifest.notes.steps > 0
    rolled(flow, BEFORE + AFTER - 2)
    flow.restart()
    assert finished(flow) == expected


@pytest.mark.parametrize("fatal", [1, 6, 13])
def test_a_rollback_that_dies_is_refused_by_starts_and_done_again(
    tmp_path: Path, fatal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finished(flow_in(tmp_path / "whole"))
    flow = noted(flow_in(tmp_path / "flow"))
    plain, times = Files.delete, 0

    def dies(self: Files, name: str) -> None:
        nonlocal times
        times += 1
        if times == fatal:
            raise KeyboardInterrupt
        plain(self, name)

    monkeypatch.setattr(Files, "delete", dies)
    with pytest.raises(KeyboardInterrupt):
        rolled(flow, BEFORE - 3)
    monkeypatch.undo()
    with pytest.raises(RunError, match=f"rollback to epoch {BEFORE - 3} was begun"):
        refuse_begun(Files(flow._root))
    rolled(flow, BEFORE - 3)
    refuse_begun(Files(flow._root))
    flow.restart()
    assert finished(flow) == expected


def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    flow = noted(flow_in(tmp_path / "flow"))
    checkpoint = Checkpoint(flow._root)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for epoch in (0, -1, BEFORE):
        with pytest.raises(InputError, match=f"epoch {epoch} is not kept") as caught:
            plan_rollback(checkpoint, epoch)
        assert "3 to 5" in caught.value.expected
    plan_rollback(checkpoint, 4)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "flow" / "ck" / "offsets" / "offsets" / "4").unlink()
    with pytest.raises(DamagedState, match="offsets/4"):
        plan_rollback(checkpoint, 4)
    assert not (tmp_path / "flow" / "ck" / INTENT).exists()


def test_a_reader_of_whole_epochs_never_sees_a_part_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = noted(flow_in(tmp_path / "flow"))
    folder = flow.folder / "out" / "q"

    def by_epoch() -> dict[str, int]:
        numbers = [os.path.basename(name).split("-")[2] for name in result_files(str(folder))]  # noqa: PTH119
        return {number: numbers.count(number) for number in numbers}

    whole, plain, seen = by_epoch(), Files.delete, list[dict[str, int]]()

    def watched(self: Files, name: str) -> None:
        plain(self, name)
        seen.append(by_epoch())

    monkeypatch.setattr(Files, "delete", watched)
    rolled(flow, BEFORE - 3)
    assert all(found.items() <= whole.items() for found in seen)


def test_repair_deletes_orphans_and_nothing_else(tmp_path: Path) -> None:
    flow = flow_in(tmp_path / "flow")
    root, checkpoint = Path(flow._root), Checkpoint(flow._root)
    flow.restart()
    before = {path for path in root.rglob("*") if path.is_file()}
    orphans = {root / "segments" / "0000000009-0-aa.arrow", root / "staged" / "x.parquet"}
    for path in orphans:
        path.write_bytes(b"left")
    assert {root / name for name in checkpoint.orphans()} == orphans
    checkpoint.take(ttl_s=0.0)
    assert {root / name for name in checkpoint.repair()} == orphans
    checkpoint.release()
    kept = {path for path in before if path.parent.name in ("manifests", "sections", "segments")}
    assert kept <= {path for path in root.rglob("*") if path.is_file()}
    victim = sorted(root.glob("manifests/[0-9]*.root"))[0]
    victim.write_bytes(b"no")
    with pytest.raises(DamagedState):
        checkpoint.orphans()


def test_export_has_every_live_row_once(tmp_path: Path) -> None:
    flow = flow_in(tmp_path / "flow")
    manifest = flow.manifest
    counts = export(Files(flow._root), manifest, tmp_path / "out", lambda done, total: None)
    watermark = manifest.watermark or 0
    for name in "RS":
        found = pq.read_table(tmp_path / "out" / f"{name}[k]").to_pylist()
        assert counts[f"{name}[k]"] == len(found)
        have = [(row["k"], row["v"], row["ts"]) for row in found]
        assert len(have) == len(set(have))
        rows = [row for number in range(BEFORE) for row in epoch_of(number)[name].to_pylist()]
        live = {(r["k"], r["v"], r["ts"]) for r in rows if _us(r["ts"]) + 3 * N >= watermark}
        assert live <= set(have) <= {(r["k"], r["v"], r["ts"]) for r in rows}
        assert all(row["__t"] == row["ts"] for row in found)
    with pytest.raises(InputError, match="is there already"):
        export(Files(flow._root), manifest, tmp_path / "out", lambda done, total: None)


def _us(time: Any) -> int:
    return round(time.timestamp() * 1e6)
