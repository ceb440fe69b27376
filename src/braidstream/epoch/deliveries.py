"""Delivery: what an epoch's slots have staged of results and late tuples is handed to its sinks.

Slots stage files and report their names; `Outlets` gives them to the sink, finished where the query has expressions.

Invariant: what is delivered under an epoch's number replaces what a lost attempt delivered under it. Cost: O(files).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.outlets import Composites
from braidstream.model.reports import Report, StagedFile, slot_reports
from braidstream.model.snapshots import Placed
from braidstream.state.manifest import Manifest

__all__ = ["Delivered", "deliver_epoch", "deliver_step", "staged_files", "together", "with_failed"]


Delivered: TypeAlias = "Mapping[str, tuple[Placed, ...]]"
"""By folder: the files that were put there."""


def deliver_epoch(
    flow: FlowRun[EnvelopesT], epoch: int, reports: Sequence[Report], composites: Mapping[str, Composites]
) -> Delivered:
    """Hand over the results of all queries, and late tuples: to every sink, also where there are none."""
    flow.checkpoint.fence()
    placed = list[Delivered]()
    for query in flow.queries:
        outlet = replace(flow.result_of(query), composites=composites.get(query))
        placed.append(flow.outlets.deliver(outlet, epoch, staged_files(query, reports)))
    for stream in flow.late:
        files = [report.late[stream] for report in slot_reports(reports) if stream in report.late]
        placed.append(flow.outlets.deliver(flow.late_of(stream), epoch, files))
    return together(placed)


def deliver_step(flow: FlowRun[EnvelopesT], step: int, reports: Sequence[Report]) -> Delivered:
    """Hand over what a step outside of epochs has produced, under a number of its own: results of joins only."""
    flow.checkpoint.fence()
    joined = {join.query for join in flow.plan.cleaned_joins}
    own = [query for query in flow.queries if query in joined]
    return together(flow.outlets.deliver(flow.result_of(q), -step, staged_files(q, reports)) for q in own)


def with_failed(manifest: Manifest, failed: Mapping[str, int]) -> Manifest:
    """The manifest with the joined rows counted of which an expression failed."""
    if not failed:
        return manifest
    totals = Counter(manifest.totals)
    totals.update({f"{name}.bad": rows for name, rows in failed.items()})
    return replace(manifest, totals=dict(totals))


def together(placed: Iterable[Delivered]) -> Delivered:
    """All files of each folder."""
    found: dict[str, tuple[Placed, ...]] = {}
    for one in placed:
        for folder, files in one.items():
            found[folder] = (*found.get(folder, ()), *files)
    return found


def staged_files(output: str, reports: Sequence[Report]) -> list[StagedFile]:
    """The files that slots have staged of a query's results, or of the composites of one."""
    results = (report.results[output] for report in reports if output in report.results)
    return [result.file for result in results if result.file]
