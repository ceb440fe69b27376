"""What is measured of each group for as long as it lives: T_u, the epoch of its last new tuple, and P_o, its results.

P_o counts the results of a group's *active* generation (D-CAPE 4.2): a pushed group begins anew. Controller and budget
choose groups by both, and the simulator too, so they are kept once: in the notes of the manifest, or by the simulator,
and whoever decides is given them.

Measures are a value: every function returns another one. Invariant: after `counted` every group of the directory has
both, and no other. Both are arrays with the ids of groups beside them (`ByGroup`), which are mappings to whoever reads;
JSON has them as objects by id, a compact file has `to_columns`. Cost: O(groups) in NumPy, whatever the number of
epochs; an object a group is made only for who looks up single ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from braidstream.model.directory import Directory
from braidstream.model.numbers import EpochNumber, GroupId
from braidstream.model.packed_numbers import Column
from braidstream.model.values import Value, changed

__all__ = ["Brought", "BroughtColumns", "ByGroup", "GroupMeasures", "MeasureColumns"]

MeasuresT = TypeVar("MeasuresT", bound="GroupMeasures")
NumberT = TypeVar("NumberT", int, float, EpochNumber)

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
_NOTHING: I64 = np.zeros(0, dtype=np.int64)


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


@dataclass(frozen=True, eq=False)
class BroughtColumns:
    """What an epoch brought to groups, as arrays; a group may be there several times."""

    groups: I64
    rows: I64
    matches: I64

    @classmethod
    def of(cls, brought: Iterable[Brought]) -> BroughtColumns:
        """Of single entries."""
        entries = [(one.group, one.rows, one.matches) for one in brought]
        table = np.array(entries, dtype=np.int64).reshape(-1, 3)
        return cls(table[:, 0], table[:, 1], table[:, 2])


class ByGroup(Mapping[GroupId, NumberT], Generic[NumberT]):
    """A number for each of some groups: two arrays, ids ascending, that read like a dictionary."""

    def __init__(self, ids: I64, values: npt.NDArray[np.number]) -> None:
        self.ids, self.values_ = ids, values

    @classmethod
    def of(cls, known: Mapping[GroupId, NumberT], kind: type[np.number]) -> ByGroup[NumberT]:
        """Of any mapping."""
        if isinstance(known, ByGroup):
            return known
        ids = np.array(sorted(known), dtype=np.int64)
        return cls(ids, np.array([known[GroupId(one)] for one in ids.tolist()], dtype=kind))

    @cached_property
    def _plain(self) -> dict[GroupId, NumberT]:
        return cast("dict[GroupId, NumberT]", dict(zip(self.ids.tolist(), self.values_.tolist(), strict=True)))

    def __getitem__(self, group: GroupId) -> NumberT:
        return self._plain[group]

    def __iter__(self) -> Iterator[GroupId]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ByGroup):
            return np.array_equal(self.ids, other.ids) and np.array_equal(self.values_, other.values_)
        return self._plain == other

    def __hash__(self) -> int:
        return hash((self.ids.tobytes(), self.values_.tobytes()))

    def __repr__(self) -> str:
        return repr(self._plain)

    def found(self, ids: I64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Of each group the place of its number, and whether it has one; the place says nothing where it has none."""
        if self.ids is ids or np.array_equal(self.ids, ids):
            return np.arange(len(ids)), np.ones(len(ids), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.ids, ids), max(len(self.ids) - 1, 0))
        return at, (self.ids[at] == ids) if len(self.ids) else np.zeros(len(ids), dtype=np.bool_)

    def at(self, ids: I64, default: float) -> npt.NDArray[np.number]:
        """The number of each group, or the default."""
        at, is_known = self.found(ids)
        if not len(self.ids):
            return np.full(len(ids), default, dtype=self.values_.dtype)
        return np.where(is_known, self.values_[at], np.full(1, default, dtype=self.values_.dtype))


class MeasureColumns(Value, frozen=True):
    """Measures as they are kept in a compact file."""

    groups: Column = Column()
    """Ids, ascending."""
    touched: Column = Column()
    outputs: Column = Column()
    touched_groups: Column | None = None
    """Where not all groups have a T_u: those that have."""


class GroupMeasures(Value, frozen=True):
    """T_u and P_o, by group."""

    touched: Mapping[GroupId, EpochNumber] = msgspec.field(default_factory=dict)
    """T_u: the epoch of its last new tuple, or the first in which the group was seen."""
    outputs: Mapping[GroupId, float] = msgspec.field(default_factory=dict)
    """P_o: the results of its active generation so far."""

    @property
    def touched_by_group(self) -> ByGroup[EpochNumber]:
        """T_u as arrays."""
        return ByGroup.of(self.touched, np.int64)

    @property
    def outputs_by_group(self) -> ByGroup[float]:
        """P_o as arrays."""
        return ByGroup.of(self.outputs, np.float64)

    @classmethod
    def from_columns(cls: type[MeasuresT], columns: MeasureColumns) -> MeasuresT:
        """The measures of a compact file."""
        groups = columns.groups.whole
        seen = groups if columns.touched_groups is None else columns.touched_groups.whole
        return cls(ByGroup(seen, columns.touched.whole), ByGroup(groups, columns.outputs.real))

    def to_columns(self) -> MeasureColumns:
        """These, for a compact file."""
        touched, outputs = self.touched_by_group, self.outputs_by_group
        some = None if np.array_equal(touched.ids, outputs.ids) else Column.of(touched.ids)
        return MeasureColumns(Column.of(outputs.ids), Column.of(touched.values_), Column.of(outputs.values_), some)

    def counted(
        self: MeasuresT, brought: Iterable[Brought] | BroughtColumns, directory: Directory, epoch: EpochNumber
    ) -> MeasuresT:
        """The measures after an epoch; of groups that are no more nothing is kept."""
        new = brought if isinstance(brought, BroughtColumns) else BroughtColumns.of(brought)
        ids = directory.columns().sorted_ids[1]
        touched, outputs = self.touched_by_group.at(ids, epoch), self.outputs_by_group.at(ids, 0.0)
        at, is_known = ByGroup[int](ids, ids).found(new.groups)
        np.add.at(outputs, at[is_known], new.matches[is_known])
        touched[at[is_known & (new.rows != 0)]] = epoch
        return changed(self, touched=ByGroup(ids, touched), outputs=ByGroup(ids, outputs))

    def carried(self: MeasuresT, before: Directory, after: Directory) -> MeasuresT:
        """The measures after splits and merges: halves share what their whole gave, buddies add up."""
        old, new = before.columns(), after.columns()
        order, ids = new.sorted_ids
        first = old.located(new.stages, new.firsts)[order]
        deeper = new.depths[order].astype(np.int64) - old.depths[first]
        outputs = self.outputs_by_group.at(old.ids[first], 0.0) * 0.5 ** np.maximum(deeper, 0)
        known = self.touched_by_group
        place, is_known = known.found(old.ids[first])
        touched = known.values_[place] if len(known) else np.zeros(len(ids), dtype=np.int64)
        for at in np.flatnonzero(deeper < 0).tolist():
            own = _within(before, after, int(order[at]), int(first[at]))
            outputs[at] = sum(self.outputs.get(one, 0.0) for one in own)
            seen = [self.touched[one] for one in own if one in self.touched]
            touched[at], is_known[at] = max(seen, default=0), bool(seen)
        seen_ids = ids if is_known.all() else ids[is_known]
        return changed(self, touched=ByGroup(seen_ids, touched[is_known]), outputs=ByGroup(ids, outputs))

    def begun_anew(self: MeasuresT, groups: Iterable[GroupId]) -> MeasuresT:
        """The measures after pushes: the next generation of these groups has given nothing yet."""
        known = self.outputs_by_group
        pushed = np.unique(np.fromiter(groups, dtype=np.int64))
        at, is_known = known.found(pushed)
        outputs = known.values_.copy()
        outputs[at[is_known]] = 0.0
        if is_known.all():
            return changed(self, outputs=ByGroup(known.ids, outputs))
        ids = np.concatenate([known.ids, pushed[~is_known]])
        order = np.argsort(ids)
        more = np.concatenate([outputs, np.zeros(len(ids) - len(outputs))])
        return changed(self, outputs=ByGroup(ids[order], more[order]))


def _within(before: Directory, after: Directory, at: int, first: int) -> list[GroupId]:
    """The groups of before that lie within the group at a position after, the first of them given."""
    whole, columns = after.group_at(at), before.columns()
    last = columns.position_at(whole.stage, whole.last)
    return [GroupId(one) for one in columns.ids[first : last + 1].tolist()]
