"""What tasks of an epoch are given, and what they read of the manifest: routing tasks its routes, slots their sections.

The same for all slots, so it is sent once; what differs is in the slot's section. A worker reads the manifest of an
epoch once for all tasks that it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from braidstream.kernels.biclique import Biclique
from braidstream.kernels.measures import AggregatePlan
from braidstream.kernels.routing import Routes, SlotTable
from braidstream.model.stores import Branch, Join, Store
from braidstream.slot.section_writing import Merging
from braidstream.state import adoption
from braidstream.state.cells import heavy_keys
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.staging import Staging

__all__ = ["EpochTask", "read_manifest", "routes_of"]


@dataclass(frozen=True)
class EpochTask:
    """What every slot's task of an epoch is given."""

    root: str
    run: str
    """Unique for each start of a flow, so that a worker process that outlives it does not trust its cache."""
    epoch: int
    stores: tuple[Store, ...]
    branches: tuple[Branch, ...]
    joins: tuple[Join, ...]
    staging: Mapping[str, Staging]
    late: Mapping[str, Staging]
    merging: Merging | None = None
    """How slots merge segments; None: they do not."""
    suspended: frozenset[str] = frozenset()
    """Joins that produce nothing in this epoch."""
    deferred: Mapping[str, int] = field(default_factory=dict)
    """Joins that now produce what they did not since an epoch."""
    pending: str | None = None
    """Set, and another each time: the task reads the manifest that the epoch has reached, not the one before it."""
    aggregates: tuple[AggregatePlan, ...] = ()
    delays_us: Mapping[str, int] = field(default_factory=dict)
    """Of the streams that define the watermark."""
    idle: tuple[str, ...] = ()
    """Of these streams, those that the watermark does not wait for unless they speak."""
    reached: int | None = None
    """The watermark after the epoch, once the driver knows it."""
    tracks: bool = False
    """Whether slots report their frequent keys."""
    adoptions: tuple[adoption.Adoption, ...] = ()
    shed: frozenset[str] = frozenset()
    """Stores whose rows may be shed: their sample is stored apart, and results are counted."""
    ends: bool = False
    """Whether nothing comes after the epoch: its watermark is then `END`."""
    durable: bool = False
    """Whether what a task writes is on the disk before it reports it."""
    piece_bytes: int | None = None
    """What a batch of results may take, and by which a worker gives memory back. None: it does not matter."""
    handover: str | None = None
    """Where slots hand large envelopes over to those of the next stage, if all are on one machine."""

    def manifest(self) -> Manifest:
        """The manifest that defines routing and state for this task."""
        if self.pending is None:
            return read_manifest(self.root, self.epoch - 1, self.run)
        return read_manifest(self.root, self.epoch, f"{self.run}:{self.pending}", pending=True)


@lru_cache(maxsize=4)
def read_manifest(root: str, epoch: int, run: str, pending: bool = False) -> Manifest:
    """The manifest of an epoch as tasks need it, cached in the worker process for one run of the flow."""
    del run
    return Manifest.read(Files(root), epoch, pending=pending, whole=False)


def routes_of(manifest: Manifest) -> Routes:
    """Where rows go in the epoch after a manifest."""
    regions = manifest.directory.regions.items()
    tables = {stage: SlotTable(region.depth, region.slots[region.table()]) for stage, region in regions}
    subgroups = manifest.notes.biclique
    biclique = None if subgroups is None else Biclique(manifest.n_slots, subgroups)
    return Routes(tables, manifest.n_slots, manifest.watermark, heavy_keys(manifest), biclique)
