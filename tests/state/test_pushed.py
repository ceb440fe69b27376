"""Pushed parts are compacted: what a flow keeps follows what it holds, not how often groups were pushed."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from braidstream.control.overflow import Overflow
from braidstream.control.policies.generation_tiers import FAN as GENERATIONS
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.directory import Directory
from braidstream.state.compaction import Rules, SegmentMerge
from braidstream.state.generations import joined
from braidstream.state.manifest import Manifest, Part, Segment, manifest_name
from braidstream.state.pushed import plan

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
LOW, HIGH = Part(0, 1, 10), Part(1, 1, 10)


def part(prefix: int, generation: int, rows: int = 10) -> Part:
    return Part(prefix, 1, rows, generation)


def segment(name: str, *parts: Part, store: str = "R", epoch: int = 0, bytes_a_row: int = 10) -> Segment:
    rows = sum(one.rows for one in parts)
    return Segment(name, store, rows, bytes_a_row * rows, 0, 0, 1 << 62, epoch, epoch, parts)


def merges(*segments: Segment, most_bytes: int = 10_000, barriers: tuple[int, ...] = ()) -> list[SegmentMerge]:
    """Of one slot with the groups 0 and 1, the halves of the hash space."""
    section = Manifest(9, Directory.of(2, 1), 1, segments).section((0, 0))
    return plan(section, None, Rules({"R": None}, frozenset(barriers), most_bytes=most_bytes))


def inputs(merge: SegmentMerge) -> dict[str, list[tuple[int, int]]]:
    return {one.name: [(p.prefix, p.generation) for p in one.parts] for one in merge.inputs}


def test_parts_of_one_generation_become_one() -> None:
    """Only those: the active part of `a`, and another generation in `d`, stay where they are."""
    four = [segment("a", part(0, 1), part(1, 0)), segment("b", part(0, 1)), segment("c", part(0, 1))]
    four.append(segment("d", part(0, 1), part(1, 2)))
    (merge,) = merges(*four)
    assert inputs(merge) == {name: [(0, 1)] for name in "abcd"}
    assert merge.pushed == ((0, 1),)
    assert merges(*four[:3]) == []


def test_groups_share_a_segment_and_generations_of_a_group_do_not() -> None:
    both = [segment(name, part(0, 1), part(1, 3)) for name in "abcd"]
    (merge,) = merges(*both)
    assert merge.pushed == ((0, 1), (HIGH.low, 3))
    first, second = merges(*both, *(segment(name, part(0, 2)) for name in "efgh"))
    assert {first.pushed, second.pushed} == {((0, 1), (HIGH.low, 3)), ((0, 2),)}
    assert [set(inputs(one)) for one in (first, second)] == [set("abcd"), set("efgh")]


def test_small_segments_are_put_together_where_their_generations_agree() -> None:
    """Of each group there are too few parts to merge them for their own sake. `e` has another generation of group 0."""
    some = [segment("a", part(0, 1)), segment("b", part(1, 1)), segment("c", part(0, 1)), segment("d", part(1, 1))]
    (merge,) = merges(*some, segment("e", part(0, 2), part(1, 1)))
    assert set(inputs(merge)) == set("abcd")
    assert merges(*some[:3]) == []
    half = [segment("a", part(0, 1), bytes_a_row=300), segment("b", part(1, 1), bytes_a_row=300)]
    assert [set(inputs(one)) for one in merges(*half)] == [{"a", "b"}]


def test_what_is_told_apart_stays_apart() -> None:
    four = [segment(name, part(0, 1), epoch=epoch) for epoch, name in enumerate("abcd")]
    assert len(merges(*four)) == 1
    assert merges(*four, barriers=(1,)) == []
    others = [segment(name, part(0, 1), store=store) for name, store in zip("abcd", "RSRS", strict=True)]
    assert merges(*others) == []
    assert merges(*(segment(name, LOW) for name in "abcd")) == []


def test_a_merge_takes_no_more_than_it_may() -> None:
    four = [segment(name, part(0, 1)) for name in "abcd"]
    assert [set(inputs(one)) for one in merges(*four, most_bytes=400)] == [set("abcd")]
    assert [set(inputs(one)) for one in merges(*four, most_bytes=250)] == [{"a", "b"}]
    assert merges(*four, most_bytes=150) == []


def test_generations_that_were_cleaned_up_among_themselves_are_one() -> None:
    before = Manifest(0, Directory.of(2, 1), 1, (segment("a", part(0, 1), part(1, 1)), segment("b", part(0, 2))))
    more = Manifest(0, before.directory, 1, (*before.segments, segment("c", part(0, 3)), segment("d", part(0, 0))))
    after = joined(more, {0: [1, 3]})
    assert {s.name: [p.generation for p in s.parts] for s in after.segments} == {
        "a": [3, 1],
        "b": [2],
        "c": [3],
        "d": [0],
    }


N_EPOCHS, N_ROWS = 140, 50


def epoch_of(number: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(number)
    times = pa.array(np.arange(N_ROWS) + number * N_ROWS, pa.timestamp("us", "UTC"))
    numbers = np.arange(N_ROWS) + number * N_ROWS
    return {name: pa.table([rng.integers(0, 5000, N_ROWS), numbers, times], schema=SCHEMA) for name in "RS"}


def test_pushing_a_group_again_and_again_leaves_few_generations_and_few_segments(tmp_path: Path) -> None:
    """Unbounded windows and a budget of a few epochs: state grows, but what describes it does not with every push."""
    inputs_ = {"q": [Indexed(name, name, ("k",), None) for name in "RS"]}
    overflow = Overflow(20_000, spill_share=0.8)
    flow = Harness(tmp_path, dict.fromkeys("RS", SCHEMA), inputs_, groups=4, overflow=overflow, keep=2)
    most, segments, manifest, pushes = 0, [], [], Counter[int]()
    for number in range(N_EPOCHS):
        before = active(flow)
        flow.epoch(epoch_of(number))
        generations: dict[int, set[int]] = defaultdict(set)
        for one in (part for segment in flow.manifest.segments for part in segment.parts if part.generation):
            generations[one.low].add(one.generation)
        most = max(most, *map(len, generations.values()), 0)
        pushes.update(group for group, size in active(flow).items() if size == 0 and before[group] > 0)
        segments.append(len(flow.manifest.segments))
        manifest.append(len(flow.runner.checkpoint.files.read(manifest_name(number))))
    assert min(pushes.values()) > 3 * GENERATIONS
    assert most < 3 * GENERATIONS  # three tiers of sizes
    assert max(segments) < N_EPOCHS  # two are written in every epoch
    third = N_EPOCHS // 3
    assert max(segments[-third:]) <= 1.5 * max(segments[third:-third])
    assert max(manifest[-third:]) <= 1.5 * max(manifest[third:-third])
    flow.finish()
    found = Counter((row["R.v"], row["S.v"]) for row in flow.results("q"))
    sides = [pa.concat_tables([epoch_of(number)[name] for number in range(N_EPOCHS)]) for name in "RS"]
    both = sides[0].join(sides[1].rename_columns(["k", "w", "t"]), "k", join_type="inner")
    assert found == Counter(zip(both["v"].to_pylist(), both["w"].to_pylist(), strict=True))


def active(flow: Harness) -> dict[int, int]:
    """The bytes of each group's active generation."""
    assert flow.runner.flow.decider.spiller is not None
    return {one.state.group: one.state.bytes for one in flow.runner.flow.decider.spiller.groups(flow.manifest)}
