"""The manifest: the snapshot of an epoch. Writing it is the commit.

It alone defines routing and state of the next epoch: the directory, the grids of heavy keys, the number of slots, the
segments with the parts of the hash space (or the cells) that are live in each, the watermark, and the memory of the
controller. It is JSON behind a line with its checksum; reading one runs nobody's code.

Invariants: a part lies within one group (`fitted` keeps that true when groups are split), in the region of the stage
that its store is joined at, and the live parts of the segments of one store do not overlap: every stored tuple is live
in exactly one segment. A part belongs to one generation: 0 is active, what slots probe; others were pushed
(`state.generations`) and are read by clean-up only.
Size: O(groups x log(epochs in the window)), whatever the stream holds.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from braidstream.errors import DamagedState
from braidstream.model.directory import Directory, Range
from braidstream.model.grids import Grid
from braidstream.state.files import Files

__all__ = ["Manifest", "Part", "Segment", "manifest_name"]

FOLDER = "manifests"


@dataclass(frozen=True)
class Part(Range):
    """The rows of a segment in a range of addresses."""

    rows: int
    generation: int = 0
    """0: active. Otherwise inactive, and the older the lower."""


@dataclass(frozen=True)
class Segment:
    """An immutable file of rows of one store, sorted by hash, and the parts of it that are live."""

    name: str
    store: str
    rows: int
    bytes: int
    oldest: int
    newest: int
    deadline: int
    """The latest time that any of its rows may still be joined with: the segment is dropped when it passes."""
    first_epoch: int
    epoch: int
    """Its rows arrived from `first_epoch` to `epoch`."""
    parts: tuple[Part, ...]
    cells: tuple[tuple[int, int], ...] = ()
    """For a segment of cells instead of parts: the codes that are live in it, ascending, with their rows."""
    use: int = 0
    """For a segment of cells: for which use of its store in a join."""
    given: tuple[int, ...] = ()
    """Hashes of heavy keys of which it has no live rows: cells have taken them over (`state.adoption`), or had them."""
    sample: bool = False
    """Whether its rows are of keys that are exempt from shedding."""

    @property
    def live_rows(self) -> int:
        """How many of its rows are live."""
        return sum(part.rows for part in self.parts) + sum(rows for _, rows in self.cells)

    @property
    def stage(self) -> int:
        """The stage in whose region its parts lie, where it has any."""
        return self.parts[0].stage if self.parts else 0

    @property
    def is_live(self) -> bool:
        """Whether any of its rows is."""
        return bool(self.parts or self.cells)

    def as_plain(self) -> dict[str, Any]:
        """A form for JSON."""
        plain = {name: getattr(self, name) for name in _SEGMENT_FIELDS}  # `asdict` would copy every part
        plain["parts"] = [_part_to_plain(part) for part in self.parts]
        return {name: value for name, value in plain.items() if value or name not in _OPTIONAL}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Segment:
        """From its plain form."""
        cells = tuple((code, rows) for code, rows in plain.get("cells", ()))
        parts, given = tuple(Part(*part) for part in plain["parts"]), tuple(plain.get("given", ()))
        return cls(**{**plain, "parts": parts, "cells": cells, "given": given})

    def without_cells(self, codes: Iterable[int]) -> Segment:
        """The segment without some cells."""
        gone = set(codes)
        return replace(self, cells=tuple(cell for cell in self.cells if cell[0] not in gone))

    def without(self, lows_highs: Iterable[tuple[int, int]]) -> Segment:
        """The segment without the active parts that lie within the given ranges of addresses."""
        ranges = list(lows_highs)
        kept = tuple(
            p for p in self.parts if p.generation or not any(low <= p.low and p.high <= high for low, high in ranges)
        )
        return replace(self, parts=kept)

    def without_parts(self, parts: Iterable[Part]) -> Segment:
        """The segment without these very parts."""
        gone = set(parts)
        return replace(self, parts=tuple(part for part in self.parts if part not in gone))

    @property
    def active(self) -> Segment:
        """The segment with its active parts only."""
        if not any(part.generation for part in self.parts):
            return self
        return replace(self, parts=tuple(part for part in self.parts if not part.generation))


_SEGMENT_FIELDS = tuple(one.name for one in fields(Segment))
_OPTIONAL = frozenset({"cells", "use", "given"})


@dataclass(frozen=True)
class Manifest:
    """The snapshot after `epoch`."""

    epoch: int
    directory: Directory
    n_slots: int
    segments: tuple[Segment, ...] = ()
    newest: Mapping[str, int] = field(default_factory=dict)
    """The largest event time seen of each stream."""
    watermark: int | None = None
    executors: Mapping[int, str] = field(default_factory=dict)
    """Where each slot last ran."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Counters since the first epoch."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """What the controller remembers."""
    grids: tuple[Grid, ...] = ()
    """The grids of the keys that are heavy now (`state.cells`)."""
    retired: tuple[Grid, ...] = ()
    """Earlier grids that live cells still refer to."""

    def by_slot(self) -> dict[int, list[tuple[Segment, int]]]:
        """For each slot the segments that hold active state of its groups, with the number of its rows in them."""
        found: dict[int, list[tuple[Segment, int]]] = defaultdict(list)
        for segment in (segment.active for segment in self.segments):
            rows: dict[int, int] = defaultdict(int)
            for part in segment.parts:
                rows[self.directory.at(part.low).slot] += part.rows
            for slot, n_rows in rows.items():
                found[slot].append((segment, n_rows))
        return found

    def of_slot(self, slot: int) -> list[Segment]:
        """The segments that hold active state of a slot's groups, with their active parts."""
        return [segment for segment, _ in self._by_slot.get(slot, ())]

    @cached_property
    def _by_slot(self) -> dict[int, list[tuple[Segment, int]]]:
        return self.by_slot()

    def fitted(self, directory: Directory) -> Manifest:
        """The manifest with another directory; parts that a split has divided are divided with it."""
        segments = tuple(replace(s, parts=_fit(s.parts, directory)) for s in self.segments)
        return replace(self, directory=directory, segments=segments)

    def write(self, files: Files, *, pending: bool = False, is_new: bool = False) -> None:
        """Commit; or, when pending, only show tasks what has been reached so far in the epoch.

        A new one is added, FileExistsError if it is there already; others are replaced.
        """
        body = json.dumps(_to_plain(self), separators=(",", ":")).encode()
        put = files.add if is_new else files.replace
        put(manifest_name(self.epoch, pending=pending), _sealed(body))

    @classmethod
    def read(cls, files: Files, epoch: int, *, pending: bool = False) -> Manifest:
        """The manifest of an epoch; `DamagedState` when it is missing or damaged."""
        name = manifest_name(epoch, pending=pending)
        try:
            content = files.read(name)
        except FileNotFoundError:
            raise DamagedState(files.path(name), "this manifest is missing") from None
        try:
            body = content.partition(b"\n")[2].removesuffix(b"\n")
            if content != _sealed(body):
                raise ValueError("its checksum does not fit")
            return _from_plain(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(files.path(name), f"this manifest is damaged ({error})") from None

    @staticmethod
    def epochs(files: Files) -> list[int]:
        """The epochs whose manifests are kept, ascending."""
        stems = (name.removesuffix(".json") for name in files.names(FOLDER) if name.endswith(".json"))
        return sorted(int(stem) - 1 for stem in stems if stem.isdigit())


def _fit(parts: Iterable[Part], directory: Directory) -> tuple[Part, ...]:
    fitted: list[Part] = []
    for part in parts:
        if directory.at(part.low).high >= part.high:
            fitted.append(part)
            continue
        inside = [group for group in directory.groups if part.meets(group)]
        # The share of rows is an estimate until the segment is compacted.
        shares = [(g, max(part.rows >> (g.depth - part.depth), 1)) for g in inside]
        fitted += [Part(g.prefix, g.depth, rows, part.generation) for g, rows in shares]
    return tuple(fitted)


def _part_to_plain(part: Part) -> list[int]:
    plain = [part.prefix, part.depth, part.rows]
    return [*plain, part.generation] if part.generation else plain


def _sealed(body: bytes) -> bytes:
    return b"%08x\n%s\n" % (zlib.crc32(body), body)


def manifest_name(epoch: int, *, pending: bool = False) -> str:
    """The file of an epoch's manifest. The first, of no epoch yet (-1), is number 0."""
    return f"{FOLDER}/pending.json" if pending else f"{FOLDER}/{epoch + 1:010d}.json"


def _to_plain(manifest: Manifest) -> dict[str, Any]:
    plain = {name: getattr(manifest, name) for name in ("epoch", "n_slots", "newest", "watermark", "totals", "memory")}
    plain["directory"] = manifest.directory.as_json()
    plain["executors"] = {str(slot): where for slot, where in manifest.executors.items()}
    plain["segments"] = [segment.as_plain() for segment in manifest.segments]
    for name in ("grids", "retired"):
        plain[name] = [grid.as_json() for grid in getattr(manifest, name)]
    return plain


def _from_plain(plain: dict[str, Any]) -> Manifest:
    segments = tuple(Segment.from_plain(entry) for entry in plain.pop("segments"))
    directory = Directory.from_json(plain.pop("directory"))
    executors = {int(slot): where for slot, where in plain.pop("executors").items()}
    grids, retired = (tuple(Grid.from_json(grid) for grid in plain.pop(name, ())) for name in ("grids", "retired"))
    return Manifest(directory=directory, segments=segments, executors=executors, grids=grids, retired=retired, **plain)
