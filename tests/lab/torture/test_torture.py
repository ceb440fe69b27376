"""Random flows through crashes are DuckDB's; an engine that is wrong is found out, and the story is made smaller."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from braidstream.epoch import steps
from braidstream.lab.torture.drawing import draw_story
from braidstream.lab.torture.playing import play
from braidstream.lab.torture.record import described, drawn, torture
from braidstream.lab.torture.reference import Reference
from braidstream.lab.torture.shrinking import shrink
from braidstream.lab.torture.spark_playing import Act, _SparkPlay, play_on_spark
from braidstream.lab.torture.story import Story
from braidstream.model.values import changed
from braidstream.spark.sink import Mark
from braidstream.state import section
from braidstream.state.notes import Silence
from tests.cli.workshop import Braid
from tests.scale import examples


def test_a_seed_gives_one_story_and_a_story_is_json() -> None:
    for seed in range(50):
        story = draw_story(seed)
        assert story == draw_story(seed)
        assert msgspec.json.decode(msgspec.json.encode(story), type=Story) == story


@pytest.mark.parametrize("seed", range(examples(10, least=2)))
def test_random_flows_that_crash_give_what_duckdb_gives(seed: int, tmp_path: Path) -> None:
    story = drawn(seed)
    assert not (wrong := play(story, tmp_path).wrong), f"seed {seed}: {wrong}\n{described(story)}"


@pytest.mark.timeout(60)
def test_a_query_goes_while_joins_of_its_stages_would_take_turns_in_being_suspended(tmp_path: Path) -> None:
    """What is owed is delivered in steps in which nothing arrives: one that suspends the other join never ends."""
    story = drawn(598)
    assert not (wrong := play(story, tmp_path).wrong), wrong


def test_the_watermark_does_not_pass_rows_in_an_epoch_without_slots(tmp_path: Path) -> None:
    """A stream turned idle, and nothing arrived in the epoch after: rows without a partner were never put out."""
    story = drawn(1084)
    assert not (wrong := play(story, tmp_path).wrong), wrong


@pytest.mark.acceptance
def test_a_thousand_random_flows_that_crash_give_what_duckdb_gives() -> None:
    record = torture(range(1000))
    print(json.dumps(record.as_json()["met"], indent=1))
    assert [failure.seed for failure in record.failures] == []


def test_in_two_hundred_stories_there_is_everything() -> None:
    """Not a property of the engine: what is never drawn is never tried."""
    stories = [draw_story(seed) for seed in range(200)]
    asks = [ask for story in stories for ask in story.asks]
    events = {event.what for story in stories for event in story.events}
    assert events == {"crash", "kill", "error", "full", "restart", "move", "budget", "zombie"}
    kinds = {ask.kind for ask in asks}
    assert kinds >= {"inner", "left", "right", "full", "semi", "anti", "asof", "asof_left", "on_top", "aggregate"}
    assert {len(ask.inputs) for ask in asks if ask.kind == "inner"} >= {2, 3, 4}
    assert kinds >= {"counted", "unkeyed"}
    assert any(ask.bounds for ask in asks)
    assert any(ask.begin for ask in asks)
    assert any(ask.end is not None for ask in asks)
    for option in (
        "controller",
        "grids",
        "budget",
        "silence_us",
        "n_hashes",
        "biclique",
        "shaken",
        "takes_late",
        "idle",
    ):
        assert any(getattr(story.options, option) for story in stories), option
        assert not all(getattr(story.options, option) for story in stories), option


def test_idle_streams_come_back_and_some_of_what_they_send_is_late() -> None:
    """Not a property of the engine either: the watermark has gone on without them."""
    stories = [story for story in map(draw_story, range(100)) if story.options.idle]
    late = [{name for name, rows in Reference(story).late.items() if rows} for story in stories]
    assert sum(bool(names & set(story.options.idle)) for names, story in zip(late, stories, strict=True)) >= 3
    waiting = [changed(story, options=changed(story.options, idle={})) for story in stories]
    assert any(
        Reference(one).watermarks != Reference(two).watermarks for one, two in zip(stories, waiting, strict=True)
    )


def delivered_twice(patch: pytest.MonkeyPatch) -> None:
    """What an epoch delivers again does not take the place of what it delivered before."""
    begins = Mark.file_name.fget  # type: ignore[attr-defined]
    patch.setattr(Mark, "file_name", property(lambda mark: f"{begins(mark)}{uuid.uuid4().hex[:8]}-"))


def part_lost(patch: pytest.MonkeyPatch) -> None:
    """A slot forgets the last of its segments, once it has some."""
    made = section.Section.with_segments
    patch.setattr(section.Section, "with_segments", lambda self, segments: made(self, tuple(segments)[:2]))


def expired_early(patch: pytest.MonkeyPatch) -> None:
    """Segments are dropped two seconds before their last row may be."""
    unexpired = section._unexpired

    def early(segments: Any, groups: Any, watermark: int | None) -> Any:
        return unexpired(segments, groups, None if watermark is None else watermark + 2_000_000)

    patch.setattr(section, "_unexpired", early)


def never_idle(patch: pytest.MonkeyPatch) -> None:
    """The watermark waits for streams that are idle."""
    patch.setattr(steps, "silence", lambda known, patience, spoke, now_us: Silence())


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "what is delivered again is there twice": delivered_twice,
    "a manifest forgets a segment": part_lost,
    "segments expire early": expired_early,
    "idle streams are waited for": never_idle,
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_an_engine_that_is_wrong_is_found_out(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[mutation](monkeypatch)
    found = next((seed for seed in range(60) if torture([seed], shrink_s=0).failures), None)
    assert found is not None


def test_the_command_shows_the_seed_and_a_smaller_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    braid, command = Braid(capsys, monkeypatch), ["torture", "--runs", "1", "--seed", "0"]
    assert braid(*command, "--json").code == 0
    part_lost(monkeypatch)
    told = braid(*command, "--shrink", "1", "--keep", tmp_path)
    assert told.code == 1
    assert "again: braid torture --seed 0 --runs 1" in told.out
    kept = msgspec.json.decode((tmp_path / "torture-0.json").read_bytes(), type=Story)
    assert kept.n_rows <= drawn(0).n_rows


def test_a_story_is_made_as_small_as_what_is_wrong_needs() -> None:
    """Wrong is here whatever has a row with v = 7 of A in epoch 1 or later, and a crash."""

    def is_wrong(story: Story) -> bool:
        is_there = any(row[2] == 7 for epoch in story.epochs[1:] for row in epoch.get("A", []))
        return is_there and any(event.what == "crash" for event in story.events)

    story = next(story for seed in range(500) if is_wrong(story := draw_story(seed)) and story.n_rows > 60)
    smallest = shrink(story, is_wrong)
    assert is_wrong(smallest)
    assert (smallest.n_rows, len(smallest.events), len(smallest.epochs)) == (1, 1, 2)
    assert len(smallest.asks) <= len(story.streams)
    assert smallest.options == replace_final(story)


def replace_final(story: Story) -> Any:
    from braidstream.lab.torture.story import Options

    return changed(Options(), final=story.options.final, biclique=story.options.biclique)


@pytest.mark.slow
@pytest.mark.spark
def test_a_flow_on_spark_whose_processes_are_killed_gives_what_duckdb_gives(tmp_path: Path) -> None:
    outcome = play_on_spark(drawn(1), tmp_path)
    assert not outcome.wrong, outcome.wrong
    assert outcome.met["event: a process"] >= 2


def test_disks_fail_and_are_full_in_stories_on_spark(tmp_path: Path) -> None:
    """Not a property of the engine either."""
    acts = [act for seed in range(60) for act in _SparkPlay(draw_story(seed), tmp_path, Counter()).acts]
    assert sum(act.is_full and act.is_once for act in acts) > 3
    assert sum(act.is_full and not act.is_once for act in acts) > 3
    assert not any(act.fault for act in acts if act.is_last)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("point", ["before-root", "task-after-segment"])
def test_a_full_disk_ends_a_process_on_spark_and_the_next_one_goes_on(tmp_path: Path, point: str) -> None:
    met = Counter[str]()
    play = _SparkPlay(drawn(1), tmp_path, met)
    n_epochs = len(play.story.epochs)
    play.acts = [Act(n_epochs, f"{point}:1:full"), Act(n_epochs, f"{point}:2:full once"), Act(n_epochs, is_last=True)]
    play.lives = {name: (0, len(play.acts)) for name in play.lives}
    play.through()
    assert met[f"fault: full disk at {point}"] == 1
    assert met[f"fault: a write failed at {point}"] == 1, met


@pytest.mark.acceptance
@pytest.mark.spark
def test_a_hundred_flows_on_spark_whose_processes_are_killed_give_what_duckdb_gives() -> None:
    record = torture(range(100), play_on_spark, shrink_s=0)
    print(json.dumps(record.as_json()["met"], indent=1))
    assert [(failure.seed, failure.wrong) for failure in record.failures] == []
