"""`braid verify`, `rollback`, `repair` and `export` on a checkpoint that Spark wrote: exit codes, output, answers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from braidstream.state import lease as leases
from braidstream.state.identity import FORMAT
from tests.cli.workshop import Braid, Workshop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_verify_says_whole_or_names_what_is_damaged(braid: Braid, copied: Workshop) -> None:
    ck = copied.folder / "ck"
    before = copied.tree()
    outcome = braid("verify", ck)
    assert outcome.code == 0, outcome
    assert f"{ck} is whole:" in outcome.out
    assert json.loads(braid("verify", ck, "--json").out)["damaged"] == []
    assert copied.tree() == before
    victims = [max(ck.glob("segments/*.arrow")), max(ck.glob("offsets/offsets/[0-9]*"))]
    for victim in victims:
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 4
        victim.write_bytes(content)
    outcome = braid("verify", ck)
    assert outcome.code == 1, outcome
    for victim in victims:
        assert f"damaged: {victim}" in outcome.out
    assert "is damaged: 2 files of" in outcome.out


def test_wrong_input_is_refused_and_changes_nothing(braid: Braid, copied: Workshop, tmp_path: Path) -> None:
    ck, before = copied.folder / "ck", copied.tree()
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    for arguments, said in (
        (("verify", tmp_path / "no"), "does not exist"),
        (("verify", tmp_path / "file"), "file"),
        (("rollback", tmp_path / "no", "--to", "1"), "does not exist"),
        (("rollback", ck, "--to", "7"), "epoch 7 is not kept"),
        (("rollback", ck, "--to", "-1"), "epoch -1 is not kept"),
        (("rollback", ck), "Missing option"),
        (("repair", tmp_path), "is no checkpoint"),
        (("export", ck, "--out", tmp_path / "full"), "is there already"),
        (("export", ck, "--out", tmp_path / "new", "--epoch", "9"), "epoch 9 is not kept"),
    ):
        outcome = braid(*arguments)
        assert outcome.code == 2, (arguments, outcome)
        assert said in outcome.err, (arguments, outcome)
    assert copied.tree() == before


def test_a_flow_that_was_rolled_back_replays_and_is_exact(braid: Braid, workshop: Workshop) -> None:
    ck, job = workshop.folder / "ck", workshop.job()
    assert braid("run", job, "--quiet").code == 0
    assert json.loads(braid("state", ck, "--json").out)["epoch"] == 2
    shown = braid("rollback", ck, "--to", "0", "--dry-run")
    assert shown.code == 0, shown
    assert "back from epoch 2 to 0, over 2 epochs" in shown.out
    assert json.loads(braid("state", ck, "--json").out)["epoch"] == 2
    outcome = braid("rollback", ck, "--to", "0")
    assert outcome.code == 0, outcome
    assert "is at epoch 0" in outcome.out
    assert all("-0000000000-" in path.name for path in (workshop.folder / "out" / "pairs").glob("*.parquet"))
    assert braid("verify", ck).code == 0
    again = braid("run", job, "--quiet")
    assert again.code == 0, again
    assert json.loads(braid("state", ck, "--json").out)["epoch"] == 2  # the same files, an epoch each
    found = workshop.verify()
    assert found, str(found)


@pytest.mark.slow
def test_from_every_kept_epoch_the_flow_goes_on_to_the_same_answer(braid: Braid, workshop: Workshop) -> None:
    """One after the other on the same checkpoint: each rollback meets what the replay of the last one left."""
    ck, job = workshop.folder / "ck", workshop.job(("groups = 8", "groups = 8\nkeep = 20"))
    assert braid("run", job, "--quiet").code == 0
    last = json.loads(braid("state", ck, "--json").out)["epoch"]
    for epoch in (*range(last, -1, -1), 1, 0):
        outcome = braid("rollback", ck, "--to", epoch)
        assert outcome.code == 0, (epoch, outcome)
        assert braid("verify", ck).code == 0, epoch
        again = braid("run", job, "--quiet")
        assert again.code == 0, (epoch, again)
        found = workshop.verify()
        assert found, (epoch, str(found))
    assert json.loads(braid("repair", ck).out.split(":")[-1].split()[0]) == 0


def test_a_newer_format_and_a_lease_that_cannot_be_read(
    braid: Braid, copied: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ck = copied.folder / "ck"
    monkeypatch.setattr(leases, "_TTL_S", 0.0)
    for owner in ck.glob("lease/*/owner.json"):
        owner.write_text("{")
    assert braid("verify", ck).code == 0
    assert braid("state", ck).code == 0
    outcome = braid("repair", ck)
    assert outcome.code == 0, outcome
    identity = ck / "flow.json"
    identity.write_text(identity.read_text().replace(f'"format": {FORMAT}', '"format": 9'))
    before = copied.tree()
    for arguments in (
        ("run", copied.folder / "job.toml"),
        ("state", ck),
        ("verify", ck),
        ("rollback", ck, "--to", "0"),
        ("repair", ck),
        ("export", ck, "--out", copied.folder / "state"),
    ):
        outcome = braid(*arguments)
        assert outcome.code == 2, (arguments, outcome)
        assert "is of format 9" in outcome.err, (arguments, outcome)
    assert copied.tree() == before


def test_export_and_repair(braid: Braid, copied: Workshop, tmp_path: Path) -> None:
    ck = copied.folder / "ck"
    outcome = braid("export", ck, "--out", tmp_path / "state", "--json")
    assert outcome.code == 0, outcome
    rows = json.loads(outcome.out)["rows"]
    assert rows
    for name, n in rows.items():
        found = pq.read_table(tmp_path / "state" / name)
        assert found.num_rows == n
        assert {"v", "__t"} <= set(found.column_names)
    orphan = ck / "segments" / "0000000001-0-left.arrow"
    orphan.write_bytes(b"x")
    shown = braid("repair", ck, "--dry-run")
    assert (shown.code, shown.out.strip()) == (0, f"would delete {orphan}")
    assert f"deleted {orphan}" in braid("repair", ck).out
    assert not orphan.exists()
    assert braid("verify", ck).code == 0
