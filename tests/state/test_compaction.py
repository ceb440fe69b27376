"""Compaction loses no row, keeps none for long after its time, and leaves O(log) segments."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.lab.testing.harness import Harness
from braidstream.lab.testing.strategies import Case, two_streams
from braidstream.model.directory import Directory
from braidstream.state import compaction
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.segments import FOREVER, open_segment, owned_rows
from tests.backends import key_columns, tables
from tests.kernels.test_streams_join import MANY, SLOTS, harness_of, often_compacted

SECOND = 1_000_000
EPOCHS = 1000


@MANY
@given(two_streams(max_epochs=12), SLOTS, st.integers(1, 16), st.booleans())
def test_every_stored_row_is_live_once_until_it_expires(case: Case, slots: int, groups: int, resizes: bool) -> None:
    with harness_of(case, slots, groups) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            if resizes and i % 3 == 2:
                harness.restart((slots + i) % 7 + 1)
            harness.epoch(tables(case, epoch))
            for stream in case.streams:
                found, deadlines = live_rows(harness, stream.name)
                wanted = arrived(case, stream.name, i)
                watermark = harness.manifest.watermark
                if watermark is not None and stream.window_us is not None:
                    found = Counter({row: n for row, n in found.items() if row[1] + stream.window_us >= watermark})
                    wanted = Counter({row: n for row, n in wanted.items() if row[1] + stream.window_us >= watermark})
                assert found == wanted
                assert watermark is None or all(deadline >= watermark for deadline in deadlines)


def live_rows(harness: Harness, stream: str) -> tuple[Counter[Any], list[int]]:
    """The rows (v, time) of a stream that slots may find, and the deadlines of their segments."""
    manifest = harness.manifest
    found: Counter[Any] = Counter()
    deadlines = []
    for slot in range(manifest.n_slots):
        for segment in manifest.of_slot(slot):
            if segment.store.startswith(f"{stream}["):
                rows = open_segment(harness.runner.checkpoint.files, segment)
                own = owned_rows(rows, segment, manifest.directory.of_slot(slot))
                found.update(zip(own.table["v"].to_pylist(), own.times.tolist(), strict=True))
                deadlines.append(segment.deadline)
    return found, deadlines


def arrived(case: Case, stream: str, last_epoch: int) -> Counter[Any]:
    keys = key_columns(case)[stream]
    rows = [row for epoch in case.epochs[: last_epoch + 1] for row in epoch[stream]]
    return Counter((row["v"], row["ts"]) for row in rows if all(row[name] is not None for name in keys))


# Pure simulations of 1000 epochs of a second: one slot, one store, segments without files.

SIMULATIONS = {
    "an unbounded window": {"window_us": None},
    "a window of 500 epochs": {"window_us": 500 * SECOND},
    "a window of 500 epochs, a few rows each": {"window_us": 500 * SECOND, "rows": 50},
    "a window of 10 epochs": {"window_us": 10 * SECOND},
    "a short window, but the other stream is silent": {"window_us": SECOND, "is_silent": True},
    "a short window and rows that come up to 200 epochs late": {"window_us": SECOND, "delay_us": 200 * SECOND},
    "a delay of half the window": {"window_us": 200 * SECOND, "delay_us": 100 * SECOND},
}


@pytest.mark.parametrize("options", SIMULATIONS.values(), ids=SIMULATIONS.keys())
def test_the_number_of_segments_is_logarithmic(options: dict[str, Any]) -> None:
    n_segments, rewritten = simulate(**options)
    assert n_segments <= 25  # three to five in each of five tiers; one for each epoch would be 1000, 500 or 200
    assert rewritten <= 5 or options.get("rows", 0) < 100  # every row once a tier; a few rows cost nothing


def simulate(
    window_us: int | None, *, rows: int = 5000, delay_us: int = 0, is_silent: bool = False
) -> tuple[int, float]:
    """The largest number of segments at any time, and how often a row was rewritten on average."""
    manifest = Manifest(-1, Directory.of(1, 1), 1)
    most = rewritten = 0
    for epoch in range(EPOCHS):
        live = {segment.name: segment for segment in manifest.segments}
        for merge in compaction.plan(manifest.section((0, 0)), manifest.watermark, compaction.Rules({"s": window_us})):
            made = merged(merge, f"merged in {epoch}")
            live = {name: segment for name, segment in live.items() if segment not in merge.inputs}
            if made is not None:
                live[made.name] = made
                rewritten += made.rows
        newest = (epoch + 1) * SECOND
        new = segment_of(f"new in {epoch}", rows, max(newest - SECOND - delay_us, 0), newest, window_us, epoch)
        watermark = None if is_silent else newest - delay_us
        kept = tuple(s for s in [*live.values(), new] if watermark is None or s.deadline >= watermark)
        manifest = replace(manifest, epoch=epoch, watermark=watermark).with_segments(kept)
        most = max(most, len(kept))
    return most, rewritten / (rows * EPOCHS)


def merged(merge: compaction.SegmentMerge, name: str) -> Segment | None:
    """One segment in place of several; rows are spread evenly over their time, and expired ones are left out."""
    oldest, newest = min(s.oldest for s in merge.inputs), max(s.newest for s in merge.inputs)
    rows = sum(s.rows for s in merge.inputs)
    if merge.watermark is not None and merge.window_us is not None:
        alive_from = max(merge.watermark - merge.window_us, oldest)
        rows = rows * max(newest - alive_from, 0) // max(newest - oldest, 1)
        oldest = alive_from
    first, last = min(s.first_epoch for s in merge.inputs), max(s.epoch for s in merge.inputs)
    made = segment_of(name, rows, oldest, newest, merge.window_us, last)
    return replace(made, first_epoch=first) if rows else None


def segment_of(name: str, rows: int, oldest: int, newest: int, window_us: int | None, epoch: int) -> Segment:
    deadline = FOREVER if window_us is None else newest + window_us
    parts = (Part(0, 0, rows),)
    return Segment(name, "s", rows, 8 * rows, oldest, newest, deadline, epoch, epoch, parts)


def test_a_barrier_keeps_what_came_before_it_apart() -> None:
    segments = tuple(segment_of(str(i), 10, i, i, None, i) for i in range(6))
    section = Manifest(5, Directory.of(1, 1), 1, segments).section((0, 0))

    def merged_epochs(*barriers: int) -> list[list[int]]:
        rules = compaction.Rules({"s": None}, frozenset(barriers))
        return [[s.epoch for s in merge.inputs] for merge in compaction.plan(section, None, rules)]

    assert merged_epochs() == [[0, 1, 2, 3]]
    assert merged_epochs(1) == [[2, 3, 4, 5]]
    assert merged_epochs(2) == []
