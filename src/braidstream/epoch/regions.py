"""The regions of a flow's stages: every store that is kept has the groups of its stage, and its parts lie among them.

A stage gets its region when a query first needs it, at the start or relaunch of the flow, and keeps it: a region that
no store uses any more holds nothing and costs nothing but its entries in the directory.

A checkpoint from before stages had regions of their own has the parts of all stages in the region of the first. It is
brought up to date here: a stage whose parts lie in another region gets a copy of that region's groups, at the same
slots, and its parts, filters, grids and intents go over. So nothing changes but that the copies can part from then on.
Likewise the rows of a query that was withdrawn and submitted again, with a tree in which they belong to another stage.

Invariant: afterwards each part lies in the region of its store's stage, within one group. Pure, and done again it
changes nothing. Cost: O(groups + parts), once a start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from braidstream.kernels.families import dimensions_of, family_of
from braidstream.kernels.stripes import store_of
from braidstream.model.dead_rows import Piece
from braidstream.model.directory import address_of
from braidstream.model.grids import Grid
from braidstream.model.numbers import Address
from braidstream.model.stores import Store
from braidstream.model.values import changed
from braidstream.state.filters import filter_of
from braidstream.state.manifest import Manifest, Segment

__all__ = ["with_regions"]


def with_regions(manifest: Manifest, stores: Sequence[Store], n_groups: int, placement: Sequence[int] = ()) -> Manifest:
    """The manifest with a region for each stage of these stores, `n_groups` groups each, and their parts in it.

    Groups of new regions are dealt to slots by the shares of `placement`, where it has one for each slot.
    """
    shares = placement if len(placement) == manifest.n_slots else ()
    stages = {store.name: store.stage for store in stores}
    is_placed = all(
        stages.get(store, stage) == stage
        for (stage, _), entry in manifest.sections.entries().items()
        for store in (entry.section.stores if stage >= 0 else ())
    )
    segments = () if is_placed else tuple(_placed(segment, stages) for segment in manifest.segments)
    old = () if is_placed else manifest.segments
    moved = {new.stage for before, new in zip(old, segments, strict=True) if new.stage != before.stage}
    made = manifest
    for stage in sorted({0, *stages.values()} - manifest.directory.regions.keys()):
        made = _with_copy(made, stage) if stage in moved else _with_equal(made, stage, n_groups, shares)
    placed = made if is_placed else made.with_segments(segments)
    return _with_families(placed, stages)


def _placed(segment: Segment, stages: Mapping[str, int]) -> Segment:
    """The segment with its parts at the stage of its store."""
    stage = stages.get(segment.store, segment.stage)
    if not segment.parts or segment.stage == stage:
        return segment
    return replace(segment, parts=tuple(replace(part, prefix=part.prefix_at(stage)) for part in segment.parts))


def _with_equal(manifest: Manifest, stage: int, n_groups: int, shares: Sequence[int]) -> Manifest:
    """A region of equal groups over all slots, in which nothing was shed yet."""
    directory = manifest.directory.with_stages([stage], n_groups, manifest.n_slots, shares)
    made = _with_pieces(replace(manifest, directory=directory), [Piece(address_of(stage, 0))], [None])
    return _with_base(made, len(directory.region(stage).groups))


def _with_copy(manifest: Manifest, stage: int) -> Manifest:
    """A region like that of the first stage, with what was decided about its groups."""
    directory = manifest.directory.with_copy(stage)
    made = replace(manifest, directory=directory)
    if (known := filter_of(manifest)) is not None:
        own = known.pieces[: known.place(Address(address_of(1, 0) - 1)) + 1]
        pieces = [changed(piece, low=address_of(stage, piece.low)) for piece in own]
        made = _with_pieces(made, pieces, list(range(len(own))))
    first, copies = manifest.directory.region(0).groups, directory.region(stage).groups
    twin = {group.id: copy.id for group, copy in zip(first, copies, strict=True)}
    if asked := made.notes.cleaning:
        groups = (*asked.groups, *(twin[group] for group in asked.groups if group in twin))
        made = made.with_notes(changed(made.notes, cleaning=changed(asked, groups=groups)))
    return _with_base(made, (made.notes.controller.base_groups or 0) // len(manifest.directory.regions))


def _with_pieces(manifest: Manifest, pieces: Sequence[Piece], like: Sequence[int | None]) -> Manifest:
    """The manifest with more pieces of its shedding filter; `like` says which each shares its expectations with."""
    shedding, known = manifest.notes.shedding, filter_of(manifest)
    if shedding is None or known is None:
        return manifest
    both: list[tuple[Piece, int | None]] = [*zip(known.pieces, range(len(known.pieces)), strict=True)]
    both = sorted([*both, *zip(pieces, like, strict=True)], key=lambda one: one[0].low)
    made = changed(known, pieces=tuple(piece for piece, _ in both))
    of_query = shedding.expected.items()
    shares = {query: tuple(1.0 if at is None else own[at] for _, at in both) for query, own in of_query}
    return manifest.with_notes(changed(manifest.notes, shedding=changed(shedding, filter=made, expected=shares)))


def _with_base(manifest: Manifest, more: int) -> Manifest:
    """The controller merges groups down to as many as there were at first, of all regions together."""
    known = manifest.notes.controller
    if known.base_groups is None:
        return manifest
    base = changed(known, base_groups=known.base_groups + more)
    return manifest.with_notes(changed(manifest.notes, controller=base))


def _with_families(manifest: Manifest, stages: Mapping[str, int]) -> Manifest:
    """The manifest with grids whose families say at which stage they are."""

    def named(grid: Grid) -> Grid:
        dimensions = dimensions_of(grid.family)
        known = [stages[store_of(name)] for name in dimensions if store_of(name) in stages]
        return replace(grid, family=family_of(dimensions, known[0])) if known else grid

    grids, retired = (tuple(named(grid) for grid in some) for some in (manifest.grids, manifest.retired))
    if grids == manifest.grids and retired == manifest.retired:
        return manifest
    return manifest.laid_out(grids=grids, retired=retired)
