"""What a manifest says of the plans of a flow's functions: which ones run, and what each node keeps.

Numbers are in the node's note, samples and windows in Arrow files that are listed like segments, so that checking,
sweeping and retiring them is the checkpoint's work. A plan gives way to another only when no node holds windows: the
samples that are not yet windows belong to no plan. Nothing here grows with the stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from braidstream.errors import RunError
from braidstream.functions.chains import Place, joined_names, names_in, node_name
from braidstream.functions.node_reports import Done
from braidstream.functions.nodes import NodeReport
from braidstream.functions.slow_nodes import given_up_by
from braidstream.functions.templates import FunctionPlan
from braidstream.model.directory import Directory
from braidstream.model.numbers import BEFORE_FIRST, EpochNumber
from braidstream.model.values import changed
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.notes import NodeNote, Notes
from braidstream.state.segments import FOREVER

__all__ = ["after_nodes", "first_manifest", "plan_of", "plans_of", "with_plans"]

FORMER = ("next_seq", "arrived", "skip", "newest", "watermark", "now")
"""The numbers of a first node that belong to the stream, not to a plan; those of aligned streams end in `:k`."""
_FIRST = node_name(Place(0, 0), 0)


def first_manifest(*plans: FunctionPlan) -> Manifest:
    """The manifest before the first epoch of functions with these plans."""
    return Manifest(BEFORE_FIRST, Directory.of(1), _degree(plans), notes=Notes(plan=_name(plans)))


def plan_of(manifest: Manifest) -> str:
    """The plan of the next epoch, by its short name."""
    if manifest.notes.plan is None:
        raise RunError("the checkpoint has no plan of a function", "a checkpoint of this function", "use a new folder")
    return manifest.notes.plan


def plans_of(manifest: Manifest) -> tuple[str, ...]:
    """The plan of each function in the next epoch, by its short name."""
    return names_in(plan_of(manifest))


def with_plans(manifest: Manifest, *plans: FunctionPlan) -> Manifest | None:
    """The manifest with other plans; None while a node holds windows of the old ones. Their nodes are all tried."""
    nodes = manifest.notes.nodes
    if any(note.holds_windows for note in nodes.values()):
        return None
    kept = {}
    for first in (node_name(Place(function, 0), 0) for function in range(len(plans))):
        if first in nodes:
            numbers = {name: value for name, value in nodes[first].numbers.items() if name.split(":")[0] in FORMER}
            kept[first] = changed(nodes[first], numbers=numbers)
    return replace(
        manifest, notes=changed(manifest.notes, plan=_name(plans), nodes=kept, slow={}), n_slots=_degree(plans)
    )


def after_nodes(before: Manifest, epoch: int, done: Sequence[Done], functions: Sequence[str], stream: str) -> Manifest:
    """The manifest after an epoch: what nodes keep, where the stream is, and the totals."""
    kept = {one.state.node: one.state for one in done if one.state is not None}
    segments = tuple(_segment(note, note.file, epoch) for note in kept.values() if note.file is not None)
    newest_us, watermark = (kept[_FIRST].numbers[name] for name in ("newest", "watermark"))
    after = replace(
        before,
        epoch=EpochNumber(epoch),
        newest={} if newest_us is None else {stream: newest_us},
        watermark=watermark,
        totals=_totals(before, [one.report for one in done], functions, stream),
        notes=changed(before.notes, nodes=kept),
    )
    return after.with_segments(segments)


def _degree(plans: Sequence[FunctionPlan]) -> int:
    return max(plan.degree for plan in plans)


def _name(plans: Sequence[FunctionPlan]) -> str:
    return joined_names(plan.strategy for plan in plans)


def _totals(before: Manifest, nodes: Sequence[NodeReport], functions: Sequence[str], stream: str) -> dict[str, int]:
    totals = Counter(before.totals)
    first = next(node for node in nodes if (node.function, node.stage) == (0, 0))
    read = {"rows": first.samples, "late": first.late_samples, "null": first.null_rows}
    totals.update({"epochs": 1, **{f"{stream}.{name}": count for name, count in read.items()}})
    for number, function in enumerate(functions):
        own = [node for node in nodes if node.function == number]
        totals.update({f"{function}.{name}": count for name, count in _counts(own).items()})
    return dict(totals)


def _counts(nodes: Sequence[NodeReport]) -> dict[str, int]:
    """What the nodes of one function counted."""
    first = next(node for node in nodes if node.stage == 0)
    last = max(nodes, key=lambda node: node.stage)
    return {
        "windows": first.windows,
        "results": last.results,
        "given_up": given_up_by(nodes),
        "lost": sum(node.lost for node in nodes),
        "too_late": last.late,
    }


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
