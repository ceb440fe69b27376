"""What deciding costs at many slots: milliseconds of each thing that the driver asks for at a reorganization.

Everything is made up: loads, frequent keys, probes and state such as slots would report, by a seed. Nothing here reads
files or runs a flow; `braid bench scale` calls `control_ms` beside what it measures of metadata.

Cost: a second or two at a thousand slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from braidstream.control.controller import Controller
from braidstream.control.heavy import MOST_ENTRIES, Tracker, candidates
from braidstream.control.overflow import GroupMemory, Overflow, fits_again, to_clean_up, to_join, to_spill
from braidstream.control.policies.generation_tiers import Generation
from braidstream.control.policies.spilling import GroupState
from braidstream.control.probing import learned
from braidstream.control.regridding import decide
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.epoch.reorganizer import epoch_figures
from braidstream.model.directory import Directory, address_of
from braidstream.model.figures import FigureColumns, StoredColumns, WaitingFigures
from braidstream.model.grids import Family, GridPlan
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import Instruction, Move, Split, apply
from braidstream.model.numbers import EpochNumber, GroupId, SlotId, slot_ids
from braidstream.model.reports import Frequent, GroupCounts, SlotReport, brought_by, decoded, encoded
from braidstream.state.manifest import Manifest

__all__ = ["Scale", "control_ms"]

_EPOCH = EpochNumber(9)
_BUDGET = 1 << 30


@dataclass(frozen=True)
class Scale:
    """A made-up flow of one join over two stores: so many slots, each with so many groups."""

    n_slots: int = 1000
    groups_a_slot: int = 32
    n_epochs: int = 10
    """Epochs between two reorganizations."""
    seed: int = 1

    @cached_property
    def directory(self) -> Directory:
        """Its groups, dealt evenly."""
        return Directory.of(self.n_slots * self.groups_a_slot, self.n_slots)

    @cached_property
    def reports(self) -> list[SlotReport]:
        """What the slots say of an epoch: some have twenty times the work of others."""
        rng, found = np.random.default_rng(self.seed), []
        for slot in slot_ids(self.n_slots):
            own = self.directory.columns().of_slot(slot)
            rows = rng.poisson(1000 * (20 if slot % 4 == 0 else 1), len(own))
            matches = rng.poisson(5 * rows)
            busy_s, counts = float((rows + matches).sum()) * 1e-6, GroupCounts.of(own, rows, matches)
            probes = {"q": {0: (int(rows.sum()), int(matches.sum())), 1: (int(rows.sum()), int(matches.sum()))}}
            found.append(
                SlotReport(
                    slot=slot,
                    executor=f"host-{slot % 100}:1",
                    stage=0,
                    rows=counts.all_rows,
                    busy_s=busy_s,
                    groups=counts,
                    probes=probes,
                    frequent={store: reports[slot] for store, reports in enumerate(self.frequent)},
                )
            )
        return found

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of an epoch, without state."""
        return Manifest(_EPOCH, self.directory, self.n_slots)

    @cached_property
    def waiting(self) -> WaitingFigures:
        """The figures of all epochs since the last reorganization."""
        made = WaitingFigures()
        for _ in range(self.n_epochs):
            made = made.plus(epoch_figures(self.manifest, self.reports))
        return made

    @cached_property
    def measures(self) -> GroupMeasures:
        """The measures so far."""
        return GroupMeasures().counted(brought_by(self.reports), self.directory, _EPOCH)

    def figures(self, fullest: float = 1.0) -> FigureColumns:
        """What the controller reads: slots that hold up to `fullest` of the budget."""
        rng, n_groups = np.random.default_rng(self.seed + 1), len(self.directory)
        share = np.repeat(rng.uniform(0.5, fullest, self.n_slots), self.groups_a_slot)
        active = (share * _BUDGET / self.groups_a_slot).astype(np.int64)
        stored = StoredColumns(np.arange(n_groups), active, active // 4)
        return self.waiting.columns(stored, {}, [one.executor for one in self.reports])

    @cached_property
    def frequent(self) -> list[list[Frequent]]:
        """For each of two stores what the slots report of frequent keys in an epoch."""
        rng, found, shape = np.random.default_rng(self.seed + 2), [], (self.n_slots, MOST_ENTRIES)
        ranks = np.sort(rng.permutation(self.n_slots * MOST_ENTRIES).reshape(shape), axis=1)
        keys = rng.integers(0, 1 << 63, shape).tolist()
        for _ in range(2):
            counts = np.sort((1e5 * rng.uniform(0.9, 1.1, shape) / (1 + ranks) ** 0.7).astype(np.int64), axis=1)
            pairs = zip(keys, (1 + counts[:, ::-1]).tolist(), strict=True)
            found.append([Frequent.of(100_000, zip(*pair, strict=True), pair[1][-1]) for pair in pairs])
        return found

    @cached_property
    def trackers(self) -> list[Tracker]:
        """The frequent keys of both stores after some epochs."""
        made = []
        for reports in self.frequent:
            tracker = Tracker.of(self.n_slots, 4_000_000)
            for clock in range(0, 4_000_000, 1_000_000):
                tracker = tracker.seen(reports, clock)
            made.append(tracker)
        return made

    def slot_of(self, key: int) -> SlotId:
        """The slot of a key while it is light."""
        return self.directory.at(address_of(0, key)).slot

    @cached_property
    def family(self) -> Family:
        """The family of both stores: its candidates, as many as the regridder asks for."""
        found = candidates(self.trackers, 8 * self.n_slots, self.slot_of)
        return Family("f", tuple(float(tracker.rows) for tracker in self.trackers), tuple(found))

    @cached_property
    def memories(self) -> list[GroupMemory]:
        """What each group holds: half of the slots are above the budget, some groups have generations on disk."""
        rng, found = np.random.default_rng(self.seed + 3), []
        for group in self.directory.groups:
            size = int(rng.uniform(0.5, 1.5) * _BUDGET / self.groups_a_slot)
            n_pushed = int(rng.integers(0, 6)) if rng.random() < 0.3 else 0
            inactive = tuple(Generation(n + 1, size, 1_000_000 + n) for n in range(n_pushed))
            state = GroupState(group.id, group.slot, size, float(rng.poisson(100)), _EPOCH, bool(n_pushed))
            found.append(GroupMemory(state, size * n_pushed, n_pushed, n_pushed > 4, inactive))
        return found


def control_ms(n_slots: int = 1000, groups_a_slot: int = 32, repeats: int = 3) -> dict[str, float]:
    """By name what each decision takes of a processor, in milliseconds: the least of some repetitions."""
    scale = Scale(n_slots, groups_a_slot)
    cases = {**_reporting(scale), **_controlling(scale), **_gridding(scale), **_overflowing(scale)}
    return {name: min(_ms(case) for _ in range(repeats)) for name, case in cases.items()}


def _ms(case: Callable[[], object]) -> float:
    begun = time.process_time()
    case()
    return 1000 * (time.process_time() - begun)


def _reporting(scale: Scale) -> Mapping[str, Callable[[], object]]:
    """What every epoch does with its reports."""
    sent = [encoded(report) for report in scale.reports]
    waiting, reports, fresh = scale.waiting, scale.reports, Directory.of(2 * len(scale.directory), scale.n_slots)
    probes = [report.probes for report in reports]
    return {
        "reports decoded": lambda: decoded(sent),
        "figures of an epoch": lambda: waiting.plus(epoch_figures(scale.manifest, reports)),
        "measures counted": lambda: scale.measures.counted(brought_by(reports), scale.directory, _EPOCH),
        "measures carried": lambda: scale.measures.carried(scale.directory, fresh),
        "probing": lambda: learned({"q": {0: 1.0}}, probes),
    }


def _controlling(scale: Scale) -> Mapping[str, Callable[[], object]]:
    """The controller with all policies, in situations that make different ones speak."""
    loose, tight = scale.figures(), scale.figures(1.5)
    groups = [GroupId(group) for group in range(0, len(scale.directory), 8)]
    asked: list[Instruction] = [Move(group, SlotId(0)) for group in groups]
    asked += [Split(GroupId(group + 1), SlotId(0)) for group in groups[::8]]

    def decided(figures: FigureColumns, settings: Settings) -> Callable[[], object]:
        controller = Controller(settings)
        memory = Memory(base_groups=len(scale.directory) // 4)
        fresh = Directory.from_columns(scale.directory.columns(), scale.directory.next_id)
        return lambda: controller.decide(figures, fresh, scale.n_slots, memory, 100.0, 1, scale.measures)

    usual = Settings(declustering=True, splitting=True, memory_bytes=_BUDGET, max_slots=2 * scale.n_slots)
    idle = replace(usual, epoch_s=100.0)
    return {
        "controller, uneven load": decided(loose, replace(usual, epoch_s=0.25)),
        "controller, time to spare": decided(loose, idle),
        "controller, too much state": decided(tight, replace(idle, disk="active", splitting=False)),
        "instructions applied": lambda: apply(scale.directory, scale.n_slots, asked),
    }


def _gridding(scale: Scale) -> Mapping[str, Callable[[], object]]:
    """Frequent keys and grids."""
    family, trackers = scale.family, scale.trackers
    plan = _plan(scale, [family], None)
    return {
        "frequent keys of a store": lambda: trackers[0].seen(scale.frequent[0], 4_000_000),
        "candidates": lambda: candidates([one.unasked() for one in trackers], 8 * scale.n_slots, scale.slot_of),
        "grids": lambda: _plan(scale, [family], None),
        "grids again": lambda: _plan(scale, [family], plan),
    }


def _plan(scale: Scale, families: Sequence[Family], before: GridPlan | None) -> GridPlan:
    return decide(families, None, scale.n_slots, before.grids if before else (), before.next_id if before else 1)


def _overflowing(scale: Scale) -> Mapping[str, Callable[[], object]]:
    """Pushes and clean-ups."""
    overflow, memories = Overflow(_BUDGET), scale.memories
    pushed = to_spill(memories, overflow, _EPOCH)
    wanted = to_clean_up(memories, overflow, pushed, 1e9)
    return {
        "groups to push": lambda: to_spill(memories, overflow, _EPOCH),
        "groups to clean up": lambda: to_clean_up(memories, overflow, pushed, 1e9),
        "generations to join": lambda: to_join(memories, overflow, wanted, 2_000_000),
        "groups that fit again": lambda: fits_again(memories, overflow, wanted + pushed),
    }
