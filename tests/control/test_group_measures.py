"""P_o and T_u are kept once: controller and budget see the same, whoever pushed, split or merged a group."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.controller import Controller
from braidstream.control.load import View
from braidstream.control.overflow import Overflow
from braidstream.control.policies import Suggestion
from braidstream.control.policies.disk import group_states
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.epoch.decider import Decider
from braidstream.epoch.reorganizer import Reorganizer
from braidstream.lab.testing.restless import Restless, RestlessSpiller
from braidstream.model.directory import Directory
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import Spill, apply
from braidstream.model.reports import GroupCount, GroupCounts, SlotReport
from braidstream.state.manifest import Manifest
from tests.scale import examples

N_GROUPS, N_SLOTS, N_EPOCHS = 6, 2, 12
BUDGET = Overflow(1 << 20)


@dataclass(frozen=True)
class Watching:
    """Notes what a policy sees of the groups, and pushes some."""

    seed: int
    seen: dict[int, dict[int, tuple[float, int]]] = field(default_factory=dict)

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        del memory
        states = [one for slot in range(view.n_slots) for one in group_states(view, slot)]
        self.seen[view.epoch] = {one.group: (one.outputs, one.touched) for one in states}
        drawn = np.random.default_rng([self.seed, view.epoch, 9]).random(len(states)) < 0.2
        spills = tuple(Spill(one.group) for one, is_drawn in zip(states, drawn, strict=True) if is_drawn)
        return [Suggestion("watching", "spill", spills, {}, "")] if spills else []


def reports(manifest: Manifest, rng: np.random.Generator) -> list[SlotReport]:
    """An epoch that brought something to most groups."""
    counts = {
        group.id: GroupCount(group.id, int(rng.integers(3)), int(rng.integers(9)))
        for group in manifest.directory.groups
        if rng.random() < 0.8
    }
    slots = [[counts[g.id] for g in manifest.directory.of_slot(slot) if g.id in counts] for slot in range(N_SLOTS)]
    return [
        SlotReport(slot=slot, executor="", stage=0, groups=GroupCounts.of_counts(own)) for slot, own in enumerate(slots)
    ]


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.booleans(), st.booleans())
def test_whoever_decides_sees_the_results_since_the_last_push_and_the_last_tuple(
    seed: int, every: int, has_controller: bool, has_budget: bool
) -> None:
    policy = Watching(seed)
    controller = Controller(Settings(every=every), (policy,))
    decider = Decider(
        Reorganizer(controller, clock=lambda: 0.0) if has_controller else None,
        spiller=RestlessSpiller(BUDGET, frozenset(), seed=seed) if has_budget else None,
    )
    manifest, rng = Manifest(-1, Directory.of(N_GROUPS, N_SLOTS), N_SLOTS), np.random.default_rng(seed)
    outputs, touched = dict.fromkeys(range(N_GROUPS), 0.0), dict.fromkeys(range(N_GROUPS), 0)
    for epoch in range(N_EPOCHS):
        manifest = replace(manifest, epoch=epoch)
        told = reports(manifest, rng)
        for count in (count for report in told for count in report.groups):
            outputs[count.group] += count.matches
            touched[count.group] = epoch if count.rows else touched[count.group]
        manifest = decider.decide(manifest, [], told, 0.0)
        if has_controller and controller.is_due(epoch):
            assert policy.seen[epoch] == {group: (outputs[group], touched[group]) for group in outputs}
        now = [one for one in decider.decisions if one.epoch == epoch]
        outputs |= {one.group: 0.0 for made in now for one in made.instructions if isinstance(one, Spill)}
        if has_controller or has_budget:
            assert (manifest.notes.measures.outputs, manifest.notes.measures.touched) == (outputs, touched)
        assert not manifest.notes.controller.outputs
    assert set(policy.seen) == ({e for e in range(N_EPOCHS) if controller.is_due(e)} if has_controller else set())


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**32))
def test_splits_and_merges_lose_no_result_and_no_last_tuple(seed: int) -> None:
    rng, policy = np.random.default_rng(seed), Restless(seed, n_changes=6)
    directory, n_slots, total = Directory.of(N_GROUPS, N_SLOTS), N_SLOTS, 0.0
    measures = GroupMeasures()
    for epoch in range(N_EPOCHS):
        counts = [GroupCount(group.id, 1, int(rng.integers(9))) for group in directory.groups if rng.random() < 0.5]
        total += sum(count.matches for count in counts)
        measures = measures.counted(counts, directory, epoch)
        view = View(epoch, 0.0, directory, (), {}, 0.0, 0.0, False, measures)
        view = replace(view, slots=tuple(view.with_slot().slots * n_slots))
        (asked,) = policy.suggest(view, Memory(), rng)
        before = directory
        directory, n_slots = apply(directory, n_slots, asked.instructions)
        measures = measures.carried(before, directory)
        assert measures.outputs.keys() == measures.touched.keys() == directory.by_id.keys()
        assert sum(measures.outputs.values()) == pytest.approx(total)
        assert max(measures.touched.values()) == epoch or not counts


def test_halves_share_buddies_add_up_and_a_pushed_group_begins_anew() -> None:
    whole = Directory.of(2, 1)
    halves = whole.split(0)
    measures = GroupMeasures({0: 3, 1: 4}, {0: 8.0, 1: 5.0})
    split = measures.carried(whole, halves)
    assert split == GroupMeasures({0: 3, 2: 3, 1: 4}, {0: 4.0, 2: 4.0, 1: 5.0})
    assert split.carried(halves, whole) == measures
    assert split.carried(halves, halves.merge(0).merge(0)) == GroupMeasures({0: 4}, {0: 13.0})
    assert measures.begun_anew([1]) == GroupMeasures({0: 3, 1: 4}, {0: 8.0, 1: 0.0})
