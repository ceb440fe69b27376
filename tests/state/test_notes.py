"""The notes of a manifest come back as they were, from earlier versions too, and those of later ones are refused."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from braidstream.control.remembered import Memory
from braidstream.errors import CheckpointMismatch
from braidstream.model.dead_rows import Filter, Piece
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.reports import SampleCounts
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Cleaning, KeptFigures, LateRows, Measures, NodeNote, Shedding, Submitted

ARCHIVE = Path(__file__).parents[1] / "spark" / "fixtures" / "checkpoint_0_1_0.zip"
STAGE_ONE = str(1 << 64)
COUNTS = {"exact": 1, "n_found": 2, "all": [3], "kept": [1.5], "found": [2.5], "n_kept": 1, "at_risk": 4}
KEPT = [
    [0, 7, 5, 2, 80, 0.5, [], "here:1", None, None, 0.25, [[3, 5, 2, 9, 80, 0.5, 0]]],
    [1, 7, 0, 0, 0, 0.0, [], "", None, None, []],
]
"""A row for each slot; the second as it was before `work_s`."""
BEFORE: dict[str, Any] = {
    "controller": {
        "outputs": {"0": 4.0, "7": 1},
        "touched": {"0": 3},
        "base_groups": 8,
        "solid": {},
        "split": {"0": [7, 0.5]},
        "yielded": {"1": 0.001},
        "forced_bytes": 170,
        "last_s": 90.0,
        "wish": [1, 2],
        "too_few": {"1": 400.0},
    },
    "reports": KEPT,
    "heavy": {
        "trackers": {"R[k]": {"window": None, "lg_size": 12, "panes": [], "labels": {"9": "nine"}}},
        "next_id": 4,
    },
    "spilling": {"touched": {"0": 5}, "outputs": {"0": 12}, "rate": 1000.0},
    "cleaning": {"groups": [1, 2], "step": 3, "some": {"4": [1, 2]}, "resumed": {"q:(A⋈B)": 5}},
    "steps": 2,
    "suspended": {"q:(A⋈B)": 5},
    "rates": {"R": [1.0, 2.0]},
    "fanouts": {"q": {"0": 2.5}},
    "lateness": {"R": {"untimed": 1, "needed_us": 2}},
    "shedding": {
        "last": {"q": COUNTS},
        "run": {"q": {**COUNTS, "n_all": 3.0, "squares": 9.0}},
        "yields": {STAGE_ONE: [1.0, 2.0]},
        "held": {STAGE_ONE: 3.0},
        "filter": {"bits": 6, "stores": ["R[k]"], "pieces": [[0, {"R[k]": 7}, [[4, 0.5]]], [1 << 64, {}, []]]},
        "live_bytes": 10,
        "ended": 11,
        "pace_us": 12,
        "expected": {"q": [1.0, 0.5]},
        "shed_bytes": 13,
    },
    "biclique": 2,
    "filters": {"R[k]": ["v > 1"]},
    "trees": {"q": ["A", ["B", "C"]]},
    "submitted": {"late": {"text": "SELECT 1", "path": None, "to": "memory", "options": {}, "since": 4}},
    "withdrawn": ["gone"],
    "folders": {"out": 3},
    "delays": {"R": 1000},
    "plan": "central",
    "nodes": {"0-0": {"node": "0-0", "numbers": {"newest": None, "skip": 1}, "file": None}},
    "given_up": 0,
}
"""Every note, as it was written when notes were a dictionary."""


def written(folder: Path, memory: dict[str, Any]) -> Files:
    """A manifest of 0.1.0 with these notes, in the JSON of a dictionary."""
    files = Files(str(folder))
    files.make("manifests", "sections")
    plain = {"epoch": 0, "n_slots": 1, "newest": {}, "watermark": None, "totals": {}, "executors": {}, "segments": []}
    directory = {"groups": [[0, 0, 0, 0]], "next_id": 1}
    body = json.dumps({**plain, "directory": directory, "memory": memory}).encode()
    (folder / "manifests/0000000001.json").write_bytes(b"%08x\n%s\n" % (zlib.crc32(body), body))
    return files


def test_notes_that_were_a_dictionary_are_read(tmp_path: Path) -> None:
    notes = Manifest.read(written(tmp_path, BEFORE), 0).notes
    assert notes.controller == Memory(
        base_groups=8, split={0: (7, 0.5)}, yielded={1: 0.001},
        forced_bytes=170, last_s=90, wish=(1, 2), too_few={1: 400},
    )  # fmt: skip
    group = GroupFigures(3, 5, 2, 9, 80, 0.5)
    first = SlotFigures(0, 7, 5, 2, 80, 0.5, (group,), "here:1", work_s=0.25)
    assert notes.reports == KeptFigures([first, SlotFigures(1, 7, 0, 0, 0, 0.0, ())])
    assert [(one.slot, one.epoch, one.rows, one.matches, one.busy_s, one.work_s) for one in notes.reports.figures] == [
        (0, 7, 5, 2, 0.5, 0.25),
        (1, 7, 0, 0, 0.0, None),
    ]
    assert notes.reports.figures[0].groups == (GroupFigures(3, 5, 2, 0, 0, 0.5),), "what it held is asked for anew"
    assert (notes.heavy.next_id, notes.heavy.trackers["R[k]"].labels) == (4, {9: "nine"})
    assert notes.measures == Measures({0: 5}, {0: 12}, 1000), "the budget's, where both kept them"
    assert notes.cleaning == Cleaning((1, 2), 3, {4: frozenset({1, 2})}, {"q:(A⋈B)": 5})
    assert (notes.steps, notes.suspended, notes.rates) == (2, {"q:(A⋈B)": 5}, {"R": (1.0, 2.0)})
    assert (notes.fanouts, notes.lateness) == ({"q": {0: 2.5}}, {"R": LateRows(1, 2)})
    counts = SampleCounts(1, 2, (3,), (1.5,), (2.5,), 1, 4)
    assert notes.shedding == Shedding(
        filter=Filter((Piece(0, {"R[k]": 7}, ((4, 0.5),)), Piece(1 << 64)), 6, ("R[k]",)),
        last={"q": counts}, run={"q": SampleCounts(1, 2, (3,), (1.5,), (2.5,), 1, 4, 3, 9)},
        yields={1 << 64: (1, 2)}, held={1 << 64: 3}, live_bytes=10, ended=11, pace_us=12,
        expected={"q": (1, 0.5)}, shed_bytes=13,
    )  # fmt: skip
    assert (notes.biclique, notes.filters, notes.trees) == (2, {"R[k]": ("v > 1",)}, {"q": ["A", ["B", "C"]]})
    assert (notes.submitted, notes.withdrawn) == ({"late": Submitted("SELECT 1", "memory", since=4)}, ("gone",))
    assert (notes.folders, notes.delays, notes.plan) == ({"out": 3}, {"R": 1000}, "central")
    assert notes.nodes == {"0-0": NodeNote("0-0", {"newest": None, "skip": 1})}


@pytest.mark.parametrize("spilling", [{}, {"spilling": {"rate": 1000.0}}], ids=["no budget", "a budget of no epoch"])
def test_measures_that_only_the_controller_kept_are_taken_over(tmp_path: Path, spilling: dict[str, Any]) -> None:
    files = written(tmp_path, {"controller": BEFORE["controller"], **spilling})
    read = Manifest.read(files, 0)
    assert (read.notes.measures.outputs, read.notes.measures.touched) == ({0: 4, 7: 1}, {0: 3})
    assert read.notes.controller.forced_bytes == 170
    read.write(files)
    assert Manifest.read(files, 0) == read
    assert not (tmp_path / "manifests/0000000001.json").exists(), "it is in the new form now"


def test_the_manifests_of_0_1_0_say_the_same_when_they_are_written_again(tmp_path: Path) -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    files = Files(str(tmp_path / "ck"))
    files.make("sections")
    epochs = Manifest.epochs(files)
    read = [Manifest.read(files, epoch) for epoch in epochs]
    assert {name for one in read for name in one.notes.heavy.trackers}
    assert any(one.notes.measures.outputs for one in read)
    for one in read:
        one.write(files)
    assert [Manifest.read(files, epoch) for epoch in epochs] == read


@pytest.mark.parametrize(
    "memory",
    [{"tomorrow": 1}, {"controller": {"tomorrow": 1}}, {"shedding": {"filter": {"tomorrow": 1}}}],
    ids=["a note", "a field of a note", "a field within one"],
)
def test_a_note_of_a_later_version_is_refused(tmp_path: Path, memory: dict[str, Any]) -> None:
    """What it means for the state nobody here knows: a router, a filter on rows."""
    with pytest.raises(CheckpointMismatch, match="`tomorrow`") as caught:
        Manifest.read(written(tmp_path, memory), 0)
    assert "version" in caught.value.fix
