"""A flow as whoever watches it sees it: made of its history alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("bokeh")  # the extra `dashboard`

from bokeh.document import Document

from braidstream.state.files import Files
from braidstream.state.history import FOLDER, Deciding, HeavyWords, Words
from braidstream.state.lease import last_owner
from braidstream.watch import followed as following
from braidstream.watch.dashboard_page import Page, _stacked
from braidstream.watch.followed import Followed
from braidstream.watch.look import DARK, LIGHT, Theme
from tests.watch.histories import Story


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_LOOK_S", 0.0)
    monkeypatch.setattr(following, "_ASK_S", 0.0)


def _source(document: Document, name: str) -> dict[str, np.ndarray]:
    found = document.get_model_by_name(name)
    assert found is not None
    return {key: np.asarray(value) for key, value in found.data.items()}


def _text(document: Document, name: str) -> str:
    found = document.get_model_by_name(f"{name}_text")
    assert found is not None
    return str(found.text)


def test_a_look_brings_what_is_new_and_only_that(tmp_path: Path) -> None:
    story, flow = Story(tmp_path).start().run(3).write(), Followed(str(tmp_path))
    flow.look()
    assert [one.epoch for one in flow.epochs] == [0, 1, 2]
    seen = flow.version
    flow.look()
    assert flow.version == seen
    story.run(2).write()
    flow.look()
    assert [one.epoch for one in flow.epochs] == [0, 1, 2, 3, 4]
    assert flow.generation == 0


def test_what_was_rolled_back_is_forgotten(tmp_path: Path) -> None:
    story, flow = Story(tmp_path).start().run(6).write(), Followed(str(tmp_path))
    flow.look()
    story.epoch = 2
    story.run(1).write()
    flow.look()
    assert [one.epoch for one in flow.epochs] == [0, 1, 2, 3]


def test_a_killed_flow_is_told_from_one_that_ended(tmp_path: Path) -> None:
    story = Story(tmp_path / "ended").start().run(2).mark("end", how="failed", cause="the disk is full").write()
    story.checkpoint.release()
    assert (found := _followed(tmp_path / "ended").standing()).state == "failed"
    assert "the disk is full" in found.text
    alive = Story(tmp_path / "alive").start().run(2).write()
    assert _followed(tmp_path / "alive").standing().state == "running"
    dead = _followed(tmp_path / "alive")
    owner = last_owner(alive.checkpoint.files)
    assert owner is not None
    path = next((tmp_path / "alive" / "lease").glob("*/owner.json"))
    path.write_text(path.read_text().replace(f'"process": {owner.process}', '"process": 4194303'))
    assert dead.standing().state == "killed"
    assert len(dead.epochs) == 2
    assert _followed(tmp_path / "never").standing().state == "unknown"


def test_an_owner_elsewhere_is_alive_while_it_beats_and_killed_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process of another machine only its beats are known, by the clock of who looks."""
    story, now = Story(tmp_path).start().run(2).write(), [1000.0]
    owner = last_owner(story.checkpoint.files)
    assert owner is not None
    far = replace(owner, host="node9", machine="another", boot="another", space="another", ttl_s=30.0)
    assert not far.is_near
    monkeypatch.setattr(following.time, "monotonic", lambda: now[0])
    beats = [far]
    monkeypatch.setattr(following, "last_owner", lambda files: beats[-1])
    flow = _followed(tmp_path)
    assert flow.standing().state == "running"
    for beat in range(1, 4):
        now[0] += 29.0
        beats.append(replace(far, beat=beat))
        assert flow.standing().state == "running"
    now[0] += 29.0
    assert flow.standing().state == "running"
    now[0] += 2.0
    standing = flow.standing()
    assert standing.state == "killed"
    assert "node9" in standing.text


def test_a_history_that_cannot_be_read_is_shown_so_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path).start().run(2).write()
    document = Document()
    page = Page(document, Followed(str(tmp_path)), LIGHT)
    names, denied = Files.names, PermissionError(13, "Permission denied")

    def refused(files: Files, folder: str) -> list[str]:
        if folder == FOLDER:
            raise denied
        return names(files, folder)

    with monkeypatch.context() as wrong:
        wrong.setattr(Files, "names", refused)
        page.tick()
        assert "cannot be read: Permission denied" in _text(document, "head")
        assert _source(document, "times")["epoch"].tolist() == [0, 1]
    story.run(1).write()
    page.tick()
    assert "cannot be read" not in _text(document, "head")
    assert _source(document, "times")["epoch"].tolist() == [0, 1, 2]


def test_the_bars_of_slots_end_within_the_plot(tmp_path: Path) -> None:
    """Active, cells and pushed stand on each other; the budget is for the first two."""
    story = Story(tmp_path).start().run(1, pushed=True).write()
    document = Document()
    page = Page(document, Followed(str(tmp_path)), LIGHT)
    bars = _source(document, "slots")
    top = document.get_model_by_name("slots_plot").y_range.end
    assert top >= (bars["active"] + bars["cells"] + bars["pushed"]).max() > bars["active"].max()
    probed = (bars["active"] + bars["cells"]).max()
    for budget, is_drawn in ((19.5 * probed, True), (20.8 * probed, False)):
        story.budget_bytes = int(budget)
        story.run(1).write()
        page.tick()
        assert (len(_source(document, "budget")["y"]) == 2) == is_drawn
        assert document.get_model_by_name("slots_plot").y_range.end >= probed


def _followed(folder: Path) -> Followed:
    flow = Followed(str(folder))
    flow.look()
    return flow


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_moved_group_is_at_its_slot_after_the_next_tick(tmp_path: Path, theme: Theme) -> None:
    story = Story(tmp_path).start().run(3).write()
    document = Document()
    page = Page(document, Followed(str(tmp_path)), theme)
    before = _source(document, "groups")
    assert before["slot"][before["group"] == 9].tolist() == [1]
    story.move(9, 2)
    story.run(1).write()
    page.tick()
    after = _source(document, "groups")
    assert after["slot"][after["group"] == 9].tolist() == [2]
    outlined = _source(document, "anew")
    assert outlined["group"].tolist() == [9]
    for side in ("left", "right", "bottom", "top"):
        assert outlined[side].tolist() == after[side][after["group"] == 9].tolist()
    story.run(7).write()
    page.tick()
    assert _source(document, "anew")["group"].tolist() == []


def test_a_split_and_epochs_reach_the_page(tmp_path: Path) -> None:
    story = Story(tmp_path).start().run(3).write()
    document = Document()
    page = Page(document, Followed(str(tmp_path)), LIGHT)
    story.split(3, 5)
    told = Words(
        decisions=(Deciding("splitting", "it is <large>", "", ({"kind": "split", "group": 3, "slot": 5},), 1),),
        heavy=(HeavyWords("ad=<17>", 0.31, {"R": 10}, (2, 2), (0, 1, 2, 3)),),
    )
    story.run(2, told=told).write()
    page.tick()
    assert len(_source(document, "groups")["group"]) == 65
    assert _source(document, "times")["epoch"].tolist() == [0, 1, 2, 3, 4]
    assert "it is &lt;large&gt;" in _text(document, "decisions")
    assert "ad=&lt;17&gt;" in _text(document, "heavy")
    assert _text(document, "heavy").count("<rect") == 4


def test_every_panel_says_something_without_data(tmp_path: Path) -> None:
    document = Document()
    Page(document, Followed(str(tmp_path)), LIGHT)
    for name, words in (("heavy", "nothing heavy"), ("decisions", "nothing was decided"), ("queries", "no query"),
                        ("events", "nothing happened"), ("head", "nothing has run here yet")):  # fmt: skip
        assert words in _text(document, name)


def test_boxes_of_groups_stand_on_each_other() -> None:
    slots, depths = np.array([0, 1, 0, 0, 1]), np.array([2, 2, 3, 3, 2])
    found = _stacked(slots, depths)
    assert found["bottom"].tolist() == [0, 0, 1, 1.5, 1]
    assert found["top"].tolist() == [1, 1, 1.5, 2, 2]
