"""Checkpoints from before stages had regions of their own, when all shared the groups of the first, go on.

`one_region.zip` was written by the engine as it was then. Random ones are made of what the engine writes now.
"""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.overflow import Overflow
from braidstream.control.shedding import STRATEGIES
from braidstream.epoch.regions import with_regions
from braidstream.kernels.families import dimensions_of, family_of
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.testing.strategies import Case
from braidstream.model.directory import Directory, address_of
from braidstream.model.values import changed
from braidstream.state.acting import intent
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.generations import held_groups
from braidstream.state.manifest import Manifest
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_queries_engine import GROUPS, MANY_KEYS, SLOTS, SOME, harness_of, query_of
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import SPILLS, often_compacted
from tests.kernels.test_stages import BUSHY, GRIDS, HASHES, SCHEMA, SEEDS, check_places, results_of, rows_of
from tests.kernels.test_streams_join import leftovers
from tests.scale import examples


def in_one_region(manifest: Manifest) -> Manifest:
    """The manifest as it was when all stages shared the groups of the first."""
    directory = Directory(manifest.directory.region(0).groups, manifest.directory.next_id)
    segments = tuple(
        replace(s, parts=tuple(replace(part, prefix=part.prefix_at(0)) for part in s.parts)) for s in manifest.segments
    )
    notes = manifest.notes
    if asked := notes.cleaning:
        groups = tuple(group for group in asked.groups if group in directory.by_id)
        notes = changed(notes, cleaning=changed(asked, groups=groups))
    if notes.shedding is not None and (known := notes.shedding.filter):
        pieces = tuple(piece for piece in known.pieces if piece.low < address_of(1, 0))
        shares = {query: own[: len(pieces)] for query, own in notes.shedding.expected.items()}
        one = changed(notes.shedding, filter=changed(known, pieces=pieces), expected=shares)
        notes = changed(notes, shedding=one)
    grids, retired = (
        tuple(replace(grid, family=family_of(dimensions_of(grid.family))) for grid in some)
        for some in (manifest.grids, manifest.retired)
    )
    one = replace(manifest, directory=directory, notes=notes, grids=grids, retired=retired)
    return one.with_segments(segments)


SHEDS = st.fixed_dictionaries(
    {
        "overflow": st.builds(
            Overflow, st.sampled_from([1, 1500, 4000]), st.just("shed"), shed_by=st.sampled_from(STRATEGIES)
        )
    }
)


@settings(SOME, max_examples=examples(50))
@given(MANY_KEYS, SLOTS, GROUPS, stories.STATISTICS, SPILLS | GRIDS | SHEDS, SEEDS, st.data())
def test_a_checkpoint_of_one_region_goes_on_with_one_for_each_stage(
    case: Case, slots: int, groups: int, statistics: Any, more: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    """Where tuples are shed, what is found is a part of what there is."""
    text, expected = query_of(case, data)
    options = {"slots": slots, "groups": groups, "statistics": statistics, "controller": restless(seed), **more}
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, **options)
        for number, epoch in enumerate(case.epochs):
            harness.epoch(tables(case, epoch))
            if data.draw(st.booleans(), label="old"):
                old = in_one_region(harness.manifest)
                harness.runner.checkpoint.commit(old)
                harness.restart(data.draw(st.none() | SLOTS, label="slots"))
                assert harness.manifest.epoch == number
                check_places(harness)
        harness.finish()
        found, sheds = stories.found(harness, "q"), getattr(more.get("overflow"), "on_overflow", "") == "shed"
        assert all(expected[row] >= n for row, n in found.items()) if sheds else found == expected
        assert leftovers(harness) == []


def test_what_was_pushed_and_asked_for_goes_over_with_its_groups(tmp_path: Path) -> None:
    options: dict[str, Any] = {"overflow": Overflow(1), "restless_spills": 2, "groups": 4, "slots": 2}
    harness = QueryHarness(tmp_path, dict.fromkeys("ABCD", SCHEMA), {"q": BUSHY}, **options)
    for epoch in range(4):
        harness.epoch(rows_of(epoch))
    old = in_one_region(harness.manifest)
    held = {(group.first, group.last) for group in held_groups(old)}
    old = intent(old, [g.id for g in held_groups(old)], 0)
    new = with_regions(old, harness.plan.stores, 4)
    assert held
    assert {(group.first, group.last) for group in held_groups(new)} <= held
    assert {group.id for group in held_groups(new)} <= set(new.notes.cleaning.groups)
    assert with_regions(new, harness.plan.stores, 4) == new


@pytest.mark.parametrize("kind", ["pushed", "cells"])
def test_a_checkpoint_that_an_earlier_version_wrote_goes_on(tmp_path: Path, kind: str) -> None:
    """Written by the engine before stages had regions: three stages, groups split, moved and pushed, or in cells."""
    options: dict[str, Any] = {"controller": restless(6), "regridder": RestlessGrids(HASHES, seed=4, max_dim=2)}
    if kind == "pushed":
        options = {"controller": restless(1), "overflow": Overflow(1), "restless_spills": 1}
    harness = QueryHarness(tmp_path / kind, dict.fromkeys("ABCD", SCHEMA), {"q": BUSHY}, slots=3, groups=5, **options)
    shutil.rmtree(tmp_path / kind)
    with zipfile.ZipFile(Path(__file__).parent / "one_region.zip") as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if name.startswith(kind)])
    checkpoint = Checkpoint(str(tmp_path / kind / "ck"))
    identity, before = checkpoint.identity(), checkpoint.latest()
    assert identity is not None
    assert before.epoch == 4
    assert {part.stage for segment in before.segments for part in segment.parts} == {0}
    harness._identity = identity
    harness.restart()
    check_places(harness)
    assert harness.manifest.directory.regions.keys() == {0, 1, 2}
    with often_compacted():
        for epoch in range(5, 9):
            harness.epoch(rows_of(epoch))
            check_places(harness)
        harness.finish()
    assert stories.found(harness, "q") == results_of(range(9), "ABCD")
