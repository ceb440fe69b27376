"""Segments and parts: which rows of which file are live. Values of the manifest and of slots' reports.

Every stored row is live in one segment; what a segment has of a group is a part of it (`state.manifest`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from braidstream.model.directory import Range
from braidstream.model.snapshots import UNSEALED
from braidstream.model.values import Value

__all__ = ["Part", "Segment", "SegmentForm"]


@dataclass(frozen=True)
class Part(Range):
    """The rows of a segment in a range of addresses."""

    rows: int
    generation: int = 0
    """0: active. Otherwise inactive, and the older the lower."""


class SegmentForm(Value, frozen=True):
    """A segment in JSON: parts are rows of numbers without names."""

    name: str
    store: str
    rows: int
    bytes: int
    oldest: int
    newest: int
    deadline: int
    first_epoch: int
    epoch: int
    parts: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[int, int], ...] = ()
    use: int = 0
    given: tuple[int, ...] = ()
    sample: bool = False


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
    checksum: int = UNSEALED
    """Of the file."""

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

    def as_form(self) -> SegmentForm:
        """The form in which it is kept."""
        return SegmentForm(
            self.name,
            self.store,
            self.rows,
            self.bytes,
            self.oldest,
            self.newest,
            self.deadline,
            self.first_epoch,
            self.epoch,
            tuple(_row(part) for part in self.parts),
            self.cells,
            self.use,
            self.given,
            self.sample,
        )

    @classmethod
    def from_form(cls, form: SegmentForm) -> Segment:
        """From that form."""
        return cls(
            form.name,
            form.store,
            form.rows,
            form.bytes,
            form.oldest,
            form.newest,
            form.deadline,
            form.first_epoch,
            form.epoch,
            tuple(Part(*row) for row in form.parts),
            form.cells,
            form.use,
            form.given,
            form.sample,
        )

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


def _row(part: Part) -> tuple[int, ...]:
    return (part.prefix, part.depth, part.rows, *((part.generation,) if part.generation else ()))
