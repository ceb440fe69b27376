"""A slot, a group, an epoch and an address have types of their own where they meet, and are integers when code runs."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
import pytest

from braidstream.control.load import GroupLoad, SlotLoad
from braidstream.control.policies.spilling import GroupState
from braidstream.model.directory import Directory, Group
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import CleanUp, Decision, Merge, Move, RemoveSlot, Spill, Split
from braidstream.model.numbers import Address, EpochNumber, GroupId, SlotId, slot_ids
from braidstream.model.reports import CleanUpReport, Failure, GroupCount, SlotReport
from braidstream.state.manifest import Manifest

TYPES = {"slot": SlotId, "group": GroupId, "epoch": EpochNumber, "touched": EpochNumber}
VALUES = (
    Move, Split, Merge, RemoveSlot, Spill, CleanUp, Decision, GroupFigures, SlotFigures, GroupCount, SlotReport,
    CleanUpReport, Failure, GroupLoad, SlotLoad, GroupState, Group, Manifest,
)  # fmt: skip


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_what_is_decided_by_tells_slots_groups_and_epochs_apart(kind: type[Any]) -> None:
    named = {name: hint for name, hint in get_type_hints(kind).items() if name in TYPES}
    assert named
    assert named == {name: TYPES[name] for name in named}


def test_the_directory_tells_slots_groups_and_addresses_apart() -> None:
    taken = {name: get_type_hints(getattr(Directory, name)) for name in ("at", "of_slot", "move", "merge", "buddy")}
    assert taken["at"]["address"] is Address
    assert taken["of_slot"]["slot"] is taken["move"]["slot"] is SlotId
    assert taken["move"]["group"] is taken["merge"]["group"] is taken["buddy"]["group"] is GroupId


def test_they_are_integers_in_json_and_when_code_runs() -> None:
    assert list(slot_ids(3)) == [0, 1, 2]
    measures = msgspec.json.decode(b'{"touched":{"3":4},"outputs":{"3":0.5}}', type=GroupMeasures)
    assert measures == GroupMeasures({GroupId(3): EpochNumber(4)}, {GroupId(3): 0.5})
    assert type(Directory.of(4).groups[3].low) is int
