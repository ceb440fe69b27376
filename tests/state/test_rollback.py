"""Back to any kept epoch: the answer after it is exact, whatever dies on the way; and what repair and export do."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from braidstream.cli.rollback import rollback
from braidstream.errors import DamagedState, InputError, LeaseLost, RunError
from braidstream.lab.testing.harness import Harness
from braidstream.model.declarations import Declared, Target
from braidstream.model.values import changed
from braidstream.state.begun_rollback import INTENT, refuse_begun
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.exporting import export
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, manifest_name
from braidstream.state.rolling_back import plan_rollback, roll_back
from braidstream.state.verifying import verify
from braidstream.state.whole_epochs import result_files
from tests.state.damage import AFTER, BEFORE, N, epoch_of, finished, flow_in, spark_logs

OF_0_1_0 = Path(__file__).parents[1] / "spark" / "fixtures" / "checkpoint_0_1_0.zip"


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
    checkpoint, begun = Checkpoint(flow._root), f"rollback to epoch {BEFORE - 3} was begun"
    with pytest.raises(RunError, match=begun):
        refuse_begun(Files(flow._root))
    for later in (BEFORE - 2, BEFORE - 1):  # whose results may be gone
        with pytest.raises(InputError, match=f"{begun}|epoch {later} is not kept"):
            plan_rollback(checkpoint, later)
    with pytest.raises(RunError, match=begun):
        checkpoint.orphans()
    assert any(begun in one.what for one in verify(checkpoint).damaged)
    rolled(flow, BEFORE - 3)
    refuse_begun(Files(flow._root))
    flow.restart()
    assert finished(flow) == expected


def test_a_flow_that_goes_on_while_a_rollback_looks_at_files_loses_nothing_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would retire the epoch that is gone back to; without that, nothing would be left."""
    expected = finished(flow_in(tmp_path / "whole"))
    flow = noted(flow_in(tmp_path / "flow"))
    plain, lost = Checkpoint.verify, list[bool]()

    def long(self: Checkpoint, latest: Manifest) -> None:
        monkeypatch.undo()
        try:
            flow.epoch(epoch_of(BEFORE))
        except LeaseLost:
            lost.append(True)
        plain(self, latest)

    monkeypatch.setattr(Checkpoint, "verify", long)
    rollback(flow._root, BEFORE - 3, sinks_restored=False, dry_run=False)
    assert lost
    assert Manifest.epochs(Files(flow._root))[-1] == BEFORE - 3
    flow.restart()
    assert finished(flow) == expected


def test_a_plan_from_before_the_flow_went_on_is_refused(tmp_path: Path) -> None:
    flow = noted(flow_in(tmp_path / "flow"))
    checkpoint = Checkpoint(flow._root, 3)
    gone, kept = (plan_rollback(checkpoint, epoch) for epoch in (BEFORE - 3, BEFORE - 1))
    flow.epoch(epoch_of(BEFORE))
    checkpoint.take(ttl_s=0.0)
    before = files_below(Path(flow._root))
    for plan in (gone, kept):
        with pytest.raises(InputError, match=f"has gone on since the rollback to epoch {plan.epoch} was planned"):
            roll_back(checkpoint, plan, flow._identity.flow)
    assert files_below(Path(flow._root)) == before


def test_without_any_manifest_nothing_is_an_orphan(tmp_path: Path) -> None:
    flow = flow_in(tmp_path / "flow")
    for path in Path(flow._root, "manifests").iterdir():
        path.unlink()
    shutil.rmtree(Path(flow._root, "offsets"))
    checkpoint = Checkpoint(flow._root)
    before = files_below(Path(flow._root))
    for look in (checkpoint.sweep, checkpoint.repair, checkpoint.orphans):
        with pytest.raises(DamagedState, match="no manifest is left"):
            look()
    assert files_below(Path(flow._root)) == before


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


def test_an_intent_that_cannot_be_read_lets_a_rollback_go_only_to_the_oldest_epoch(tmp_path: Path) -> None:
    """Nobody knows how far it was to go, and so whose results are gone."""
    flow = noted(flow_in(tmp_path / "flow"))
    checkpoint = Checkpoint(flow._root)
    Path(flow._root, INTENT).write_text("{")
    with pytest.raises(InputError, match="was begun and not finished"):
        plan_rollback(checkpoint, BEFORE - 2)
    assert plan_rollback(checkpoint, BEFORE - 3).epoch == BEFORE - 3


@pytest.mark.parametrize("lost", ["manifests/0000000006.root", "offsets"])
def test_repair_deletes_nothing_where_state_and_log_do_not_fit(tmp_path: Path, lost: str) -> None:
    """What only the missing manifest refers to is no orphan: it may be put back."""
    expected = finished(flow_in(tmp_path / "whole"))
    flow = flow_in(tmp_path / "flow")
    flow.restart()
    checkpoint = Checkpoint(flow._root)
    there = Path(flow._root, checkpoint.log.folder if lost == "offsets" else lost)
    away = there.rename(tmp_path / "away")
    before = files_below(Path(flow._root))
    for look in (checkpoint.orphans, checkpoint.repair):
        with pytest.raises(DamagedState):
            look()
    assert verify(checkpoint).damaged
    assert files_below(Path(flow._root)) == before
    away.rename(there)
    flow.restart()
    assert finished(flow) == expected


def test_a_manifest_that_is_missing_in_the_middle_keeps_all_files_until_it_is_put_back(tmp_path: Path) -> None:
    """Its ledger names what the epoch before it needs and later ones do not."""
    expected = finished(flow_in(tmp_path / "whole"))
    flow = noted(flow_in(tmp_path / "flow"))
    flow.restart()
    checkpoint, lost = Checkpoint(flow._root), Path(flow._root, manifest_name(BEFORE - 2))
    away = lost.rename(tmp_path / "away")
    before = files_below(Path(flow._root))
    for look in (checkpoint.orphans, checkpoint.repair):
        with pytest.raises(DamagedState, match="this manifest is missing: those of epochs 3 and 5 are there") as told:
            look()
        assert told.value.path == str(lost)
    flow.restart()
    kept = {path for path in before if path.parent.name in ("manifests", "sections", "segments")}
    assert kept <= set(files_below(Path(flow._root)))
    away.rename(lost)
    rolled(flow, BEFORE - 3)
    flow.restart()
    assert finished(flow) == expected


def test_a_flow_that_goes_on_without_a_manifest_in_the_middle_deletes_again_once_that_is_not_kept(
    tmp_path: Path,
) -> None:
    expected = finished(flow_in(tmp_path / "whole"))
    flow = flow_in(tmp_path / "flow")
    Path(flow._root, manifest_name(BEFORE - 2)).unlink()
    flow.restart()
    assert finished(flow) == expected
    flow.restart()
    assert Checkpoint(flow._root).orphans() == []


def elsewhere_too(flow: Harness) -> Harness:
    """With a query that delivers to where a rollback cannot reach."""
    declared = {"p": Declared("", "SELECT ...", Target("postgresql"))}
    notes = changed(flow.manifest.notes, declared=declared)
    flow.runner.manifest = flow.runner.flow.checkpoint.commit(flow.manifest.with_notes(notes))
    return flow


@pytest.mark.parametrize("content", ['{"wheels": 4}', '["wheels"]', "4", '{"parts": ["wheels"]}', '{"parts": 4}'])
def test_a_file_of_parts_of_something_else_beside_a_checkpoint_says_nothing_of_it(tmp_path: Path, content: str) -> None:
    flow = noted(flow_in(tmp_path / "flow"))
    Path(flow._root).with_name("parts.json").write_text(content)
    rollback(flow._root, BEFORE - 2, sinks_restored=False, dry_run=True)


def test_a_part_of_a_job_is_not_rolled_back_and_a_damaged_file_of_parts_is_named(tmp_path: Path) -> None:
    flow = noted(flow_in(tmp_path / "flow"))
    parts = Path(flow._root).with_name("parts.json")
    parts.write_text('{"parts": ["ck"], "feeds": {}}')
    with pytest.raises(InputError, match="is a part of a job with functions and queries"):
        rollback(flow._root, BEFORE - 2, sinks_restored=False, dry_run=True)
    parts.write_text('{"parts": ["ck"]')
    with pytest.raises(DamagedState, match="is damaged") as caught:
        rollback(flow._root, BEFORE - 2, sinks_restored=False, dry_run=True)
    assert caught.value.path == str(parts)


def test_an_epoch_that_was_begun_may_be_in_sinks_that_a_rollback_cannot_take_back(tmp_path: Path) -> None:
    """It died after it had delivered, so there is no manifest of it. Its mark would keep out another epoch 6."""
    flow = elsewhere_too(noted(flow_in(tmp_path / "flow")))
    checkpoint, last = Checkpoint(flow._root), BEFORE - 1
    assert plan_rollback(checkpoint, last).others == ()
    spark_logs(Path(flow._root, "offsets"), BEFORE)
    Path(flow._root, "offsets", "commits", str(BEFORE)).unlink()
    plan = plan_rollback(checkpoint, last)
    assert plan.last == BEFORE
    assert any("postgresql" in one for one in plan.others)


FAR = Declared("", "SELECT ...", Target("parquet", "/q"))


@pytest.mark.parametrize(
    ("notes", "wanted"),
    [
        ({"declared": {"q": changed(FAR, bad=Target("postgresql"))}}, ("query q, bad rows: postgresql",)),
        ({"declared": {"q": changed(FAR, late=Target("delta", "/late"))}}, ("query q: delta in /late",)),
        ({"declared": {"q": changed(FAR, bad=Target(None))}}, ("query q, bad rows: a function",)),
        ({"bad": {"R": Target("kafka")}}, ("stream R, bad rows: kafka",)),
        ({"declared": {"q": changed(FAR, bad=Target("json", "/bad"))}, "bad": {"R": Target("noop")}}, ()),
    ],
    ids=["of a query", "late rows in a table with a path", "a function", "of a stream", "folders"],
)
def test_an_output_for_bad_or_late_rows_that_is_no_folder_is_named(
    tmp_path: Path, notes: dict[str, Any], wanted: tuple[str, ...]
) -> None:
    """Its mark would keep out the rows that fail in the epochs that are done again."""
    flow = noted(flow_in(tmp_path / "flow"))
    now = changed(flow.manifest.notes, **notes)
    flow.runner.manifest = flow.runner.flow.checkpoint.commit(flow.manifest.with_notes(now))
    assert plan_rollback(Checkpoint(flow._root), BEFORE - 2).others == wanted


def test_an_epoch_whose_manifest_is_missing_may_be_there_too(tmp_path: Path) -> None:
    flow = elsewhere_too(noted(flow_in(tmp_path / "flow")))
    flow.epoch(epoch_of(BEFORE))
    spark_logs(Path(flow._root, "offsets"), BEFORE)
    Path(flow._root, manifest_name(BEFORE)).unlink()
    plan = plan_rollback(Checkpoint(flow._root), BEFORE - 1)
    assert plan.last == BEFORE
    assert any("postgresql" in one for one in plan.others)


@pytest.mark.parametrize("kind", ["root", "ledger"])
def test_a_later_manifest_that_is_damaged_does_not_keep_from_going_back(tmp_path: Path, kind: str) -> None:
    expected = finished(flow_in(tmp_path / "whole"))
    flow = noted(flow_in(tmp_path / "flow"))
    max(Path(flow._root).glob(f"manifests/[0-9]*.{kind}")).write_bytes(b"no")
    plan = plan_rollback(Checkpoint(flow._root), BEFORE - 2)
    assert plan.unread == (BEFORE - 1,)
    with pytest.raises(DamagedState):
        plan_rollback(Checkpoint(flow._root), BEFORE - 1)
    rolled(flow, BEFORE - 2)
    assert not verify(Checkpoint(flow._root)).damaged
    flow.restart()
    assert finished(flow) == expected


@pytest.mark.parametrize("name", ["segments/*.arrow", "offsets/sources/0/[0-9]*", "offsets/offsets/[0-9]*"])
def test_an_epoch_that_needs_a_damaged_file_is_no_way_out(tmp_path: Path, name: str) -> None:
    """Else what came later, which is no worse, would be given up for nothing."""
    flow = noted(flow_in(tmp_path / "flow"))
    target = BEFORE - 2
    if name.startswith("segments"):
        victim = Path(flow._root, next(iter(Manifest.read(Files(flow._root), target).segments)).name)
    else:
        victim = sorted(Path(flow._root).glob(name))[target - ("offsets/offsets" in name)]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(DamagedState, match=victim.name):
        plan_rollback(Checkpoint(flow._root), target)


@pytest.mark.parametrize("kind", ["root", "ledger"])
def test_a_damaged_manifest_before_the_epoch_is_told_before_anything_is_given_up(tmp_path: Path, kind: str) -> None:
    """Starts read every manifest that is kept, and refuse: what came later would be lost for nothing."""
    expected = finished(flow_in(tmp_path / "whole"))
    flow = noted(flow_in(tmp_path / "flow"))
    victim = min(Path(flow._root).glob(f"manifests/[0-9]*.{kind}"))
    victim.write_bytes(b"no")
    before = files_below(Path(flow._root))
    with pytest.raises(DamagedState) as caught:
        plan_rollback(Checkpoint(flow._root), BEFORE - 2)
    assert caught.value.path == str(victim)
    assert files_below(Path(flow._root)) == before
    min(Path(flow._root).glob("manifests/[0-9]*.root")).rename(tmp_path / "away")
    rolled(flow, BEFORE - 2)
    flow.restart()
    assert finished(flow) == expected


def test_epochs_that_0_1_0_wrote_are_taken_back_as_well(tmp_path: Path) -> None:
    """Their roots have other names; with Spark's log cut and one of them left no start would be possible."""
    with zipfile.ZipFile(OF_0_1_0) as archive:
        archive.extractall(tmp_path)
    root = str(tmp_path / "ck")
    assert plan_rollback(Checkpoint(root), 5).others == ()
    (unknown,) = plan_rollback(Checkpoint(root), 3).others
    assert "0.1.0" in unknown
    with pytest.raises(InputError, match=r"that 0\.1\.0 wrote, which did not note them"):
        rollback(root, 3, sinks_restored=False, dry_run=False)
    assert Manifest.epochs(Files(root))[-1] == 5
    rollback(root, 3, sinks_restored=True, dry_run=False)
    checkpoint = Checkpoint(root)
    assert Manifest.epochs(checkpoint.files) == [-1, 0, 1, 2, 3]
    latest = checkpoint.latest()
    checkpoint.check_offsets(latest.epoch)
    checkpoint.verify(latest)
    assert verify(checkpoint).damaged == []
    assert checkpoint.orphans() == []


def files_below(root: Path) -> dict[Path, bytes]:
    """All files, and what is in them."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_export_has_every_live_row_once(tmp_path: Path) -> None:
    flow = flow_in(tmp_path / "flow")
    manifest = flow.manifest
    counts = export(Files(flow._root), manifest, tmp_path / "out", lambda done, total: None).rows
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


def test_a_plan_of_an_epoch_that_is_retired_meanwhile_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = noted(flow_in(tmp_path / "flow"))
    plain = Checkpoint.verify

    def long(self: Checkpoint, latest: Manifest) -> None:
        for number in range(BEFORE, BEFORE + 4):
            flow.epoch(epoch_of(number))
        plain(self, latest)

    monkeypatch.setattr(Checkpoint, "verify", long)
    with pytest.raises(InputError, match=f"epoch {BEFORE - 3} is not kept"):
        plan_rollback(Checkpoint(flow._root), BEFORE - 3)


def test_an_export_does_not_go_into_the_checkpoint_nor_to_another_file_system(tmp_path: Path) -> None:
    """Nothing there would know of it, and a path such as s3:/... would be a folder here."""
    flow = flow_in(tmp_path / "flow")
    files, before = Files(flow._root), files_below(Path(flow._root))
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(Path(flow._root, "staged"))
    for out, said in (
        (str(Path(flow._root, "staged")), "is in the checkpoint"),
        (str(Path(flow._root, "new", "deeper")), "is in the checkpoint"),
        (str(tmp_path / "link"), "is in the checkpoint"),
        (str(tmp_path / "file" / "state"), "cannot be written"),
        ("s3://bucket/state", "is no local folder"),
        ("s3:/bucket/state", "is no local folder"),
    ):
        with pytest.raises(InputError, match=said):
            export(files, flow.manifest, Path(out), lambda done, total: None)
    assert files_below(Path(flow._root)) == before
    assert not Path("s3:").exists()


def _us(time: Any) -> int:
    return round(time.timestamp() * 1e6)
