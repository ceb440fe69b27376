"""What the cells of heavy keys hold, by the slot that probes it: it takes its room of the slot's budget.

A cell of a current grid is at one slot. Slices of a retired grid are read through a stripe filter: by the cells of the
grid that the key has now, which share them evenly, or by the slot of the key's group where the key is light again. A
unit of a biclique is its slot's. Cells are never pushed; what they take, groups of that slot have to leave.

Invariant: every row that is live in a cell counts at one slot, or in even shares at several; none is left out.
Cost: O(cells of the manifest).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from braidstream.kernels.stripes import split_code
from braidstream.model.grids import Grid
from braidstream.model.numbers import SlotId
from braidstream.state.cells import Cells, address_of_grid
from braidstream.state.manifest import Manifest

__all__ = ["InCells", "bytes_in_cells", "in_cells"]


@dataclass
class InCells:
    """Rows and bytes in the cells of one slot, as stored."""

    rows: float = 0.0
    bytes: float = 0.0


def in_cells(manifest: Manifest, stores: Collection[str] | None = None) -> dict[SlotId, InCells]:
    """What the cells of each slot hold, of some stores or of all. Slots without cells are not in it."""
    found: dict[SlotId, InCells] = defaultdict(InCells)
    cells = Cells(manifest)
    known = {grid.id: grid for grid in manifest.retired}
    for segment in manifest.segments:
        if stores is not None and segment.store not in stores:
            continue
        each = segment.bytes / max(segment.rows, 1)
        for code, rows in segment.cells:
            own = cells.slot_of(code)
            slots = [own] if own is not None else _readers(manifest, known[split_code(code)[0]])
            for slot in slots:
                found[slot].rows += rows / len(slots)
                found[slot].bytes += each * rows / len(slots)
    return dict(found)


def bytes_in_cells(manifest: Manifest, stores: Collection[str] | None = None) -> dict[SlotId, int]:
    """Only the bytes."""
    return {slot: int(held.bytes) for slot, held in in_cells(manifest, stores).items()}


def _readers(manifest: Manifest, retired: Grid) -> list[SlotId]:
    """The slots that read what was stored under a grid that is no more."""
    present = next((grid for grid in manifest.grids if grid.key == retired.key), None)
    return sorted(set(present.slots)) if present is not None else [manifest.directory.at(address_of_grid(retired)).slot]
