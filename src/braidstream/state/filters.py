"""The shedding filter in a manifest: read, applied to the rows of a segment, and to what the manifest says of parts.

The filter is logical until a merge makes it physical. A merge applies to each of its inputs what holds for it, and the
merged segment counts as having arrived with its youngest rows: caps from before were applied then, and those after it
hold for all its rows. So one cap for each piece and segment is enough, and no row needs to know its epoch.

A part's rows are an estimate of those that caps have left, until its segment is merged; floors are accounted by time.
Parts of which nothing lives are dropped at once. Cost: O(parts).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import replace

from braidstream.kernels.rows import Rows
from braidstream.kernels.sampling import sifted
from braidstream.model.dead_rows import Filter
from braidstream.state.manifest import Manifest, Part, Segment

__all__ = ["filter_of", "sift", "taken_in", "thinned"]


def filter_of(manifest: Manifest) -> Filter | None:
    """The filter that holds for the epoch after a manifest; None where nothing was ever shed."""
    return None if manifest.notes.shedding is None else manifest.notes.shedding.filter


def sift(rows: Rows, segment: Segment, filter_: Filter | None) -> Rows:
    """The rows of a segment that live; those of the sample stay and are marked where the filter would drop them."""
    if filter_ is None or filter_.is_empty or segment.store not in filter_.stores:
        return rows
    return sifted(rows, *filter_.arrays(segment.store, segment.epoch, segment.stage), filter_.bits)


def taken_in(rows: Rows, store: str, stage: int, filter_: Filter | None) -> Rows:
    """Of rows that arrive those that are taken; those of the sample are, and are marked where they would not be."""
    if filter_ is None or filter_.takes_all or store not in filter_.stores:
        return rows
    return sifted(rows, *filter_.intakes(stage), filter_.bits)


def thinned(manifest: Manifest, before: Filter, after: Filter, stores: Collection[str]) -> Manifest:
    """The manifest with fewer rows in parts, and without parts that are dead, as the filter changes."""

    def left(segment: Segment) -> Segment:
        if segment.store not in stores:
            return segment
        parts = tuple(p for part in segment.parts if (p := _thinned(segment, part, before, after)) is not None)
        return segment if parts == segment.parts else replace(segment, parts=parts)

    return manifest.mapped(lambda own: tuple(s for s in map(left, own) if s.is_live), list(manifest.sections))


def _thinned(segment: Segment, part: Part, before: Filter, after: Filter) -> Part | None:
    if part.generation:
        return part
    was, now = before.at(part.low), after.at(part.low)
    share = now.cap(segment.epoch)
    left = 0.0 if now.floors.get(segment.store, segment.newest) > segment.newest else share
    if segment.sample:
        stays = 0.5 ** (after.bits - before.bits)
        return part if stays == 1 else replace(part, rows=_rounded(part, segment, stays + (1 - stays) * left))
    if not left:
        return None
    ratio = share / max(was.left(segment.epoch), 1e-12)
    return part if ratio >= 1 else replace(part, rows=_rounded(part, segment, ratio))


def _rounded(part: Part, segment: Segment, ratio: float) -> int:
    """Up or down by chance, so that many small steps do not add up to an error; the same when an epoch is replayed."""
    told = (segment.store, segment.epoch, segment.rows, segment.newest, part.low, part.rows, ratio)
    chance = zlib.crc32(repr(told).encode()) / 2**32
    return max(int(part.rows * ratio + chance), 1)
