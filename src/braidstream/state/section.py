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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from braidstream.errors import DamagedState
from braidstream.model.directory import HASH_BITS, Group
from braidstream.model.numbers import GroupId, SlotId
from braidstream.model.parts import Part, Segment
from braidstream.model.snapshots import ACCOUNT, Figures, Key, Ref
from braidstream.model.values import Value
from braidstream.state.files import Files
from braidstream.state.packed import check, pack, unpack

__all__ = ["Section"]


@dataclass(frozen=True)
class Section:
    """The groups of a slot at a stage, in order, and the segments that hold their state."""

    stage: int
    slot: SlotId
    groups: tuple[Group, ...] = ()
    segments: tuple[Segment, ...] = ()
    _live: dict[int | None, tuple[Segment, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def key(self) -> Key:
        """Which it is."""
        return self.stage, self.slot

    @property
    def names(self) -> frozenset[str]:
        """The files of its segments."""
        return frozenset(segment.name for segment in self.segments)

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
        return ref

    @classmethod
    def read(cls, files: Files, ref: Ref) -> Section:
        """Read one; `DamagedState` when it is missing, or not what was written."""
        try:
            with files.map(ref.name) as source:
                content = source.read()
        except FileNotFoundError:
            raise DamagedState(files.path(ref.name), "this section of a manifest is missing") from None
        try:
            if len(content) != ref.size or check(content) != ref.checksum:
                raise ValueError("it is not the one that the manifest names")
            return cls._unpacked(content)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise DamagedState(files.path(ref.name), f"this section of a manifest is damaged ({error})") from None

    def _packed(self) -> bytes:
        segments = self.segments
        stores = list(dict.fromkeys(segment.store for segment in segments))
        code = {store: at for at, store in enumerate(stores)}
        parts = [part for segment in segments for part in segment.parts]
        cells = [cell for segment in segments for cell in segment.cells]
        given = [key for segment in segments for key in segment.given]
        columns: dict[str, npt.NDArray[Any]] = {
            "group.first": np.array([group.first for group in self.groups], dtype="<u8"),
            "group.depth": np.array([group.depth for group in self.groups], dtype="<u1"),
            "group.id": np.array([group.id for group in self.groups], dtype="<i8"),
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
        value = _Told(self.stage, self.slot, stores, [segment.name for segment in segments])
        return pack("section", msgspec.json.encode(value), columns)

    @classmethod
    def _unpacked(cls, content: bytes) -> Section:
        raw, columns = unpack("section", content)
        told = _TOLD.decode(raw)
        stage = told.stage
        ranges = zip(columns["group.first"].tolist(), columns["group.depth"].tolist(), strict=True)
        ids = columns["group.id"].tolist()
        slot = SlotId(told.slot)
        groups = tuple(
            Group(_prefix(stage, *one), one[1], GroupId(id_), slot) for one, id_ in zip(ranges, ids, strict=True)
        )
        parts = _parts(stage, columns)
        cells = list(zip(columns["cell.code"].tolist(), columns["cell.rows"].tolist(), strict=True))
        given = columns["given"].tolist()
        stores = [told.stores[at] for at in columns["segment.store"].tolist()]
        own = {name: columns[f"segment.{name}"].tolist() for name in _NUMBERS}
        samples = columns["segment.sample"].tolist()
        segments = tuple(
            Segment(
                name=name,
                store=stores[at],
                parts=tuple(parts[slice(*of_parts)]),
                cells=tuple(cells[slice(*of_cells)]),
                given=tuple(given[slice(*of_given)]),
                sample=bool(samples[at]),
                **{number: values[at] for number, values in own.items()},
            )
            for at, (name, of_parts, of_cells, of_given) in enumerate(
                zip(
                    told.names,
                    _slices(columns["segment.parts"]),
                    _slices(columns["segment.cells"]),
                    _slices(columns["segment.given"]),
                    strict=True,
                )
            )
        )
        return cls(stage, slot, groups, segments)

    def figures(self, watermark: int | None = None) -> Figures:
        """What it holds, of segments that are live by a watermark."""
        segments = self.live(watermark)
        stores = tuple(dict.fromkeys(segment.store for segment in segments))
        code = {store: at for at, store in enumerate(stores)}
        counts = np.array([len(segment.parts) for segment in segments], dtype=np.int64)
        parts = [part for segment in segments for part in segment.parts]
        each = np.array([segment.bytes / max(segment.rows, 1) for segment in segments])
        rows = np.array([part.rows for part in parts], dtype=np.int64)
        generations = np.array([part.generation for part in parts], dtype=np.int64)
        firsts = np.array([part.first for part in parts], dtype=np.uint64)
        lows = np.array([group.first for group in self.groups], dtype=np.uint64)
        ids = np.array([group.id for group in self.groups], dtype=np.int64)
        places = np.searchsorted(lows, firsts, side="right") - 1
        of_store = np.repeat(np.array([code[segment.store] for segment in segments], dtype=np.int64), counts)
        deadlines = np.repeat(np.array([segment.deadline for segment in segments], dtype=np.int64), counts)
        sizes = rows * np.repeat(each, counts)
        account = np.empty(0, ACCOUNT)
        if parts:
            keys = np.stack([of_store, places, generations])
            found, inverse = np.unique(keys, axis=1, return_inverse=True)
            inverse = inverse.ravel()
            account = np.zeros(found.shape[1], ACCOUNT)
            account["store"], account["group"], account["generation"] = found[0], ids[found[1]], found[2]
            account["rows"] = np.bincount(inverse, rows, len(account))
            account["bytes"] = np.bincount(inverse, sizes, len(account))
            account["deadline"] = np.iinfo(np.int64).min
            np.maximum.at(account["deadline"], inverse, deadlines)
        in_cells = [(sum(rows for _, rows in one.cells), size) for one, size in zip(segments, each, strict=True)]
        active = float(sizes[generations == 0].sum())
        return Figures(
            len(segments),
            int(rows.sum()) + sum(n for n, _ in in_cells),
            active,
            float(sizes.sum()) - active,
            sum(n for n, _ in in_cells),
            float(sum(n * size for n, size in in_cells)),
            min((segment.deadline for segment in segments), default=None),
            stores,
            account.tobytes(),
        )


class _Told(Value, frozen=True):
    """A section's JSON: what is no number."""

    stage: int
    slot: int
    stores: list[str]
    names: list[str]


_TOLD = msgspec.json.Decoder(_Told)
_NUMBERS = ("rows", "bytes", "oldest", "newest", "deadline", "first_epoch", "epoch", "use")


def _slices(counts: npt.NDArray[Any]) -> Iterable[tuple[int, int]]:
    return pairwise(accumulate(counts.tolist(), initial=0))


def _prefix(stage: int, first: int, depth: int) -> int:
    return stage << depth | first >> (HASH_BITS - depth) if depth else stage


def _parts(stage: int, columns: dict[str, npt.NDArray[Any]]) -> list[Part]:
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
