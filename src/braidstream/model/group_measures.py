"""What is measured of each group for as long as it lives: T_u, the epoch of its last new tuple, and P_o, its results.

P_o counts the results of a group's *active* generation (D-CAPE 4.2): a pushed group begins anew. Controller and budget
choose groups by both, and the simulator too, so they are kept once: in the notes of the manifest, or by the simulator,
and whoever decides is given them.

Measures are a value: every function returns another one. Invariant: after `counted` every group of the directory has
both, and no other. Cost: O(groups), whatever the number of epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from braidstream.model.directory import Directory, Group
from braidstream.model.numbers import EpochNumber, GroupId
from braidstream.model.values import Value, changed

__all__ = ["Brought", "GroupMeasures"]

MeasuresT = TypeVar("MeasuresT", bound="GroupMeasures")


class Brought(Protocol):
    """What an epoch brought to a group: `model.reports.GroupCount`, or `model.figures.GroupFigures`."""

    @property
    def group(self) -> GroupId:
        """Its id."""
        ...

    @property
    def rows(self) -> int:
        """New tuples."""
        ...

    @property
    def matches(self) -> int:
        """Results."""
        ...


class GroupMeasures(Value, frozen=True):
    """T_u and P_o, by group."""

    touched: Mapping[GroupId, EpochNumber] = msgspec.field(default_factory=dict)
    """T_u: the epoch of its last new tuple, or the first in which the group was seen."""
    outputs: Mapping[GroupId, float] = msgspec.field(default_factory=dict)
    """P_o: the results of its active generation so far."""

    def counted(self: MeasuresT, brought: Iterable[Brought], directory: Directory, epoch: EpochNumber) -> MeasuresT:
        """The measures after an epoch; of groups that are no more nothing is kept."""
        touched = {group: self.touched.get(group, epoch) for group in directory.by_id}
        outputs = {group: self.outputs.get(group, 0.0) for group in directory.by_id}
        for one in brought:
            if one.group in outputs:
                outputs[one.group] += one.matches
                touched[one.group] = epoch if one.rows else touched[one.group]
        return changed(self, touched=touched, outputs=outputs)

    def carried(self: MeasuresT, before: Directory, after: Directory) -> MeasuresT:
        """The measures after splits and merges: halves share what their whole gave, buddies add up."""
        touched, outputs = dict[GroupId, EpochNumber](), dict[GroupId, float]()
        for group in after.groups:
            whole = before.at(group.low)
            old = [whole] if whole.depth <= group.depth else _within(before, group)
            share = 0.5 ** max(group.depth - whole.depth, 0)
            outputs[group.id] = share * sum(self.outputs.get(one.id, 0.0) for one in old)
            if seen := [self.touched[one.id] for one in old if one.id in self.touched]:
                touched[group.id] = max(seen)
        return changed(self, touched=touched, outputs=outputs)

    def begun_anew(self: MeasuresT, groups: Iterable[GroupId]) -> MeasuresT:
        """The measures after pushes: the next generation of these groups has given nothing yet."""
        return changed(self, outputs={**self.outputs, **dict.fromkeys(groups, 0.0)})


def _within(directory: Directory, group: Group) -> list[Group]:
    return [one for one in directory.groups if group.low <= one.low <= group.high]
