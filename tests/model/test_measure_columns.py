"""Measures are arrays, and count, carry and begin anew as dictionaries by group did."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.model.directory import Directory
from braidstream.model.group_measures import BroughtColumns, GroupMeasures, MeasureColumns
from braidstream.model.reports import GroupCount, GroupCounts, SlotReport, brought_by
from braidstream.state.notes import Measures, encoded_note
from tests.scale import examples

SETTINGS = settings(max_examples=examples(100), deadline=None)
COUNTS = st.lists(st.builds(GroupCount, st.integers(0, 30), st.integers(0, 3), st.integers(0, 1 << 40)), max_size=20)
Plain = tuple[dict[int, int], dict[int, float]]


def counted(known: Plain, brought: Iterable[GroupCount], directory: Directory, epoch: int) -> Plain:
    touched = {group.id: known[0].get(group.id, epoch) for group in directory.groups}
    outputs = {group.id: known[1].get(group.id, 0.0) for group in directory.groups}
    for one in brought:
        if one.group in outputs:
            outputs[one.group] += one.matches
            touched[one.group] = epoch if one.rows else touched[one.group]
    return touched, outputs


def carried(known: Plain, before: Directory, after: Directory) -> Plain:
    touched, outputs = {}, {}
    for group in after.groups:
        whole = before.at(group.low)
        inside = [one for one in before.groups if group.low <= one.low <= group.high]
        old = [whole] if whole.depth <= group.depth else inside
        outputs[group.id] = 0.5 ** max(group.depth - whole.depth, 0) * sum(known[1].get(one.id, 0.0) for one in old)
        if seen := [known[0][one.id] for one in old if one.id in known[0]]:
            touched[group.id] = max(seen)
    return touched, outputs


def begun_anew(known: Plain, groups: Iterable[int]) -> Plain:
    return known[0], {**known[1], **dict.fromkeys(groups, 0.0)}


@SETTINGS
@given(st.data())
def test_any_history_measures_what_dictionaries_measured(data: st.DataObject) -> None:
    directory = Directory.of(data.draw(st.integers(1, 12)), 2, data.draw(st.integers(1, 3)))
    partial = st.dictionaries(st.integers(0, 9), st.integers(0, 9), max_size=4)
    plain: Plain = (data.draw(partial), {group: float(n) for group, n in data.draw(partial).items()})
    measures = GroupMeasures(*plain)
    for epoch in range(data.draw(st.integers(1, 6))):
        what = data.draw(st.sampled_from(["count", "count", "change", "push"]))
        if what == "count":
            brought = data.draw(COUNTS)
            as_columns = BroughtColumns.of(brought) if data.draw(st.booleans()) else brought
            measures = measures.counted(as_columns, directory, epoch)
            plain = counted(plain, brought, directory, epoch)
        elif what == "push":
            pushed = data.draw(st.lists(st.integers(0, 30), max_size=5))
            measures, plain = measures.begun_anew(pushed), begun_anew(plain, pushed)
        else:
            before = directory
            for _ in range(data.draw(st.integers(1, 8))):
                group = data.draw(st.sampled_from(directory.groups))
                merges = directory.buddy(group.id) is not None and data.draw(st.booleans())
                directory = (
                    directory.merge(group.id)
                    if merges
                    else directory.split(group.id)
                    if group.depth < 64
                    else directory
                )
            measures, plain = measures.carried(before, directory), carried(plain, before, directory)
        assert (measures.touched, measures.outputs) == plain
        assert {group: measures.outputs.get(group, 0.0) for group in range(40)} == {
            group: plain[1].get(group, 0.0) for group in range(40)
        }
    assert GroupMeasures.from_columns(measures.to_columns()) == measures
    for module in (msgspec.json, msgspec.msgpack):
        kept = module.encode(measures.to_columns())
        assert GroupMeasures.from_columns(module.decode(kept, type=MeasureColumns)) == measures
    as_before = msgspec.json.encode(measures, enc_hook=encoded_note)
    assert msgspec.json.decode(as_before, type=GroupMeasures) == measures == GroupMeasures(*plain)


def test_measures_of_groups_know_the_same_whatever_they_are_made_of() -> None:
    from_mapping = Measures({0: 3, 7: 4}, {0: 8.0, 7: 5.0}, 10.0)
    directory = Directory.of(2).split(1)
    after = from_mapping.counted([GroupCount(2, 1, 6)], directory, 9)
    assert (after.touched, after.outputs, after.rate) == ({0: 3, 1: 9, 2: 9}, {0: 8.0, 1: 0.0, 2: 6.0}, 10.0)
    assert repr(after.outputs) == "{0: 8.0, 1: 0.0, 2: 6.0}"


def test_what_several_slots_report_of_groups_is_one_table() -> None:
    rng = np.random.default_rng(1)
    told = [
        SlotReport(slot=slot, executor="", stage=0, groups=GroupCounts.of(*rng.integers(0, top, (3, 5))))
        for slot, top in enumerate((10, 1 << 40))
    ]
    told.append(SlotReport(slot=2, executor="", stage=0))
    one = brought_by(told)
    listed = [count for report in told for count in report.groups]
    assert [GroupCount(*row) for row in zip(one.groups, one.rows, one.matches, strict=True)] == listed
    assert [report.matches for report in told] == [sum(count.matches for count in report.groups) for report in told]
    assert [report.units - report.matches for report in told] == [sum(c.rows for c in r.groups) for r in told]
