"""What a manifest remembers of a flow's queries: which came and went while it ran, and how their state is arranged.

A query that is submitted or withdrawn is in the manifest before anything runs by it, so a restart finds the same
queries. A program, or a job file, still declares what it declared at first: what was withdrawn since stays withdrawn,
and of two queries of one name the submitted one runs. What it declared when it was last started is noted too, so that
a declaration that has changed since can be told apart (`query.evolution`).

The filters that rows were marked with, and the trees by which intermediate results are arranged, are remembered as
soon as they are chosen: state on disk means the same to every later start.

Pure: manifests in, manifests out. Cost: the number of queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from braidstream.errors import InputError
from braidstream.kernels.families import dimensions_of
from braidstream.model.declarations import Declared, Target
from braidstream.model.values import changed
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.query.evolution import Held, Step
from braidstream.query.tree import plain_tree
from braidstream.state.checkpoint import Identity
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Notes, Submitted, TableNote

__all__ = [
    "all_folders",
    "delivered_folders",
    "held_queries",
    "held_streams",
    "renamed",
    "since_of",
    "with_declared",
    "with_folders",
    "with_plan",
    "with_submitted",
    "with_tables",
    "without_query",
]

Noted = TypeVar("Noted")


def with_submitted(manifest: Manifest, name: str, entry: Submitted) -> Manifest:
    """The manifest with a query that sees what arrives after the manifest's epoch; `entry` has its text and sink."""
    known = manifest.notes
    submitted = {**known.submitted, name: changed(entry, since=manifest.epoch)}
    withdrawn = tuple(other for other in known.withdrawn if other != name)
    return manifest.with_notes(changed(known, submitted=submitted, withdrawn=withdrawn))


def without_query(manifest: Manifest, name: str) -> Manifest:
    """The manifest after a query was withdrawn."""
    known = manifest.notes
    submitted = {key: value for key, value in known.submitted.items() if key != name}
    return manifest.with_notes(changed(known, submitted=submitted, withdrawn=tuple(sorted({*known.withdrawn, name}))))


def held_queries(known: Identity, manifest: Manifest, parsed: Callable[[str, str], Query]) -> Held:
    """What a checkpoint holds; one that has no note of what was declared knows the fingerprints."""
    notes = manifest.notes
    then = {name: Declared(own) for name, own in known.queries.items()} if notes.declared is None else notes.declared
    submitted = {n: Declared(parsed(one.text, n).fingerprint, one.text) for n, one in notes.submitted.items()}
    return Held(then, submitted, notes.withdrawn, known.queries)


def held_streams(known: Identity, manifest: Manifest) -> Mapping[str, Mapping[str, str]]:
    """The streams that a checkpoint was last started with."""
    return known.streams if manifest.notes.streams is None else manifest.notes.streams


def with_declared(
    manifest: Manifest,
    declared: Mapping[str, Declared],
    steps: Sequence[Step],
    streams: Mapping[str, Mapping[str, str]],
    bad: Mapping[str, Target],
) -> Manifest:
    """The manifest with a note of what is declared from now on, after the steps to it.

    A query that begins anew sees what arrives after the manifest's epoch; one that was there before goes on.
    """
    before = manifest
    for step in steps:
        if step.kind == "rename":
            manifest = renamed(manifest, step.before, step.name)
    old, begun = {step.name: step.before for step in steps if step.before}, {s.name for s in steps if s.begins}
    since = {name: manifest.epoch if name in begun else since_of(before, old.get(name, name)) for name in declared}
    notes = changed(
        manifest.notes,
        declared={name: changed(one, since=since[name]) for name, one in declared.items()},
        streams=streams,
        bad=bad,
    )
    return manifest.with_notes(_without(notes, begun) if begun else notes)


def _without(notes: Notes, begun: set[str]) -> Notes:
    """Without what came and went, was learned and arranged under names that are other queries' now."""

    def left(known: Mapping[str, Noted]) -> dict[str, Noted]:
        return {name: one for name, one in known.items() if name.split(":")[0] not in begun}

    return changed(
        notes,
        submitted=left(notes.submitted),
        withdrawn=tuple(name for name in notes.withdrawn if name not in begun),
        trees=None if notes.trees is None else left(notes.trees),
        suspended=left(notes.suspended),
        fanouts=left(notes.fanouts),
        slot_fanouts=left(notes.slot_fanouts),
    )


def with_tables(manifest: Manifest, tables: Mapping[str, TableNote]) -> Manifest:
    """The manifest with the snapshots of tables that epochs see from now on."""
    return manifest.with_notes(changed(manifest.notes, tables=tables))


def since_of(manifest: Manifest, name: str) -> int:
    """The last epoch before a declared query was added; -1: it was there from the beginning."""
    declared = manifest.notes.declared or {}
    return declared[name].since if name in declared else -1


def renamed(manifest: Manifest, old: str, new: str) -> Manifest:
    """The manifest with a query under another name, and what is kept for it.

    Its joins and stores are called after it (`old`, or `old:` and more): in segments, grids, and in what is remembered.
    """
    inside = re.compile(rf"(?<!\w){re.escape(old)}:")

    def told(name: str) -> str:
        return new if name == old else inside.sub(f"{new}:", name)

    segments = tuple(replace(segment, store=inside.sub(f"{new}:", segment.store)) for segment in manifest.segments)
    grids, retired = (
        tuple(replace(grid, family=_told_family(old, grid.family, told)) for grid in own)
        for own in (manifest.grids, manifest.retired)
    )
    totals = {f"{new}.matches" if name == f"{old}.matches" else name: n for name, n in manifest.totals.items()}
    made = replace(manifest, grids=grids, retired=retired, totals=totals).with_segments(segments)
    return made.with_notes(_told_notes(made.notes, told))


def _told_notes(notes: Notes, told: Callable[[str], str]) -> Notes:
    def own(known: Mapping[str, Noted]) -> dict[str, Noted]:
        return {told(name): one for name, one in known.items()}

    shed = notes.shedding
    if shed is not None:
        kept = shed.filter
        if kept is not None:
            pieces = tuple(changed(piece, floors=own(piece.floors)) for piece in kept.pieces)
            kept = changed(kept, pieces=pieces, stores=tuple(map(told, kept.stores)))
        shed = changed(shed, filter=kept, last=own(shed.last), run=own(shed.run), expected=own(shed.expected))
    cleaning = notes.cleaning
    return changed(
        notes,
        trees=None if notes.trees is None else own(notes.trees),
        suspended=own(notes.suspended),
        fanouts=own(notes.fanouts),
        slot_fanouts=own(notes.slot_fanouts),
        undecided=own(notes.undecided),
        heavy=changed(notes.heavy, trackers=own(notes.heavy.trackers)),
        cleaning=None if cleaning is None else changed(cleaning, resumed=own(cleaning.resumed)),
        shedding=shed,
    )


def _told_family(query: str, family: str, told: Callable[[str], str]) -> str:
    """A family whose dimensions are called otherwise. Their order is that of their names, and cells lie by it."""
    after = told(family)
    if after != family and list(dimensions_of(after)) != sorted(dimensions_of(after)):
        wrong = f"query {query!r} has heavy keys on grids, whose cells lie in the order of its old name"
        raise InputError(wrong, "its old name, or one that sorts alike", f"call it {query!r} again")
    return after


def with_folders(manifest: Manifest, folders: Iterable[str]) -> Manifest:
    """The manifest with the folders that results go to from now on, each with the last epoch before it was there."""
    known = manifest.notes.folders
    now = {folder: known.get(folder, manifest.epoch) for folder in folders}
    return manifest if now == known else manifest.with_notes(changed(manifest.notes, folders=now))


def all_folders(manifest: Manifest) -> frozenset[str]:
    """The folders that results go to."""
    return frozenset(manifest.notes.folders)


def delivered_folders(manifest: Manifest) -> frozenset[str]:
    """The folders that have been given results, of however few rows."""
    return frozenset(folder for folder, since in manifest.notes.folders.items() if since < manifest.epoch)


def with_plan(manifest: Manifest, plan: Plan) -> Manifest:
    """The manifest with the filters and trees of a plan, and without suspended joins that are not in it."""
    known = manifest.notes
    notes = changed(
        known,
        filters={store.name: store.filters for store in plan.stores if store.masked},
        trees={query: plain_tree(tree) for query, tree in plan.trees.items()},
        suspended={join: epoch for join, epoch in known.suspended.items() if join in plan.siblings},
    )
    return manifest.with_notes(notes)
