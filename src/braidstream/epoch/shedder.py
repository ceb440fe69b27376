"""Shedding in the driver: what is given up after each epoch, and how complete the answer is.

`Shedder` turns manifests into the figures of `control.shedding`, which decides about the filter in the manifest that is
about to be committed, and keeps what is needed to say how complete the answer is (`control.estimate`). Slots apply the
filter when they gather stored rows, and count with a sample (`slot/counting.py`). So a replayed epoch joins the same
rows, and the union of all epochs is a part of the batch join, each result once: a result still comes in the epoch in
which its last component arrives, or never.

What may be shed is what may be pushed, but not what outer, semi, anti and as-of joins look partners up in
(`model.stores.sheddable`). A flow that spilled before goes on cleaning up.

Cost: O(parts of the manifest).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from braidstream.control.estimate import Counts, Interval, completeness_interval
from braidstream.control.overflow import Overflow
from braidstream.control.shedding import Span, Stock, expected_share, live_bytes, shed
from braidstream.epoch.spiller import Spiller
from braidstream.model.dead_rows import FIRST_BITS, Filter
from braidstream.model.directory import Directory
from braidstream.model.instructions import Decision, Shed
from braidstream.model.numbers import Address, GroupId
from braidstream.model.reports import Report, SampleCounts, SlotReport, brought_by, slot_reports
from braidstream.model.stores import Join, Store, sheddable
from braidstream.model.values import changed
from braidstream.slot.section_writing import row_bytes, spans_of, stocks_of
from braidstream.state import generations
from braidstream.state.acting import intent, settled
from braidstream.state.filters import filter_of
from braidstream.state.generations import account
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Shedding

__all__ = ["Shedder", "completeness_of", "spiller_of"]

_DECAY = 0.8
"""How much of what was learned of groups is left after another epoch."""


def spiller_of(
    overflow: Overflow, stores: Sequence[Store], joins: Sequence[Join], interval_s: float | None = None
) -> Spiller:
    """What keeps a flow's slots within their budget."""
    if overflow.on_overflow != "shed":
        return Spiller.of(overflow, stores, joins, interval_s)
    names = sheddable(stores, joins)
    windows = {store.name: store.window_us for store in stores if store.name in names}
    inputs = {
        join.query: own
        for join in joins
        if (own := [(stores[e.store].name, e.window_us) for e in join.inputs if stores[e.store].name in names])
    }
    return Shedder(overflow, names, interval_s, windows=windows, inputs=inputs)


@dataclass(frozen=True)
class Shedder(Spiller):
    """The budget of a flow's slots where state beyond it is dropped."""

    windows: Mapping[str, int | None] = field(default_factory=dict)
    inputs: Mapping[str, Sequence[tuple[str, int | None]]] = field(default_factory=dict)
    """By query: the stores that it joins and that are shed, and its windows there."""

    @property
    def shed_stores(self) -> frozenset[str]:
        """The stores whose rows may be dropped."""
        return self.stores

    @property
    def shed_windows(self) -> Mapping[str, int | None] | None:
        """The same with their windows."""
        return self.windows

    def remembered(self, manifest: Manifest, reports: Sequence[Report]) -> Manifest:
        """The manifest with what this epoch's reports say of results, by group and as a whole."""
        manifest = super().remembered(manifest, reports)
        known, slots = manifest.notes.shedding or Shedding(), slot_reports(reports)
        bits = (known.filter or Filter()).bits
        last, run = _counted(known.run, slots, 2.0 ** (bits - FIRST_BITS))
        yields = _yields(manifest.directory, known, slots)
        return manifest.with_notes(changed(manifest.notes, shedding=changed(known, last=last, run=run, yields=yields)))

    def pushes(self, manifest: Manifest, before: Directory) -> list[Decision]:
        """Nothing is pushed; what is left of an earlier spill is cleaned up."""
        del manifest, before
        return []

    def may_push(self, manifest: Manifest) -> frozenset[GroupId]:
        """None, whoever asks for it."""
        del manifest
        return frozenset()

    def sheds(self, manifest: Manifest) -> list[Decision]:
        """The filter for the next epoch, if it is another than now."""
        known, old = manifest.notes.shedding or Shedding(), _fitted(manifest)
        spans, stocks = self._spans(manifest), self._stocks(manifest)
        budget, by = self.overflow.memory_bytes, self.overflow.shed_by
        n = max((len(inputs) for inputs in self.inputs.values()), default=2)
        yields = {low: made / max(size, 1.0) for low, (made, size) in known.yields.items()}
        homes = {group.low: group.slot for group in manifest.directory.groups}
        new = shed(
            old, stocks, spans, budget=budget, by=by, epoch=manifest.epoch, yields=yields, homes=homes, n_inputs=n
        )
        if new == old:
            return []
        held = float(live_bytes(stocks, old, spans).sum())
        figures = {"held_bytes": held, "live_bytes": float(live_bytes(stocks, new, spans).sum())}
        figures["budget_bytes"] = float(budget)
        figures["taken"] = min(piece.intake for piece in new.pieces)
        reason = f"slots hold more than they may, and what is {by} goes first"
        return [Decision(manifest.epoch, "shedding", figures, (Shed(by, held, new),), reason)]

    def accounted(self, manifest: Manifest, sheds: Sequence[Decision]) -> Manifest:
        """The manifest with what lives by group, and the share of the results to expect of each."""
        known, spans, after = manifest.notes.shedding or Shedding(), self._spans(manifest), 0.0
        filter_, left = _fitted(manifest), self._stocks(manifest)
        held: dict[Address, float] = defaultdict(float)
        for stock, size in zip(left, live_bytes(left, filter_, spans), strict=True):
            held[stock.low] += float(size)
            after += float(size)
        before = sum(one.held_bytes for made in sheds for one in made.instructions if isinstance(one, Shed)) or after
        horizons = {
            s: spans[s].low for s, w in self.windows.items() if w is not None and manifest.watermark is not None
        }
        oldest = min((s.epoch for s in manifest.segments if s.store in self.stores), default=manifest.epoch + 1)
        filter_ = changed(filter_.pruned(oldest, horizons), stores=tuple(sorted(self.stores)))
        others = {segment.store for segment in manifest.segments} - self.stores
        kept = sum(one.active_bytes for one in account(manifest, others).values())
        ended = max((span.high for span in spans.values()), default=0)
        pace_us = max(ended - (ended if known.ended is None else known.ended), 0)
        pace_us = pace_us if known.pace_us is None else (known.pace_us + pace_us) // 2
        noted = changed(
            known,
            filter=filter_,
            held=held,
            live_bytes=int(after + kept),
            ended=ended,
            pace_us=pace_us,
            expected={
                query: tuple(expected_share(piece, inputs, spans, manifest.epoch, pace_us) for piece in filter_.pieces)
                for query, inputs in self.inputs.items()
            },
            shed_bytes=max(int(before - after), 0),
        )
        return manifest.with_notes(changed(manifest.notes, shedding=noted))

    def cleaned(
        self, manifest: Manifest, groups: Sequence[GroupId], some: Mapping[GroupId, Collection[int]]
    ) -> Manifest:
        """After a clean-up of what an earlier spill has left all is active, whether it fits or not: shedding follows.

        A group could not stay inactive in a part of its stores, since what these have met would be forgotten.
        """
        return intent(settled(generations.joined(manifest, some), groups, (), self.stores, {}), (), 0)

    def is_at_odds(self, manifest: Manifest) -> bool:
        """Whether results of an earlier spill are missing: they come before anything is shed."""
        return bool(self.incomplete(manifest)) or super().is_at_odds(manifest)

    def _spans(self, manifest: Manifest) -> dict[str, Span]:
        return spans_of(manifest.segments, self.windows, manifest.watermark)

    def _stocks(self, manifest: Manifest) -> list[Stock]:
        own = [segment for segment in manifest.segments if segment.store in self.stores]
        return stocks_of(own, manifest.directory, row_bytes(own))


def _fitted(manifest: Manifest) -> Filter:
    """The filter of now, with a piece for each group."""
    return (filter_of(manifest) or Filter()).fitted([group.low for group in manifest.directory.groups])


def completeness_of(manifest: Manifest) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """For each query the completeness of the last epoch's answer, and of all answers so far; empty without shedding."""
    known = manifest.notes.shedding or Shedding()
    return _intervals(known.last), _intervals(known.run)


def _intervals(kept: Mapping[str, SampleCounts]) -> dict[str, Interval]:
    return {query: completeness_interval(Counts.of(counts)) for query, counts in kept.items()}


def _counted(
    run: Mapping[str, SampleCounts], reports: Sequence[SlotReport], weight: float
) -> tuple[dict[str, SampleCounts], dict[str, SampleCounts]]:
    """The counts of this epoch and of the whole run, in which a smaller sample has a larger weight."""
    last: dict[str, Counts] = {}
    for report in reports:
        for query, sent in report.shed.items():
            last[query] = last.get(query, Counts()).plus(Counts.of(sent))
    whole = {query: Counts.of_run(kept, weight) for query, kept in run.items()}
    for query, counts in last.items():
        whole[query] = whole.get(query, Counts()).plus(counts.weighted(weight))
    kept = [{query: counts.as_sent() for query, counts in some.items()} for some in (last, whole)]
    return kept[0], kept[1]


def _yields(directory: Directory, known: Shedding, reports: Sequence[SlotReport]) -> dict[Address, tuple[float, float]]:
    """Of each group, of late: its results, and the bytes that it held for them."""
    matched: dict[GroupId, int] = defaultdict(int)
    brought = brought_by(reports)
    for one, matches in zip(brought.groups.tolist(), brought.matches.tolist(), strict=True):
        matched[one] += matches
    found = {}
    for group in directory.groups:
        made, size = known.yields.get(group.low, (0.0, 0.0))
        held = known.held.get(group.low, 0.0)
        found[group.low] = (round(_DECAY * made + matched[group.id], 3), round(_DECAY * size + held, 1))
    return found
