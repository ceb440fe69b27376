"""The heavy keys of a flow as people see them: values instead of hashes, their shares, and their grids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from braidstream.control.heavy import Tracker
from braidstream.kernels.families import dimensions_of, is_unkeyed_family, shown_dimension
from braidstream.kernels.stripes import store_of
from braidstream.model.grids import Grid
from braidstream.state.manifest import Manifest

__all__ = ["HeavyKey", "explain_heavy_keys", "heavy_keys_of"]


@dataclass(frozen=True)
class HeavyKey:
    """A key with a grid."""

    key: str
    """Its value, where that is known; else its hash."""
    share: float
    """Its part of all tuples of the stores that share the grid, as tracked."""
    counts: Mapping[str, int]
    """Its tuples in each store, as tracked."""
    dims: tuple[int, ...]
    slots: tuple[int, ...]
    """The slot of each cell."""
    is_all: bool = False
    """Whether it is the one key of joins without an equality."""

    @property
    def shape(self) -> str:
        """Its grid for people, such as 2x4."""
        return "x".join(map(str, self.dims))


def heavy_keys_of(manifest: Manifest) -> tuple[HeavyKey, ...]:
    """The keys that have a grid now, the most frequent first."""
    if not manifest.grids:
        return ()
    trackers = {name: tracker.unasked() for name, tracker in manifest.notes.heavy.trackers.items()}
    made = [_heavy_key(grid, trackers) for grid in manifest.grids]
    return tuple(sorted(made, key=lambda key: -key.share))


def explain_heavy_keys(manifest: Manifest) -> Iterator[str]:
    """A line for each heavy key."""
    for key in heavy_keys_of(manifest):
        counts = ", ".join(f"{shown_dimension(name)} {count:,}" for name, count in key.counts.items())
        n_slots = len(set(key.slots))
        over = f"over {n_slots} slot{'s' * (n_slots != 1)}"
        if key.is_all:
            yield f"  join without an equality: all rows ({counts}), grid {key.shape} {over}"
            continue
        yield f"  heavy key {key.key}: {key.share:.1%} of the tuples ({counts}), grid {key.shape} {over}"


def _heavy_key(grid: Grid, trackers: Mapping[str, Tracker]) -> HeavyKey:
    stores = dict.fromkeys(store_of(name) for name in dimensions_of(grid.family))
    own = {name: trackers[name] for name in stores if name in trackers}
    counts = {name: tracker.estimates([grid.hash])[0] for name, tracker in own.items()}
    labels = [label for tracker in own.values() if (label := tracker.labels.get(grid.hash))]
    total = sum(tracker.rows for tracker in own.values())
    shown = grid.label or (labels[0] if labels else f"with hash {grid.hash:016x}")
    share, is_all = sum(counts.values()) / total if total else 0.0, is_unkeyed_family(grid.family)
    return HeavyKey(shown, share, counts, grid.dims, grid.slots, is_all)
