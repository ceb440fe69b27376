"""What the cells of heavy keys hold, by the slot that probes it: it takes its room of the slot's budget.

A cell of a current grid is at one slot. Slices of a retired grid are read through a stripe filter: by the cells of the
grid that the key has now, which share them evenly, or by the slot of the key's group where the key is light again. A
unit of a biclique is its slot's. Cells are never pushed; what they take, groups of that slot have to leave.

Invariant: every row that is live in a cell counts at one slot, or in even shares at several; none is left out.
Cost: O(sections), and O(cells) where only some stores count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from braidstream.kernels.stripes import split_code
from braidstream.model.grids import Grid
from braidstream.model.numbers import SlotId
from braidstream.model.snapshots import SHARED
from braidstream.state.cells import address_of_grid
from braidstream.state.manifest import Manifest, Segment

__all__ = ["InCells", "bytes_in_cells", "in_cells"]


@dataclass
class InCells:
    """Rows and bytes in the cells of one slot, as stored."""

    rows: float = 0.0
    bytes: float = 0.0

    def add(self, segment: Segment, rows: float) -> None:
        """Count rows of a segment; their bytes are its, shared by rows."""
        self.rows += rows
        self.bytes += segment.bytes / max(segment.rows, 1) * rows


def in_cells(manifest: Manifest, stores: Collection[str] | None = None) -> dict[SlotId, InCells]:
    """What the cells of each slot hold, of some stores or of all. Slots without cells are not in it."""
    found: dict[SlotId, InCells] = defaultdict(InCells)
    for key, figures in manifest.figures().items():
        if key == SHARED or not figures.cell_rows:
            continue
        own = found[SlotId(key[1])]
        if stores is None:
            own.rows, own.bytes = own.rows + figures.cell_rows, own.bytes + figures.cell_bytes
        else:
            for segment in (segment for segment in manifest.live(key) if segment.store in stores):
                own.add(segment, sum(rows for _, rows in segment.cells))
    known = {grid.id: grid for grid in manifest.retired}
    for segment in manifest.live(SHARED):
        for code, rows in segment.cells if stores is None or segment.store in stores else ():
            slots = _readers(manifest, known[split_code(code)[0]])
            for slot in slots:
                found[slot].add(segment, rows / len(slots))
    return {slot: own for slot, own in found.items() if own.rows}


def bytes_in_cells(manifest: Manifest, stores: Collection[str] | None = None) -> dict[SlotId, int]:
    """Only the bytes."""
    return {slot: int(held.bytes) for slot, held in in_cells(manifest, stores).items()}


def _readers(manifest: Manifest, retired: Grid) -> list[SlotId]:
    """The slots that read what was stored under a grid that is no more."""
    present = next((grid for grid in manifest.grids if grid.key == retired.key), None)
    return sorted(set(present.slots)) if present is not None else [manifest.directory.at(address_of_grid(retired)).slot]
