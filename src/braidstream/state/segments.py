"""Segments: immutable Arrow IPC files of rows sorted by (hash, time).

Writing one gives its entry for the manifest, with the rows of each group that it holds. Opening one maps it into memory
and checks that it is what the manifest says; what is missing or damaged is named, and nothing is changed.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.control.directory import Group
from braidstream.errors import DamagedState
from braidstream.kernels.rows import Rows
from braidstream.state.files import Files
from braidstream.state.manifest import Part, Segment

__all__ = ["FOLDER", "live_hashes", "open_segment", "owned_rows", "write_segment"]

FOLDER = "segments"


def write_segment(files: Files, rows: Rows, store: str, epoch: int, slot: int, groups: Sequence[Group]) -> Segment:
    """Write rows of one store as a segment. `groups` are the groups of the slot, in the order of the hash space."""
    name = f"{FOLDER}/{epoch:010d}-{slot}-{uuid.uuid4().hex}.arrow"
    table = rows.table.combine_chunks()
    with files.create(name) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    cuts = rows.cuts(np.array([group.low for group in groups], dtype=np.uint64))
    parts = [Part(g.prefix, g.depth, n) for g, n in zip(groups, np.diff(cuts).tolist(), strict=True) if n]
    times = rows.times
    size = files.size(name) or 0
    return Segment(name, store, len(rows), size, int(times.min()), int(times.max()), epoch, tuple(parts))


def open_segment(files: Files, segment: Segment) -> Rows:
    """The rows of a segment, mapped into memory."""
    try:
        table = pa.ipc.open_file(files.map(segment.name)).read_all()
    except FileNotFoundError:
        raise DamagedState(files.path(segment.name), "this segment is missing") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedState(files.path(segment.name), f"this segment is damaged ({error})") from None
    if table.num_rows != segment.rows:
        raise DamagedState(
            files.path(segment.name), f"this segment holds {table.num_rows} rows, its manifest says {segment.rows}"
        )
    return Rows(table)


def owned_rows(rows: Rows, segment: Segment, groups: Sequence[Group]) -> Rows:
    """Only the rows that are live and belong to the groups; no copy when that is all of them."""
    lows = [group.low for group in groups]
    own = (p for p in segment.parts if (at := bisect_right(lows, p.low)) and p.low <= groups[at - 1].high)
    ranges = _joined(sorted(r for r in (_range(rows, p.low, p.high) for p in own) if r[1] > r[0]))
    if ranges == [(0, len(rows))]:
        return rows
    slices = [rows.table.slice(begin, end - begin) for begin, end in ranges]
    return Rows(pa.concat_tables(slices).combine_chunks() if slices else rows.table.slice(0, 0))


def live_hashes(segment: Segment, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The hashes (ascending) that a segment's live parts cover: what was compacted away is found in another segment."""
    if segment.is_whole or not len(hashes):
        return hashes
    lows, highs = (np.array([getattr(p, end) for p in segment.parts], dtype=np.uint64) for end in ("low", "high"))
    begin, end = np.searchsorted(hashes, lows, "left"), np.searchsorted(hashes, highs, "right")
    return np.concatenate([hashes[:0], *(hashes[b:e] for b, e in zip(begin, end, strict=True))])


def _range(rows: Rows, low: int, high: int) -> tuple[int, int]:
    bounds = np.array([low, high], dtype=np.uint64)
    begin = int(np.searchsorted(rows.hashes, bounds[0], side="left"))
    return begin, int(np.searchsorted(rows.hashes, bounds[1], side="right"))


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in ranges:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined
