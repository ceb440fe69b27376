"""D-CAPE's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from braidstream.control import overflow
from braidstream.control.policies import spilling
from braidstream.control.policies.balance import MemoryBalance
from braidstream.control.policies.disk import ForcedSpilling
from braidstream.lab.papers import dcape_moves_spark, dcape_spark
from braidstream.lab.papers.mutations import Broken, mutation
from braidstream.lab.sim.dcape import one_run, settings_of_paper

__all__: list[str] = []


@mutation("dcape fig6")
def a_tuple_goes_to_every_machine(broken: Broken) -> None:
    """3.1: the splitters send every tuple everywhere, and every machine looks at it."""
    work = one_run._Run._work

    def everywhere(self: one_run._Run, now_s: float, slots: Any, arrived: Any, found: Any) -> list[float]:
        return work(self, now_s, slots, arrived * len(self.machines), found)

    broken.set(one_run._Run, "_work", everywhere)


@mutation("dcape fig7")
def a_machine_is_never_full(broken: Broken) -> None:
    """3.5: a machine has all the memory that it wants."""
    broken.set(one_run._Run, "_is_full", lambda *_: False)


@mutation("dcape fig9", "dcape fig10")
def the_share_to_push_is_forgotten(broken: Broken) -> None:
    """4.4: 30% of the state is pushed, whatever share is asked for."""
    whole = settings_of_paper._settings
    broken.set(settings_of_paper, "_settings", lambda point: whole(replace(point, share=0.3)))


@mutation("dcape fig9-spark", "dcape fig10-spark")
def the_engine_forgets_the_share_to_push(broken: Broken) -> None:
    """4.4: the engine pushes 30% of a slot's state, whatever share is asked for."""
    broken.set(dcape_spark, "_shares", dcape_spark._shares.__wrapped__)  # what was run is remembered
    whole = spilling.choose_spills
    broken.set(overflow, "choose_spills", lambda *some, **options: whole(*some, **{**options, "share": 0.3}))


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
    broken.set(dcape_moves_spark, "_lines", dcape_moves_spark._lines.__wrapped__)  # what was run is remembered
    broken.set(MemoryBalance, "suggest", lambda *_: [])


@mutation("dcape fig21", "dcape fig21-spark")
def nothing_is_forced_to_disk(broken: Broken) -> None:
    """6: active-disk does no more than lazy-disk."""
    broken.set(ForcedSpilling, "suggest", lambda *_: [])
