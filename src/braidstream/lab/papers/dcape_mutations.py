"""D-CAPE's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from braidstream.control import overflow
from braidstream.control.policies import disk, spilling
from braidstream.control.policies.balance import MemoryBalance
from braidstream.control.policies.disk import ForcedSpilling
from braidstream.lab.papers import dcape_moves_spark, dcape_spark
from braidstream.lab.papers.mutations import Broken, mutation
from braidstream.lab.sim.dcape import one_run
from braidstream.model.directory import Directory
from braidstream.model.parts import Segment
from braidstream.state.manifest import Manifest
from braidstream.state.sections import Entry, Sections

__all__: list[str] = []


@mutation("dcape fig6", "dcape fig7")
def all_groups_are_at_one_machine(broken: Broken) -> None:
    """3.2: the splitters send every tuple to the first machine, however many there are."""
    whole = one_run._placed
    broken.set(one_run, "_placed", lambda placement: whole((0,) * len(placement)))


@mutation("dcape fig9", "dcape fig10", "dcape fig9-spark", "dcape fig10-spark")
def the_share_to_push_is_forgotten(broken: Broken) -> None:
    """4.4: 30% of the state is pushed, whatever share is asked for."""
    whole = spilling.choose_spills
    _choosing(broken, lambda *some, **options: whole(*some, **{**options, "share": 0.3}))


@mutation("dcape fig9", "dcape fig10", "dcape fig9-spark", "dcape fig10-spark")
def nothing_is_pushed(broken: Broken) -> None:
    """4.1: no group is ever chosen to be pushed, however much a machine holds."""
    _choosing(broken, lambda *_, **__: [])


def _choosing(broken: Broken, choose: Callable[..., Any]) -> None:
    """Another choice of what is pushed, in the simulator's policies and in the engine's."""
    broken.set(dcape_spark, "_shares", dcape_spark._shares.__wrapped__)  # what was run is remembered
    for one in (overflow, disk):
        broken.set(one, "choose_spills", choose)


@mutation(
    "dcape fig11",
    "dcape fig12",
    "dcape fig17",
    "dcape fig20",
    "dcape fig11-spark",
    "dcape fig12-spark",
    "dcape fig17-spark",
    "dcape fig20-spark",
)
def productivity_is_turned_around(broken: Broken) -> None:
    """4.3: what gives the most results is pushed first."""
    broken.set(spilling, "_rank", lambda one, *_: (one.bytes / max(one.outputs, 1.0), one.group))


@mutation(
    "dcape fig11",
    "dcape fig12",
    "dcape fig17",
    "dcape fig20",
    "dcape fig11-spark",
    "dcape fig12-spark",
    "dcape fig17-spark",
    "dcape fig20-spark",
)
def productivity_is_drawn_by_lot(broken: Broken) -> None:
    """4.3: any group is pushed."""
    rng = np.random.default_rng(1)
    broken.set(spilling, "_rank", lambda *_: rng.random())


@mutation("dcape fig14", "dcape fig15", "dcape fig16", "dcape fig17", "dcape fig20", "dcape cleanup")
def no_state_is_relocated(broken: Broken) -> None:
    """5.1: the fullest machine keeps all that it has."""
    broken.set(MemoryBalance, "suggest", lambda *_: [])


@mutation("dcape fig14-spark", "dcape fig15-spark", "dcape fig16-spark", "dcape fig17-spark", "dcape fig20-spark")
def the_engine_relocates_nothing(broken: Broken) -> None:
    """5.1: the controller leaves the fullest slot with all that it has."""
    _anew(broken)
    broken.set(MemoryBalance, "suggest", lambda *_: [])


def _anew(broken: Broken) -> None:
    """What figures 14 to 16 have run is remembered."""
    broken.set(dcape_moves_spark, "_line", dcape_moves_spark._line.__wrapped__)


@mutation("dcape fig14-spark", "dcape fig15-spark")
def state_is_copied_when_it_moves(broken: Broken) -> None:
    """5.1: a relocation holds the flow up as long as it would take to copy the state: half a second here."""
    _anew(broken)
    whole = Manifest.fitted

    def slowly(self: Manifest, directory: Directory) -> Manifest:
        time.sleep(0.5)
        return whole(self, directory)

    broken.set(Manifest, "fitted", slowly)


@mutation("dcape fig14-spark", "dcape fig15-spark", "dcape fig16-spark", "dcape fig17-spark")
def state_stays_behind_when_it_moves(broken: Broken) -> None:
    """5.1: new tuples of a group that moves go to the other slot, and what was stored of it is forgotten."""
    _anew(broken)
    whole = Manifest.fitted

    def bare(self: Manifest, directory: Directory) -> Manifest:
        before, after = self.directory.by_id, whole(self, directory)
        moved = {group.id for group in directory.groups if group.id in before and before[group.id].slot != group.slot}

        def left(segment: Segment) -> Segment:
            return replace(segment, parts=tuple(p for p in segment.parts if directory.at(p.low).id not in moved))

        kept = {}
        for key, entry in after.sections.entries().items():
            segments = [one for one in map(left, entry.section.segments) if one.parts or one.cells]
            kept[key] = Entry(section=entry.section.with_segments(segments))
        return replace(after, sections=Sections(kept))

    broken.set(Manifest, "fitted", bare)


@mutation("dcape fig21", "dcape fig21-spark")
def nothing_is_forced_to_disk(broken: Broken) -> None:
    """6: active-disk does no more than lazy-disk."""
    broken.set(ForcedSpilling, "suggest", lambda *_: [])
