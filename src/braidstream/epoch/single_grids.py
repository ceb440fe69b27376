"""The grids of joins without an equality in a manifest: there when such a join starts, and laid out anew with slots.

Rows of these joins are in cells from the first epoch on, and never in groups: so the grid is part of what a start, a
submitted query or a restart commits. How they are laid out is `control.single_grid`'s matter; a change of it is that of
any grid (`state.cells`, `state.adoption`). While a flow runs the regridder asks again with the rows that were counted.

Invariant: a family of joins without an equality has exactly one grid. Cost: O(families), and that of a regrid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from braidstream.control.heavy import Tracker
from braidstream.control.single_grid import dims_for, relaid
from braidstream.kernels.families import dimensions_of, is_unkeyed_family, shown_dimension
from braidstream.kernels.hashing import UNKEYED_HASH
from braidstream.kernels.stripes import store_of
from braidstream.model.grids import Change
from braidstream.model.stores import Store
from braidstream.model.values import changed
from braidstream.state.cells import regridded, without_families
from braidstream.state.manifest import Manifest

__all__ = ["explain_single_grids", "single_grid_changes", "with_grids"]


def with_grids(manifest: Manifest, stores: Sequence[Store], *, keeps_heavy: bool) -> Manifest:
    """The manifest with the grids of these stores: of heavy keys where they are kept, and of all unkeyed families."""
    families = {store.family for store in stores if store.family}
    kept = {family for family in families if keeps_heavy or is_unkeyed_family(family)}
    manifest = without_families(manifest, kept)
    next_id = max([manifest.notes.heavy.next_id, *(grid.id + 1 for grid in (*manifest.grids, *manifest.retired))])
    changes = list(single_grid_changes(manifest, families, manifest.notes.heavy.trackers, next_id))
    if not changes:
        return manifest
    heavy = changed(manifest.notes.heavy, next_id=next_id + len(changes))
    noted = manifest.with_notes(changed(manifest.notes, heavy=heavy))
    return regridded(noted, [change.regrid for change in changes])


def single_grid_changes(
    manifest: Manifest, families: Iterable[str], trackers: Mapping[str, Tracker], next_id: int
) -> Iterator[Change]:
    """The grids of unkeyed families that are missing, or have too much load for the rows that were counted."""
    held = {grid.family: grid for grid in manifest.grids}
    for family in sorted(filter(is_unkeyed_family, families)):
        names = [store_of(name) for name in dimensions_of(family)]
        counts = [float(trackers[name].rows) if name in trackers else 0.0 for name in names]
        change = relaid(family, int(UNKEYED_HASH), counts, manifest.n_slots, held.get(family), next_id)
        if change is not None:
            next_id += 1
            yield change


def explain_single_grids(stores: Sequence[Store], manifest: Manifest | None, n_slots: int) -> Iterator[str]:
    """A line for each grid: as it is, or as it will be at first."""
    held = {} if manifest is None else {grid.family: grid.dims for grid in manifest.grids}
    for family in sorted({store.family for store in stores if is_unkeyed_family(store.family)}):
        names = dimensions_of(family)
        dims = held.get(family) or dims_for([0.0] * len(names), n_slots)
        shown = " x ".join(f"{n} of {shown_dimension(name)}" for n, name in zip(dims, names, strict=True))
        yield f"  grid without an equality: {shown}"
