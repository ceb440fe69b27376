"""Generations are numbers in the manifest: pushing, cleaning up and expiry change nothing else."""

from __future__ import annotations

from dataclasses import replace

from braidstream.control.overflow import Overflow
from braidstream.epoch.spiller import Spiller
from braidstream.model.directory import Directory
from braidstream.state.generations import account, cleaned, held_groups, spilled
from braidstream.state.manifest import Manifest, Part, Segment

STORES = {"R", "S"}


def segment(name: str, store: str, deadline: int, *parts: Part) -> Segment:
    rows = sum(part.rows for part in parts)
    return Segment(name, store, rows, 10 * rows, 0, 0, deadline, 0, 0, parts)


def manifest() -> Manifest:
    """Groups 0 and 1 are the halves of the hash space. Store T may not be pushed."""
    low, high = Part(0, 1, 4), Part(1, 1, 6)
    segments = (segment("r", "R", 100, low, high), segment("s", "S", 50, low), segment("t", "T", 10, low))
    return Manifest(0, Directory.of(2, 1), 1, segments)


def numbers(of: Manifest) -> dict[str, list[int]]:
    return {s.name: [part.generation for part in s.parts] for s in of.segments}


def test_a_push_numbers_the_active_parts_of_a_group() -> None:
    once = spilled(manifest(), [0], STORES)
    assert numbers(once) == {"r": [1, 0], "s": [1], "t": [0]}
    assert [group.id for group in held_groups(once)] == [0]
    assert once.of_slot(0) == [
        replace(s, parts=tuple(p for p in s.parts if not p.generation)) for s in once.segments if s.name != "s"
    ]
    more = once.with_segments((*once.segments, segment("s2", "S", 70, Part(0, 1, 2))))
    assert numbers(spilled(more, [0, 1], STORES)) == {"r": [1, 1], "s": [1], "t": [0], "s2": [2]}


def test_a_clean_up_makes_generations_one() -> None:
    twice = spilled(replace(spilled(manifest(), [0], STORES), epoch=1), [0, 1], STORES)
    assert numbers(cleaned(twice, [0], (), STORES)) == {"r": [0, 1], "s": [0], "t": [0]}
    assert numbers(cleaned(twice, [0, 1], [0], STORES)) == {"r": [1, 0], "s": [1], "t": [0]}
    now_fixed = cleaned(twice, [0, 1], [0, 1], {"S"})
    assert numbers(now_fixed) == {"r": [0, 0], "s": [1], "t": [0]}


def test_the_account_tells_active_from_inactive() -> None:
    held = account(spilled(manifest(), [0], STORES), STORES)
    assert (held[0].active_rows, held[0].inactive_rows, held[0].inactive_bytes) == (0, 8, 80)
    assert held[0].deadlines == {1: 100}
    assert (held[1].active_rows, held[1].active_bytes, held[1].deadlines) == (6, 60, {})


def test_parts_of_held_groups_stay_past_their_deadline() -> None:
    before = spilled(manifest(), [0], STORES)
    assert numbers(replace(before, watermark=101)) == {"r": [1], "s": [1], "t": [0]}
    assert numbers(replace(before, watermark=100)) == numbers(before)
    assert numbers(replace(manifest(), watermark=101)) == {}


def test_generations_survive_splits_merges_and_json() -> None:
    before = spilled(manifest(), [0], STORES)
    split = before.fitted(before.directory.split(0))
    assert numbers(split) == {"r": [1, 1, 0], "s": [1, 1], "t": [0, 0]}
    merged = before.fitted(before.directory.merge(0))
    assert [group.id for group in held_groups(merged)] == [0]
    for segment_ in split.segments:
        assert Segment.from_form(segment_.as_form()) == segment_


def test_a_group_is_not_cleaned_up_again_for_state_that_is_active_by_now() -> None:
    """T may not be pushed any more. Group 0 was cleaned up: its T is active, its R pushed; group 1 waits for it."""
    segments = (
        segment("r", "R", 100, Part(0, 1, 4, 1)),
        segment("t", "T", 50, Part(0, 1, 4)),
        segment("u", "T", 10, Part(1, 1, 4, 1)),
    )
    spiller = Spiller(Overflow(1), frozenset({"R"}))
    assert spiller.incomplete(Manifest(0, Directory.of(2, 1), 1, segments)) == [1]
