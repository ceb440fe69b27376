"""From the reports of an epoch to the manifest after it: sections, newest times, watermark, totals, what is remembered.

A pure function of the manifest before and the reports: nothing is decided here, and nothing is written. Of two reports
of one slot at one stage the later one is about a section that has what the earlier one says.

Cost: O(reports), and what is read of sections that change otherwise: those of silent slots in which state expires, and
those of keys whose rows cells take over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from braidstream.control.probing import learned, learned_apart
from braidstream.control.rates import paced
from braidstream.control.suspension import suspend
from braidstream.epoch.assignment import adoptions_of
from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.lateness import late_in_epoch, remembered
from braidstream.epoch.progress import tallies_of
from braidstream.model.numbers import EpochNumber
from braidstream.model.reports import Report, SlotReport, Tally, slot_reports
from braidstream.model.snapshots import Key
from braidstream.model.values import changed
from braidstream.slot.aggregation import reached_watermark
from braidstream.state import adoption
from braidstream.state.cells import pruned
from braidstream.state.manifest import Manifest
from braidstream.state.sections import Entry, Sections

__all__ = ["fold"]

_MOST_STALE = 16
"""As many sections of slots that were silent are written anew by the driver in one epoch."""


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
    joinable = _joinable(flow, newest, watermark)
    decided = suspend(
        flow.plan.siblings, flow.plan.parents, newest, spoke, flow.silence_us, known.suspended, epoch, joinable
    )
    rows = {stream: tally.rows for stream, tally in tallies.items()}
    common = learned(known.fanouts, [report.probes for report in slots])
    notes = changed(
        known,
        lateness=remembered(known.lateness, late_in_epoch(tallies, before.newest)),
        suspended=decided.suspended,
        rates=paced(known.rates, before.newest, newest, rows),
        fanouts=common,
        slot_fanouts=learned_apart(known.slot_fanouts, common, _probes_by_slot(slots), before.n_slots),
    )
    after = replace(
        before,
        epoch=epoch,
        sections=_sections(flow, before, slots),
        scratch=before.scratch | {report.section.ref.name for report in slots if report.section is not None},
        newest=newest,
        watermark=watermark,
        executors={**before.executors, **{report.slot: report.executor for report in reports}},
        totals=_totals(before, epoch, tallies, reports),
        notes=notes,
        delivered=before.delivered if before.epoch == epoch else {},
    )
    return _settled(flow, before, after, slots), decided.resumed


def _joinable(flow: FlowRun[EnvelopesT], newest: Mapping[str, int], watermark: int | None) -> set[str]:
    """Streams that may become idle, and of which a stored tuple may still meet one that is to come and is not late."""
    found = set()
    for stream in flow.patience.idle_us.keys() & newest.keys() if flow.silence_us is not None else ():
        windows = [store.window_us for store in flow.plan.stores if store.stream == stream]
        if watermark is None or any(one is None or newest[stream] + one >= watermark for one in windows):
            found.add(stream)
    return found


def _probes_by_slot(reports: Sequence[SlotReport]) -> dict[int, dict[str, Mapping[int, tuple[int, int]]]]:
    """What slots measured of each join; a join is of one stage, so a slot says it once."""
    found: dict[int, dict[str, Mapping[int, tuple[int, int]]]] = {}
    for report in reports:
        found.setdefault(report.slot, {}).update(report.probes)
    return found


def _sections(flow: FlowRun[EnvelopesT], before: Manifest, reports: Sequence[SlotReport]) -> Sections:
    """The sections that slots wrote, in the place of theirs before."""
    made: dict[Key, Entry] = {}
    for report in reports:
        if (own := report.section) is not None:
            key = report.stage, report.slot
            old = made.get(key) or before.sections.get(key)
            names = (frozenset() if old is None else old.names).difference(own.gone).union(own.added)
            made[key] = Entry(own.ref, flow.checkpoint.files, None, names, own.figures)
    return before.sections.with_entries(made)


def _settled(flow: FlowRun[EnvelopesT], before: Manifest, after: Manifest, reports: Sequence[SlotReport]) -> Manifest:
    """The manifest after what cells took over, and without what has expired in sections of slots that were silent."""
    tasks = adoptions_of(flow, before, before.epoch + 1)
    after = adoption.adopted(after, tasks, reports)
    if before.grids and not tasks and (before.epoch + 1) % adoption.EVERY == 0:
        after = replace(after, settled=adoption.settled(before) & {grid.id for grid in after.grids})
    ran = {(report.stage, report.slot) for report in reports if report.section is not None}
    stale = (key for key, entry in after.sections.entries().items() if key not in ran and _is_stale(flow, after, entry))
    kept = flow.merge_spans.keys()
    return pruned(after.swept(islice(stale, _MOST_STALE), lambda segment: segment.store in kept))


def _is_stale(flow: FlowRun[EnvelopesT], after: Manifest, entry: Entry) -> bool:
    known = entry.figures(None)
    is_past = None not in (known.earliest, after.watermark) and known.earliest < after.watermark  # type: ignore[operator]
    return is_past or not flow.merge_spans.keys() >= set(known.stores)


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
        if tally.failed:
            totals[f"{stream}.bad"] += tally.failed
    for report in reports:
        totals.update({f"{query}.matches": result.rows for query, result in report.results.items()})
    for report in slot_reports(reports):
        totals.update({f"{join}.produced": rows for join, rows in report.produced.items()})
    return dict(totals)
