"""What an epoch says of itself: the entries of `handle.progress`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braidstream.control.estimate import Interval
from braidstream.control.regridding import imbalance
from braidstream.epoch.heavy_keys import HeavyKey, heavy_keys_of
from braidstream.epoch.idleness import idle_warnings
from braidstream.epoch.lateness import late_in_all, late_in_epoch, late_warnings
from braidstream.epoch.shedder import completeness_of
from braidstream.epoch.stages import StageProgress, stages_of
from braidstream.epoch.timeline import parts_of
from braidstream.model.numbers import slot_ids
from braidstream.model.reports import CleanUpReport, Report, SlotReport, Tally, slot_reports
from braidstream.state.cell_memory import InCells, in_cells
from braidstream.state.generations import held_groups, sizes
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Shedding

__all__ = ["EpochProgress", "tallies_of"]


@dataclass(frozen=True)
class EpochProgress:
    """One epoch."""

    epoch: int
    rows: Mapping[str, int]
    """Rows read, by stream."""
    indexed: int
    """Rows that went through the exchange."""
    exchanged_bytes: int
    """Bytes that reached the slots, of all stages."""
    late: Mapping[str, int]
    keyless: int
    """Rows whose key has a NULL, and which so equal nothing."""
    matches: Mapping[str, int]
    """Results, by query."""
    produced: Mapping[str, int]
    """Intermediate results, by join."""
    seconds: Mapping[str, float]
    """Time of the steps join, deliver, commit, and in total."""
    watermark: int | None
    state_rows: int
    state_bytes: int
    segments: int
    slots: int
    groups: int
    at_home: int
    """Slots that ran on the executor that holds their state."""
    ran: int
    """Slots that ran at all."""
    fetched: int
    """Segments that had to be fetched from a remote state folder."""
    busy_s: tuple[float, ...]
    """Busy time of each slot that ran."""
    peak_mb: float
    """The largest memory any worker process has had."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Where the time went, as `epoch.timeline` tells it: seconds of routing, exchange, join and so on."""
    heavy: tuple[HeavyKey, ...] = ()
    """The keys that have a grid in the next epoch, the most frequent first."""
    balance: Mapping[str, float] = field(default_factory=dict)
    """Largest over mean of the slots: `rows` received, `matches` produced, seconds `busy`."""
    active_bytes: int = 0
    """State that slots probe."""
    slot_bytes: tuple[int, ...] = ()
    """The same by slot, cells of heavy keys included: what the budget is compared with, where it may be pushed."""
    cell_rows: tuple[int, ...] = ()
    """Rows in cells of heavy keys, by slot; rows of an earlier grid are shared by the slots that read them."""
    cell_bytes: tuple[int, ...] = ()
    """Their bytes, which are never pushed."""
    inactive_bytes: int = 0
    """State that was pushed and is not cleaned up."""
    spilled_groups: int = 0
    """Groups with inactive generations."""
    recovered: Mapping[str, int] = field(default_factory=dict)
    """Results of clean-up, by query; they are among `matches`."""
    spare_s: float = 0.0
    """Time that was left until the next epoch was due."""
    step: int = 0
    """Above 0: not an epoch, but that step of a last clean-up after it."""
    completeness: Mapping[str, Interval] = field(default_factory=dict)
    """Where tuples may be shed: by query, how complete this epoch's answer is, with an interval of 95%."""
    completeness_so_far: Mapping[str, Interval] = field(default_factory=dict)
    """The same for all answers since the flow first began."""
    shed_bytes: int = 0
    """State that was shed after this epoch, as far as it was accounted."""
    stages: tuple[StageProgress, ...] = ()
    """The stages, the first one first: each has groups of its own. `groups` are those of all."""
    late_by: Mapping[str, int] = field(default_factory=dict)
    """By stream with late rows: the delay, in microseconds, with which they would have been joined."""
    untimed: Mapping[str, int] = field(default_factory=dict)
    """Late rows that have no time, by stream with such."""
    warnings: tuple[str, ...] = ()
    """What the user should know: more than 1% of a stream's rows were late, in this epoch or in all so far; a stream
    has fallen silent."""
    sealing_s: float = 0.0
    """Time that slots and the driver have spent on checksums; what runs side by side is added up."""
    idle: tuple[str, ...] = ()
    """Streams that the watermark does not wait for any more, because they say nothing."""

    bad: Mapping[str, int] = field(default_factory=dict)
    """Rows that went to a query's `bad`, as an expression failed, by stream; joined rows by their streams, `R+S`."""

    @property
    def rows_per_s(self) -> float:
        """Rows of all streams through this epoch, per second."""
        return sum(self.rows.values()) / max(self.seconds["total"], 1e-9)

    @classmethod
    def of(
        cls,
        before: Manifest,
        after: Manifest,
        reports: Sequence[Report],
        seconds: Mapping[str, float],
        spare_s: float = 0.0,
        step: int = 0,
        sealing_s: float = 0.0,
    ) -> EpochProgress:
        """The progress of the epoch between two manifests."""
        slots = slot_reports(reports)
        tallies = tallies_of(slots)
        late, bad = late_in_epoch(tallies, before.newest), _bad(before, after)
        matches: dict[str, int] = defaultdict(int)
        produced: dict[str, int] = defaultdict(int)
        recovered: dict[str, int] = defaultdict(int)
        for report in reports:
            for query, result in report.results.items():
                matches[query] += result.rows
                if isinstance(report, CleanUpReport):
                    recovered[query] += result.rows
        for report in slots:
            for join, made in report.produced.items():
                produced[join] += made
        active, inactive = sizes(after)
        figures = after.figures().values()
        slot_bytes, cell_rows, cell_bytes = _by_slot(after)
        shedding = after.notes.shedding or Shedding()
        completeness, so_far = completeness_of(after)
        at_home = [before.executors.get(r.slot, r.executor) == r.executor for r in reports]
        return cls(
            epoch=after.epoch,
            rows={stream: tally.rows for stream, tally in tallies.items()},
            indexed=sum(tally.indexed for tally in tallies.values()),
            exchanged_bytes=sum(report.bytes for report in slots),
            late={stream: tally.late for stream, tally in tallies.items()},
            keyless=sum(tally.keyless for tally in tallies.values()),
            matches=dict(matches),
            produced=dict(produced),
            seconds=dict(seconds),
            parts=parts_of(slots, seconds),
            watermark=after.watermark,
            state_rows=sum(one.rows for one in figures),
            state_bytes=active + inactive,
            segments=sum(one.segments for one in figures),
            slots=after.n_slots,
            groups=len(after.directory),
            at_home=sum(at_home),
            ran=len(at_home),
            fetched=sum(report.fetched for report in reports),
            busy_s=tuple(report.busy_s for report in reports),
            sealing_s=sealing_s + sum(report.sealing_s for report in reports),
            peak_mb=max((report.peak_mb for report in reports), default=0.0),
            heavy=heavy_keys_of(after),
            balance=_balance(before.n_slots, reports),
            active_bytes=active if shedding.live_bytes is None else shedding.live_bytes,
            slot_bytes=slot_bytes,
            cell_rows=cell_rows,
            cell_bytes=cell_bytes,
            inactive_bytes=inactive,
            spilled_groups=len(held_groups(after)) if inactive else 0,
            recovered=dict(recovered),
            spare_s=spare_s,
            step=step,
            completeness=completeness,
            completeness_so_far=so_far,
            shed_bytes=shedding.shed_bytes,
            stages=stages_of(after, slots),
            late_by={stream: one.needed_us for stream, one in late.items() if one.late > one.untimed},
            untimed={stream: one.untimed for stream, one in late.items() if one.untimed},
            warnings=(
                *late_warnings(after.epoch, late, late_in_all(after)),
                *(f"rows of {name} on which an expression failed: {n:,} of epoch {after.epoch}" for name, n in bad),
                *idle_warnings(before.notes.silence, after.notes.silence),
            ),
            idle=after.notes.silence.idle,
            bad=dict(bad),
        )


def _bad(before: Manifest, after: Manifest) -> list[tuple[str, int]]:
    """What failed between two manifests, by the streams it is of."""
    names = (name for name in after.totals if name.endswith(".bad"))
    found = ((name.removesuffix(".bad"), after.totals[name] - before.totals.get(name, 0)) for name in names)
    return [(name, n) for name, n in found if n]


def tallies_of(reports: Sequence[SlotReport]) -> dict[str, Tally]:
    """What routing tasks saw of each stream, by the reports of an epoch."""
    total: dict[str, Tally] = {}
    for report in reports:
        for tally in report.tallies:
            total[tally.stream] = total[tally.stream].plus(tally) if tally.stream in total else tally
    return total


def _by_slot(manifest: Manifest) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """What each slot probes, and of that the rows and bytes in cells."""
    found = in_cells(manifest)
    cells = [found.get(slot, InCells()) for slot in slot_ids(manifest.n_slots)]
    probed = [one.bytes for one in cells]
    for (stage, slot), figures in manifest.figures().items():
        if stage >= 0:
            probed[slot] += figures.active_bytes
    in_bytes = tuple(int(one.bytes) for one in cells)
    return tuple(int(size) for size in probed), tuple(round(one.rows) for one in cells), in_bytes


def _balance(n_slots: int, reports: Sequence[Report]) -> dict[str, float]:
    """Slots that did not run had nothing to do."""
    loads = {name: [0.0] * n_slots for name in ("rows", "matches", "busy")}
    for report in reports:
        loads["busy"][report.slot] += report.busy_s
        if isinstance(report, SlotReport):
            loads["rows"][report.slot] += report.rows
            loads["matches"][report.slot] += report.matches
    return {name: imbalance(load) for name, load in loads.items()}
