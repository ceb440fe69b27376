"""From the reports of an epoch to the manifest after it: segments, newest times, watermark, totals, what is remembered.

A pure function of the manifest before and the reports, whatever their order: nothing is decided here, and nothing is
written. Cost: O(segments + reports).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat

from braidstream.control.probing import learned
from braidstream.control.rates import paced
from braidstream.control.suspension import suspend
from braidstream.epoch.assignment import adoptions_of
from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.lateness import late_in_epoch, remembered
from braidstream.epoch.progress import tallies_of
from braidstream.model.numbers import EpochNumber
from braidstream.model.reports import Report, SlotReport, Tally, slot_reports
from braidstream.model.values import changed
from braidstream.slot.aggregation import reached_watermark
from braidstream.state import adoption
from braidstream.state.cells import pruned
from braidstream.state.generations import unexpired
from braidstream.state.manifest import Manifest, Part, Segment

__all__ = ["fold"]


def fold(
    flow: FlowRun[EnvelopesT],
    before: Manifest,
    epoch: EpochNumber,
    reports: Sequence[Report],
    *,
    expires: bool = True,
) -> tuple[Manifest, Mapping[str, int]]:
    """The manifest after the reports of an epoch, and the joins that are to produce what they left out.

    What these still need must not expire before: until they are done the watermark stays where it was.
    """
    slots, known = slot_reports(reports), before.notes
    tallies = tallies_of(slots)
    newest = _newest(before.newest, tallies)
    watermark, idle = before.watermark, known.silence.idle
    if expires:
        watermark = reached_watermark(newest, tallies.values(), flow.delays_us, before.watermark, idle)
    spoke = {stream for stream, tally in tallies.items() if tally.rows}
    decided = suspend(flow.plan.siblings, flow.plan.parents, newest, spoke, flow.silence_us, known.suspended, epoch)
    rows = {stream: tally.rows for stream, tally in tallies.items()}
    notes = changed(
        known,
        lateness=remembered(known.lateness, late_in_epoch(tallies, before.newest)),
        suspended=decided.suspended,
        rates=paced(known.rates, before.newest, newest, rows),
        fanouts=learned(known.fanouts, [report.probes for report in slots]),
    )
    after = replace(
        before,
        epoch=epoch,
        segments=_segments(flow, before, slots, watermark),
        newest=newest,
        watermark=watermark,
        executors={**before.executors, **{report.slot: report.executor for report in reports}},
        totals=_totals(before, epoch, tallies, reports),
        notes=notes,
    )
    return pruned(after), decided.resumed


def _newest(before: Mapping[str, int], tallies: Mapping[str, Tally]) -> dict[str, int]:
    newest = dict(before)
    for stream, tally in tallies.items():
        if tally.newest is not None:
            newest[stream] = max(newest.get(stream, tally.newest), tally.newest)
    return newest


def _totals(before: Manifest, epoch: int, tallies: Mapping[str, Tally], reports: Sequence[Report]) -> dict[str, int]:
    totals = Counter(before.totals)
    totals["epochs"] += before.epoch < epoch
    for stream, tally in tallies.items():
        totals.update({f"{stream}.rows": tally.rows, f"{stream}.late": tally.late, f"{stream}.keyless": tally.keyless})
    for report in reports:
        totals.update({f"{query}.matches": result.rows for query, result in report.results.items()})
    for report in slot_reports(reports):
        totals.update({f"{join}.produced": rows for join, rows in report.produced.items()})
    return dict(totals)


def _segments(
    flow: FlowRun[EnvelopesT], before: Manifest, reports: Sequence[SlotReport], watermark: int | None
) -> tuple[Segment, ...]:
    live = {segment.name: segment for segment in before.segments}
    for report in reports:
        ranges = [(group.low, group.high) for group in before.directory.of_slot(report.slot)]
        for merged in report.merged:
            for name, parts in zip(merged.inputs, merged.parts or repeat(None)):  # noqa: B905  endless
                live[name] = _without(live[name], merged.codes, parts, ranges)
            if merged.segment is not None:
                live[merged.segment.name] = merged.segment
        live |= {segment.name: segment for segment in report.segments}
    live = adoption.adopted(live, adoptions_of(flow, before, before.epoch + 1), reports)
    return unexpired((s for s in live.values() if s.store in flow.merge_spans), before.directory, watermark)


def _without(
    segment: Segment, codes: Sequence[int], parts: Sequence[Part] | None, ranges: Sequence[tuple[int, int]]
) -> Segment:
    """What a merge has left of one of its inputs: it took cells, some pushed parts, or a slot's active parts."""
    if codes:
        return segment.without_cells(codes)
    return segment.without(ranges) if parts is None else segment.without_parts(parts)
