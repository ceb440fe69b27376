"""What instructions do to the manifest that is about to be committed: the one place that carries them out.

No state is copied. Moves, splits and merges change the directory, and what the manifest says of parts is fitted to it;
a push is a change of generations; a clean-up is written down as an intent, which the next epoch carries out, or a step
of its own, so that what an epoch puts out is decided before it begins; rows that are shed are dead by a filter.

Invariant: whatever order the instructions have, directory and slots change first, then grids, then pushes, then
clean-ups, then the filter. Cost: O(parts of the manifest) for each kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from braidstream.kernels.families import is_unkeyed_family
from braidstream.model.dead_rows import Filter
from braidstream.model.instructions import CleanUp, Instruction, Regrid, Shed, Spill, apply
from braidstream.model.numbers import GroupId
from braidstream.model.undecided import noted, without
from braidstream.model.values import changed
from braidstream.state import generations
from braidstream.state.cells import address_of_grid, regridded, resettled
from braidstream.state.filters import filter_of, thinned
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Cleaning, Shedding

__all__ = ["act", "activated", "intent", "pinned_groups", "resumption", "settled"]


def act(
    manifest: Manifest,
    instructions: Iterable[Instruction],
    stores: Collection[str] = (),
    closed: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Manifest:
    """The manifest after instructions; `stores` are those whose rows may be pushed or shed.

    Of these the rows of `closed` ones wait to be decided where something was pushed that they, or their partners, are
    in (`model.undecided`).
    """
    asked = tuple(instructions)
    if not asked:
        return manifest
    manifest = _laid_out(manifest, asked)
    manifest = regridded(manifest, [one for one in asked if isinstance(one, Regrid)])
    if pushed := [one.group for one in asked if isinstance(one, Spill)]:
        measures = manifest.notes.measures.begun_anew(pushed)
        manifest = manifest.with_notes(changed(manifest.notes, measures=measures))
        manifest = _waiting(generations.spilled(manifest, pushed, stores), pushed, closed)
    if clean_ups := [one for one in asked if isinstance(one, CleanUp)]:
        whole = [one.group for one in clean_ups if not one.generations]
        manifest = intent(manifest, whole, 0, {one.group: one.generations for one in clean_ups if one.generations})
    for one in asked:
        if isinstance(one, Shed):
            manifest = _shed(manifest, one.filter, stores)
    return manifest


def pinned_groups(manifest: Manifest) -> set[GroupId]:
    """The groups that may not be pushed: cells of one of their keys see what is stored in them, or the other way."""
    keyed = (grid for grid in (*manifest.grids, *manifest.retired) if not is_unkeyed_family(grid.family))
    return {manifest.directory.at(address_of_grid(grid)).id for grid in keyed}


def intent(
    manifest: Manifest, groups: Sequence[GroupId], step: int, some: Mapping[GroupId, Sequence[int]] | None = None
) -> Manifest:
    """The manifest with the intent to clean up groups: in the next epoch, or in a numbered step of its own.

    `some` has for other groups the generations that are to be cleaned up among themselves.
    """
    if not groups and not some:
        return manifest.with_notes(changed(manifest.notes, cleaning=None))
    numbers = {group: frozenset(own) for group, own in (some or {}).items()}
    return manifest.with_notes(changed(manifest.notes, cleaning=Cleaning(tuple(groups), step, numbers)))


def resumption(manifest: Manifest, joins: Mapping[str, int], step: int) -> Manifest:
    """The manifest with the intent to produce, in a numbered step, what suspended joins have not since an epoch."""
    return manifest.with_notes(changed(manifest.notes, cleaning=Cleaning(step=step, resumed=joins)))


def settled(
    manifest: Manifest,
    groups: Sequence[GroupId],
    inactive: Collection[GroupId],
    stores: Collection[str],
    closed: Mapping[str, Collection[str]],
) -> Manifest:
    """The manifest after a clean-up of groups, which are active, or one inactive generation (`generations.cleaned`).

    All that has closed is decided; where a group stays inactive, what closes from now on waits for the next clean-up.
    """
    found = generations.cleaned(manifest, groups, inactive, stores)
    own = [manifest.directory.by_id[group] for group in groups]
    left = {store: without(known, own) for store, known in manifest.notes.undecided.items()}
    found = found.with_notes(changed(found.notes, undecided={store: known for store, known in left.items() if known}))
    return _waiting(found, [group for group in groups if group in inactive], closed)


def _waiting(manifest: Manifest, pushed: Sequence[GroupId], closed: Mapping[str, Collection[str]]) -> Manifest:
    """The manifest after pushes, with what is not decided any more until it is cleaned up."""
    if not pushed or not closed:
        return manifest
    undecided, known = dict(manifest.notes.undecided), manifest.directory.by_id
    for store, names in closed.items():
        held = generations.account(manifest, names)
        groups = [known[group] for group in dict.fromkeys(pushed) if group in known and held[group].deadlines]
        undecided[store] = noted(undecided.get(store, ()), groups, manifest.watermark)
    left = {store: ranges for store, ranges in undecided.items() if ranges}
    return manifest.with_notes(changed(manifest.notes, undecided=left))


def activated(manifest: Manifest, stores: Collection[str]) -> Manifest:
    """The manifest with all state active that is not in `stores`: for groups of which nothing is missing or owed."""
    left = {store: known for store, known in manifest.notes.undecided.items() if store in stores}
    found = generations.activated(manifest, stores)
    return found.with_notes(changed(found.notes, undecided=left))


def _laid_out(manifest: Manifest, asked: Sequence[Instruction]) -> Manifest:
    directory, n_slots = apply(manifest.directory, manifest.n_slots, asked)
    if directory == manifest.directory and n_slots == manifest.n_slots:
        return manifest
    executors = {slot: where for slot, where in manifest.executors.items() if slot < n_slots}
    fitted = resettled(replace(manifest.fitted(directory), executors=executors), n_slots)
    measures = manifest.notes.measures.carried(manifest.directory, directory)
    return fitted.with_notes(changed(fitted.notes, measures=measures))


def _shed(manifest: Manifest, new: Filter, stores: Collection[str]) -> Manifest:
    old = (filter_of(manifest) or Filter()).fitted([group.low for group in manifest.directory.groups])
    left, known = thinned(manifest, old, new, stores), manifest.notes.shedding or Shedding()
    return left.with_notes(changed(left.notes, shedding=changed(known, filter=new)))
