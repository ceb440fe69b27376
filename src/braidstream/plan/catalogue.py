"""What a manifest remembers of a flow's queries: which came and went while it ran, and how their state is arranged.

A query that is submitted or withdrawn is in the manifest before anything runs by it, so a restart finds the same
queries. A program, or a job file, still declares what it declared at first: what was withdrawn since stays withdrawn,
and of two queries of one name the submitted one runs (`expected_queries` says what may be declared).

The filters that rows were marked with, and the trees by which intermediate results are arranged, are remembered as
soon as they are chosen: state on disk means the same to every later start.

Pure: manifests in, manifests out. Cost: the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from braidstream.model.values import changed
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.query.tree import plain_tree
from braidstream.state.checkpoint import Identity
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Submitted

__all__ = [
    "delivered_folders",
    "expected_queries",
    "with_changes",
    "with_folders",
    "with_plan",
    "with_submitted",
    "without_query",
]


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


def expected_queries(
    known: Mapping[str, str], declared: Mapping[str, str], submitted: Mapping[str, str], withdrawn: Collection[str]
) -> dict[str, str]:
    """The queries (name and fingerprint) that a flow has to declare to go on with a checkpoint made by `known`.

    One that was withdrawn may be left out. One that was submitted may be declared, also instead of one that had its
    name before.
    """
    expected = {name: own for name, own in known.items() if name in declared or name not in withdrawn}
    for name, own in submitted.items():
        if name not in declared:
            expected.pop(name, None)
        elif declared[name] != known.get(name):
            expected[name] = own
    return expected


def with_changes(
    known: Identity, manifest: Manifest, declared: Mapping[str, str], parsed: Callable[[str, str], Query]
) -> Identity:
    """What a checkpoint belongs to, with the queries that came and went while its flow ran.

    `parsed` gives a query from its text and name.
    """
    notes = manifest.notes
    submitted = {name: parsed(entry.text, name).fingerprint for name, entry in notes.submitted.items()}
    return replace(known, queries=expected_queries(known.queries, declared, submitted, notes.withdrawn))


def with_folders(manifest: Manifest, folders: Iterable[str]) -> Manifest:
    """The manifest with the folders that results go to from now on, each with the last epoch before it was there."""
    known = manifest.notes.folders
    now = {folder: known.get(folder, manifest.epoch) for folder in folders}
    return manifest if now == known else manifest.with_notes(changed(manifest.notes, folders=now))


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
