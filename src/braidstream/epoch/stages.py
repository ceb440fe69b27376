"""The stages of a flow in figures and words: how the groups of each are spread, and what an epoch did at it.

Every stage has groups of its own (`model.directory`), which the controller moves, splits and spills apart from those
of other stages. Cost: O(groups + parts) an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from braidstream.control.regridding import imbalance
from braidstream.epoch.single_grids import explain_single_grids
from braidstream.kernels.families import shown_dimension
from braidstream.model.reports import SlotReport
from braidstream.model.stores import Store, shown_stage, shown_store
from braidstream.state.manifest import Manifest

__all__ = ["StageProgress", "explain_stages", "stages_of"]


@dataclass(frozen=True)
class StageProgress:
    """One stage of an epoch."""

    stage: str
    """Its number, from 1; "aggregates" for that of enumerated composites."""
    groups: int
    slots: int
    """Slots that hold groups of it after the epoch."""
    rows: int
    """Rows that reached it."""
    matches: int
    """Composites that it made."""
    state_rows: int
    """Rows that its groups hold after the epoch."""
    busy_s: float
    """Of all its slots."""
    balance: float
    """Largest over mean of its slots' busy times."""


def stages_of(after: Manifest, reports: Sequence[SlotReport]) -> tuple[StageProgress, ...]:
    """The stages of the epoch before a manifest, the first one first."""
    stored: dict[int, int] = dict.fromkeys(after.directory.regions, 0)
    for (stage, _), figures in after.figures().items():
        if stage in stored:
            stored[stage] += figures.rows - figures.cell_rows
    return tuple(_stage(after, stage, stored[stage], reports) for stage in sorted(after.directory.regions))


def _stage(after: Manifest, stage: int, stored: int, reports: Sequence[SlotReport]) -> StageProgress:
    own = [report for report in reports if report.stage == stage]
    busy = [0.0] * max([after.n_slots, *(report.slot + 1 for report in own)])
    for report in own:
        busy[report.slot] += report.busy_s
    region = after.directory.region(stage)
    return StageProgress(
        shown_stage(stage),
        len(region),
        len(np.unique(region.slots)),
        sum(report.rows for report in own),
        sum(report.matches for report in own),
        stored,
        sum(busy),
        imbalance(busy),
    )


def explain_stages(stores: Sequence[Store], manifest: Manifest | None, n_groups: int, n_slots: int) -> Iterator[str]:
    """A line for each stage, where there are several: its groups, their slots, and its stores; and for single grids.

    Before the first start these are what it would begin with.
    """
    yield from explain_single_grids(stores, manifest, n_slots)
    stages = sorted({store.stage for store in stores})
    if len(stages) == 1:
        return
    for stage in stages:
        groups = () if manifest is None else manifest.directory.region(stage).groups
        n_used = len({group.slot for group in groups}) if groups else min(n_slots, n_groups)
        n = len(groups) or n_groups
        spread = f"{n} group{'s' * (n != 1)} of its own over {n_used} slot{'s' if n_used != 1 else ''}"
        own = [store.name.removesuffix(f"@{stage}") for store in stores if store.stage == stage]
        names = ", ".join(shown_store(shown_dimension(name)) for name in own)
        yield f"  stage {shown_stage(stage)}: {spread}; {names}"
