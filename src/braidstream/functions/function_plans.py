"""What a manifest says of a function's plan: which one runs, and what each node keeps.

Numbers are in the node's note, samples and windows in Arrow files that are listed like segments, so that checking,
sweeping and retiring them is the checkpoint's work. A plan gives way to another only when no node holds windows: the
samples that are not yet windows belong to no plan. Nothing here grows with the stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from braidstream.errors import RunError
from braidstream.functions.node_reports import Done
from braidstream.functions.templates import FunctionPlan
from braidstream.model.directory import Directory
from braidstream.model.numbers import BEFORE_FIRST, EpochNumber
from braidstream.model.values import changed
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.notes import NodeNote, Notes
from braidstream.state.segments import FOREVER

__all__ = ["after_nodes", "first_manifest", "plan_of", "with_plan"]

FORMER = ("next_seq", "arrived", "skip", "newest", "watermark", "now")
"""The numbers of the first node that belong to the stream, not to a plan; those of aligned streams end in `:k`."""


def first_manifest(plan: FunctionPlan) -> Manifest:
    """The manifest before the first epoch."""
    return Manifest(BEFORE_FIRST, Directory.of(1), plan.degree, notes=Notes(plan=plan.strategy))


def plan_of(manifest: Manifest) -> str:
    """The plan of the next epoch, by its short name."""
    if manifest.notes.plan is None:
        raise RunError("the checkpoint has no plan of a function", "a checkpoint of this function", "use a new folder")
    return manifest.notes.plan


def with_plan(manifest: Manifest, plan: FunctionPlan) -> Manifest | None:
    """The manifest with another plan; None while a node holds windows of the old one."""
    nodes = manifest.notes.nodes
    if any(note.holds_windows for note in nodes.values()):
        return None
    kept = {}
    if "0-0" in nodes:
        numbers = {name: value for name, value in nodes["0-0"].numbers.items() if name.split(":")[0] in FORMER}
        kept["0-0"] = changed(nodes["0-0"], numbers=numbers)
    return replace(manifest, notes=changed(manifest.notes, plan=plan.strategy, nodes=kept), n_slots=plan.degree)


def after_nodes(before: Manifest, epoch: int, done: Sequence[Done], function: str, stream: str) -> Manifest:
    """The manifest after an epoch: what nodes keep, where the stream is, and the totals."""
    kept = {one.state.node: one.state for one in done if one.state is not None}
    segments = tuple(_segment(note, note.file, epoch) for note in kept.values() if note.file is not None)
    newest_us, watermark = (kept["0-0"].numbers[name] for name in ("newest", "watermark"))
    after = replace(
        before,
        epoch=EpochNumber(epoch),
        newest={} if newest_us is None else {stream: newest_us},
        watermark=watermark,
        totals=_totals(before, done, function, stream),
        notes=changed(before.notes, nodes=kept),
    )
    return after.with_segments(segments)


def _totals(before: Manifest, done: Sequence[Done], function: str, stream: str) -> dict[str, int]:
    nodes = [one.report for one in done]
    first = next(node for node in nodes if node.stage == 0)
    last = max(nodes, key=lambda node: node.stage)
    totals = Counter(before.totals)
    totals.update(
        {
            "epochs": 1,
            f"{stream}.rows": first.samples,
            f"{stream}.late": first.late_samples,
            f"{stream}.null": first.null_rows,
            f"{function}.windows": first.windows,
            f"{function}.results": last.results,
            f"{function}.given_up": last.given_up,
            f"{function}.lost": sum(node.lost for node in nodes),
            f"{function}.too_late": last.late,
        }
    )
    return dict(totals)


def _segment(note: NodeNote, file: str, epoch: int) -> Segment:
    """A node's file as the manifest lists it: all of it is live until the next epoch replaces it."""
    return Segment(
        name=file,
        store=f"node {note.node}",
        rows=note.rows,
        bytes=note.bytes,
        oldest=0,
        newest=0,
        deadline=FOREVER,
        first_epoch=epoch,
        epoch=epoch,
        parts=(Part(0, 0, note.rows),),
        checksum=note.checksum,
    )
