"""A manifest reads back as it was written, says so when it was damaged, and follows the directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidstream.errors import DamagedState
from braidstream.model.directory import HASH_BITS, Directory
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Part, Segment, manifest_name
from braidstream.state.notes import Notes
from tests.scale import examples
from tests.state.values import values

SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    directory = Directory.of(draw(st.integers(1, 12)), draw(st.integers(1, 5)))
    for _ in range(draw(st.integers(0, 6))):
        group = draw(st.sampled_from(directory.groups))
        directory = directory.split(group.id, draw(st.integers(0, 4)))
    return directory


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Every segment has parts of some of the groups."""
    directory = draw(directories())
    times = st.integers(-(2**60), 2**60)
    segments = []
    for i in range(draw(st.integers(0, 6))):
        groups = draw(st.lists(st.sampled_from(directory.groups), unique=True, min_size=1))
        rows = st.integers(1, 10**9)
        parts = tuple(Part(g.prefix, g.depth, draw(rows)) for g in sorted(groups, key=lambda g: g.low))
        oldest, newest = sorted((draw(times), draw(times)))
        total = sum(part.rows for part in parts)
        segments.append(Segment(f"segments/{i}", draw(st.text()), total, 100, oldest, newest, newest, i, i, parts))
    return Manifest(
        epoch=draw(st.integers(-1, 10**9)),
        directory=directory,
        n_slots=5,
        sections=tuple(segments),
        newest=draw(st.dictionaries(st.text(), times)),
        watermark=draw(st.none() | times),
        executors=draw(st.dictionaries(st.integers(0, 4), st.text())),
        totals=draw(st.dictionaries(st.text(), st.integers(0, 2**63))),
        notes=draw(values(Notes)).renewed(),
    )


@SETTINGS
@given(manifests())
def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path, manifest: Manifest) -> None:
    files = Files(str(tmp_path))
    files.make("manifests", "sections")
    manifest.write(files)
    assert Manifest.read(files, manifest.epoch) == manifest
    assert manifest.epoch in Manifest.epochs(files)


def written(folder: Path) -> tuple[Files, Path]:
    files = Files(str(folder))
    files.make("manifests", "sections")
    part = (Part(0, 0, 3),)
    segment = Segment("segments/a", "R[k]", 3, 100, 0, 9, 19, 0, 0, part)
    Manifest(0, Directory.of(1), 1, (segment,), {"R": 9}, 9).write(files)
    return files, folder / manifest_name(0)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_found_and_named(tmp_path: Path, data: st.DataObject) -> None:
    files, path = written(tmp_path)
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 2))
    kind = data.draw(st.sampled_from(["another byte", "cut off", "a byte more"]))
    if kind == "another byte":
        other = data.draw(st.integers(0, 255).filter(lambda byte: chr(byte).lower() != chr(content[at]).lower()))
        damaged = content[:at] + bytes([other]) + content[at + 1 :]
    else:
        damaged = content[:at] if kind == "cut off" else content[:at] + b"0" + content[at:]
    path.write_bytes(damaged)
    with pytest.raises(DamagedState, match="this manifest is damaged") as caught:
        Manifest.read(files, 0)
    assert caught.value.path == str(path)
    assert "restore the file from a copy" in caught.value.fix


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    files, path = written(tmp_path)
    path.unlink()
    with pytest.raises(DamagedState, match="this manifest is missing") as caught:
        Manifest.read(files, 0)
    assert caught.value.path == str(path)


@SETTINGS
@given(manifests(), st.data())
def test_after_splits_every_part_lies_in_one_group_and_covers_what_it_did(
    manifest: Manifest, data: st.DataObject
) -> None:
    directory = manifest.directory
    for _ in range(data.draw(st.integers(0, 8))):
        group = data.draw(st.sampled_from(directory.groups))
        if group.depth < HASH_BITS:
            directory = directory.split(group.id, data.draw(st.integers(0, 4)))
    fitted = manifest.fitted(directory)
    assert fitted.directory == directory
    known = {segment.name: segment for segment in manifest.segments}
    assert known.keys() == {segment.name for segment in fitted.segments}
    for after in fitted.segments:
        assert covered(after) == covered(known[after.name])
        for part in after.parts:
            group = directory.at(part.low)
            assert group.low <= part.low <= part.high <= group.high
            assert part.rows >= 1


@SETTINGS
@given(manifests(), st.data())
def test_after_merges_slots_find_the_same_segments(manifest: Manifest, data: st.DataObject) -> None:
    directory = manifest.directory
    for _ in range(data.draw(st.integers(0, 6))):
        group = data.draw(st.sampled_from(directory.groups))
        if directory.buddy(group.id) is not None:
            directory = directory.merge(group.id)
    fitted = manifest.fitted(directory)
    for slot in range(manifest.n_slots):
        own = {s.name: [p for p in s.parts if directory.at(p.low).slot == slot] for s in fitted.segments}
        assert {s.name: list(s.parts) for s in fitted.of_slot(slot)} == {name: p for name, p in own.items() if p}
    assert {s.name: covered(s) for s in fitted.segments} == {s.name: covered(s) for s in manifest.segments}


def covered(segment: Segment) -> list[tuple[int, int]]:
    """The ranges of hashes that are live, neighbours joined."""
    joined: list[tuple[int, int]] = []
    for part in sorted(segment.parts, key=lambda p: p.low):
        if joined and joined[-1][1] + 1 == part.low:
            joined[-1] = (joined[-1][0], part.high)
        else:
            joined.append((part.low, part.high))
    return joined


def test_what_a_slot_has_compacted_is_taken_out_of_the_segment() -> None:
    directory = Directory.of(4, 2)
    parts = tuple(Part(g.prefix, g.depth, 10) for g in directory.groups)
    segment = Segment("segments/a", "R[k]", 40, 100, 0, 9, 19, 0, 0, parts)
    mine = [(g.low, g.high) for g in directory.of_slot(0)]
    left = segment.without(mine)
    assert left.parts == parts[2:]
    assert left.live_rows == 20
    manifest = Manifest(0, directory, 2, (left,))
    assert manifest.of_slot(0) == []
    assert manifest.of_slot(1) == [left]
