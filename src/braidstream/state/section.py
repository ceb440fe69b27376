"""A section: the groups of one slot at one stage, and what is live of them in which segments.

A snapshot has one section for each stage and slot (`state.sections`), read by that slot's task and written by it, or by
the driver where it changes the layout. A segment that is shared by several slots after a move is in the sections of all
of them, in each with the parts of that slot. Cells of heavy keys are in the section of the slot that has them now; what
was written under a grid that is retired, which several slots look at, is in the section `SHARED`.

A section is written once and never changed. It may list segments that have expired since: `live` leaves them out by the
watermark of the manifest that refers to it, so a section need not be written anew only because time goes on.

Size: about 20 bytes a part. Cost: one pass; figures of groups are made with NumPy, without an object a part.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from braidstream.errors import DamagedState
from braidstream.model.directory import HASH_BITS, Group
from braidstream.model.numbers import GroupId, SlotId
from braidstream.model.parts import Part, Segment
from braidstream.model.snapshots import ACCOUNT, UNSEALED, Figures, Key, Ref
from braidstream.model.values import Value
from braidstream.state import syncing
from braidstream.state.files import Files
from braidstream.state.packed import check, is_whole, pack, unpack

__all__ = ["Section"]


class Section:
    """The groups of a slot at a stage, in order, and the segments that hold their state. A value."""

    __slots__ = ("_columns", "_groups", "_live", "_segments", "_told", "slot", "stage")

    def __init__(
        self, stage: int, slot: SlotId, groups: Sequence[Group] = (), segments: Sequence[Segment] = ()
    ) -> None:
        self.stage, self.slot = stage, slot
        self._groups: tuple[Group, ...] | None = tuple(groups)
        self._segments: tuple[Segment, ...] | None = tuple(segments)
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._told: _Told | None = None
        self._live: dict[int | None, tuple[Segment, ...]] = {}

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Section)
            and (self.key, self.groups, self.segments) == (other.key, other.groups, other.segments)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Section({self.stage}, {self.slot}, {self.groups!r}, {self.segments!r})"

    def with_segments(self, segments: Sequence[Segment]) -> Section:
        """The same groups with other segments."""
        return Section(self.stage, self.slot, self.groups, segments)

    @property
    def key(self) -> Key:
        """Which it is."""
        return self.stage, self.slot

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups, in the order of their hashes."""
        if self._groups is None:
            self._groups = _groups(self.stage, self.slot, self._columns)
        return self._groups

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, live or expired."""
        if self._segments is None:
            assert self._told is not None
            self._segments = _segments(self.stage, self._told, self._columns)
        return self._segments

    @property
    def names(self) -> frozenset[str]:
        """The files of its segments."""
        return frozenset(self.sizes())

    @property
    def stores(self) -> frozenset[str]:
        """The stores that it has state of."""
        return frozenset(s.store for s in self.segments) if self._told is None else frozenset(self._told.stores)

    def sizes(self) -> dict[str, int]:
        """The files of its segments, and their bytes."""
        if self._told is None:
            return {segment.name: segment.bytes for segment in self.segments}
        return dict(zip(self._told.names, self._columns["segment.bytes"].tolist(), strict=True))

    def checksums(self) -> dict[str, int]:
        """The files of its segments, and their checksums."""
        if self._told is None:
            return {segment.name: segment.checksum for segment in self.segments}
        return dict(zip(self._told.names, self._columns["segment.checksum"].tolist(), strict=True))

    def live(self, watermark: int | None) -> tuple[Segment, ...]:
        """The segments without those whose deadline has passed; of these, parts of held groups stay."""
        if watermark not in self._live:
            self._live.clear()
            self._live[watermark] = _unexpired(self.segments, self.groups, watermark)
        return self._live[watermark]

    def write(self, files: Files, epoch: int) -> Ref:
        """Write it to a file of its own."""
        content = self._packed()
        ref = Ref(self.stage, self.slot, epoch, uuid.uuid4().int >> 64, check(content), len(content))
        with files.creating(ref.name) as sink:
            sink.write(content)
        if files.has_renames:
            syncing.written(files.path(ref.name))
        return ref

    @classmethod
    def read(cls, files: Files, ref: Ref) -> Section:
        """Read one; `DamagedState` when it is missing, or not what was written."""
        try:
            content = files.content(ref.name, lambda one: len(one) == ref.size and is_whole(one, ref.checksum))
        except FileNotFoundError:
            raise DamagedState(files.path(ref.name), "this section of a manifest is missing") from None
        try:
            if len(content) != ref.size or check(content) != ref.checksum:
                raise ValueError("it is not the one that the manifest names")
            return cls._unpacked(content)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise DamagedState(files.path(ref.name), f"this section of a manifest is damaged ({error})") from None

    def _packed(self) -> bytes:
        told, columns = _columns(self.stage, self.slot, self.groups, self.segments)
        return pack("section", msgspec.json.encode(told), columns)

    @classmethod
    def _unpacked(cls, content: bytes) -> Section:
        """Objects are made when somebody looks at them: who sums up reads the columns."""
        raw, columns = unpack("section", content)
        told = _TOLD.decode(raw)
        columns.setdefault("segment.checksum", np.full(len(told.names), UNSEALED, dtype="<i8"))
        made = cls(told.stage, SlotId(told.slot))
        made._groups, made._segments, made._columns, made._told = None, None, columns, told
        return made

    def figures(self, watermark: int | None = None) -> Figures:
        """What it holds, of segments that are live by a watermark."""
        columns, told = self._columns, self._told
        is_plain = told is not None and not columns["part.generation"].any()
        if told is None or (watermark is not None and not is_plain):
            return _figures(*_columns(self.stage, self.slot, self.groups, self.live(watermark)), None)
        return _figures(told, columns, watermark)


def _figures(told: _Told, columns: Mapping[str, npt.NDArray[Any]], watermark: int | None) -> Figures:
    """The figures of columns; without segments that are past their deadline, where a watermark is given."""
    deadlines, counts = columns["segment.deadline"], columns["segment.parts"]
    is_live = np.ones(len(deadlines), dtype=np.bool_) if watermark is None else deadlines >= watermark
    each = columns["segment.bytes"] / np.maximum(columns["segment.rows"], 1)
    taken = np.repeat(is_live, counts)
    rows, generations = columns["part.rows"][taken], columns["part.generation"][taken]
    sizes = rows * np.repeat(each, counts)[taken]
    account = _account(columns, taken, rows, sizes, generations)
    cells = np.repeat(is_live, columns["segment.cells"])
    cell_rows = columns["cell.rows"][cells]
    cell_bytes = float((cell_rows * np.repeat(each, columns["segment.cells"])[cells]).sum())
    active = float(sizes[generations == 0].sum())
    return Figures(
        int(is_live.sum()),
        int(rows.sum()) + int(cell_rows.sum()),
        active,
        float(sizes.sum()) - active,
        int(cell_rows.sum()),
        cell_bytes,
        int(deadlines[is_live].min()) if is_live.any() else None,
        tuple(told.stores),
        account.tobytes(),
    )


def _account(
    columns: Mapping[str, npt.NDArray[Any]],
    taken: npt.NDArray[np.bool_],
    rows: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.float64],
    generations: npt.NDArray[np.int32],
) -> npt.NDArray[Any]:
    """By store, group and generation: rows of `ACCOUNT`."""
    if not len(rows):
        return np.empty(0, ACCOUNT)
    counts, n_groups = columns["segment.parts"], len(columns["group.id"])
    places = np.searchsorted(columns["group.first"], columns["part.first"][taken], side="right") - 1
    stores = np.repeat(columns["segment.store"], counts)[taken].astype(np.int64)
    keys = (generations.astype(np.int64) * (int(stores.max()) + 1) + stores) * n_groups + places
    found, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    account = np.zeros(len(found), ACCOUNT)
    account["store"], account["generation"] = stores[first], generations[first]
    account["group"] = columns["group.id"][places[first]]
    account["rows"] = np.bincount(inverse, rows, len(found))
    account["bytes"] = np.bincount(inverse, sizes, len(found))
    account["deadline"] = np.iinfo(np.int64).min
    np.maximum.at(account["deadline"], inverse, np.repeat(columns["segment.deadline"], counts)[taken])
    return account


def _groups(stage: int, slot: SlotId, columns: Mapping[str, npt.NDArray[Any]]) -> tuple[Group, ...]:
    own = (columns[f"group.{name}"].tolist() for name in ("first", "depth", "id"))
    return tuple(
        Group(_prefix(stage, first, depth), depth, GroupId(id_), slot) for first, depth, id_ in zip(*own, strict=True)
    )


def _segments(stage: int, told: _Told, columns: Mapping[str, npt.NDArray[Any]]) -> tuple[Segment, ...]:
    parts = _parts(stage, columns)
    cells = list(zip(columns["cell.code"].tolist(), columns["cell.rows"].tolist(), strict=True))
    given, samples = columns["given"].tolist(), columns["segment.sample"].tolist()
    stores = [told.stores[at] for at in columns["segment.store"].tolist()]
    own = {name: columns[f"segment.{name}"].tolist() for name in _NUMBERS}
    slices = zip(*(_slices(columns[f"segment.{name}"]) for name in ("parts", "cells", "given")), strict=True)
    return tuple(
        Segment(
            name=name,
            store=stores[at],
            parts=tuple(parts[slice(*of_parts)]),
            cells=tuple(cells[slice(*of_cells)]),
            given=tuple(given[slice(*of_given)]),
            sample=bool(samples[at]),
            **{number: values[at] for number, values in own.items()},
        )
        for at, (name, (of_parts, of_cells, of_given)) in enumerate(zip(told.names, slices, strict=True))
    )


class _Told(Value, frozen=True):
    """A section's JSON: what is no number."""

    stage: int
    slot: int
    stores: list[str]
    names: list[str]


_TOLD = msgspec.json.Decoder(_Told)


def _columns(
    stage: int, slot: int, groups: Sequence[Group], segments: Sequence[Segment]
) -> tuple[_Told, dict[str, npt.NDArray[Any]]]:
    """A section as columns, and what is no number."""
    stores = list(dict.fromkeys(segment.store for segment in segments))
    code = {store: at for at, store in enumerate(stores)}
    parts = [part for segment in segments for part in segment.parts]
    cells = [cell for segment in segments for cell in segment.cells]
    given = [key for segment in segments for key in segment.given]
    columns: dict[str, npt.NDArray[Any]] = {
        "group.first": np.array([group.first for group in groups], dtype="<u8"),
        "group.depth": np.array([group.depth for group in groups], dtype="<u1"),
        "group.id": np.array([group.id for group in groups], dtype="<i8"),
        "segment.store": np.array([code[segment.store] for segment in segments], dtype="<i4"),
        "segment.sample": np.array([segment.sample for segment in segments], dtype="<u1"),
        "segment.parts": np.array([len(segment.parts) for segment in segments], dtype="<i4"),
        "segment.cells": np.array([len(segment.cells) for segment in segments], dtype="<i4"),
        "segment.given": np.array([len(segment.given) for segment in segments], dtype="<i4"),
        "part.first": np.array([part.first for part in parts], dtype="<u8"),
        "part.depth": np.array([part.depth for part in parts], dtype="<u1"),
        "part.rows": np.array([part.rows for part in parts], dtype="<i8"),
        "part.generation": np.array([part.generation for part in parts], dtype="<i4"),
        "cell.code": np.array([code for code, _ in cells], dtype="<u8"),
        "cell.rows": np.array([rows for _, rows in cells], dtype="<i8"),
        "given": np.array(given, dtype="<u8"),
    }
    for name in _NUMBERS:
        columns[f"segment.{name}"] = np.array([getattr(segment, name) for segment in segments], dtype="<i8")
    return _Told(stage, slot, stores, [segment.name for segment in segments]), columns


_NUMBERS = ("rows", "bytes", "oldest", "newest", "deadline", "first_epoch", "epoch", "use", "checksum")


def _slices(counts: npt.NDArray[Any]) -> Iterable[tuple[int, int]]:
    return pairwise(accumulate(counts.tolist(), initial=0))


def _prefix(stage: int, first: int, depth: int) -> int:
    return stage << depth | first >> (HASH_BITS - depth) if depth else stage


def _parts(stage: int, columns: Mapping[str, npt.NDArray[Any]]) -> list[Part]:
    own = (columns[f"part.{name}"].tolist() for name in ("first", "depth", "rows", "generation"))
    return [
        Part(_prefix(stage, first, depth), depth, rows, number) for first, depth, rows, number in zip(*own, strict=True)
    ]


def _unexpired(segments: Sequence[Segment], groups: Sequence[Group], watermark: int | None) -> tuple[Segment, ...]:
    """Without what is past its deadline; a group with inactive generations is held, and its parts stay."""
    live = tuple(segment for segment in segments if segment.is_live)
    if watermark is None or all(segment.deadline >= watermark for segment in live):
        return live
    lows = np.array([group.first for group in groups], dtype=np.uint64)

    def places(parts: Sequence[Part]) -> list[int]:
        firsts = np.array([part.first for part in parts], dtype=np.uint64)
        return [int(at) for at in np.searchsorted(lows, firsts, side="right") - 1]

    held = {at for segment in live for at in places([part for part in segment.parts if part.generation])}
    kept = []
    for segment in live:
        if segment.deadline >= watermark:
            kept.append(segment)
        elif held:
            own = zip(segment.parts, places(segment.parts), strict=True)
            if parts := tuple(part for part, at in own if at in held):
                kept.append(replace(segment, parts=parts))
    return tuple(kept)
