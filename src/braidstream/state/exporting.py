"""The live state of a checkpoint as Parquet: `braid export`. It only reads.

    OUT/R[k]/0000000012-0-....parquet      the rows of one segment that are live
    OUT/R[k]/...

One folder a store, with the columns that its stream's queries need under the users' names, its keys, and `__t`, the
event time. Keys that were not stored, because their hash tells them, are computed back from it. So the rows of a store
can be read as a stream again, to start anew from (docs/runbook.md).
Each row is there once, also one of a heavy key, which cells hold several times. Rows that have expired, were shed, or
were taken over by another segment are left out. What is no stream (intermediate results, summaries of aggregates) is
exported in the engine's form.

Cost: one pass over the state, a segment at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import InputError
from braidstream.kernels.hashing import unhashed_keys
from braidstream.kernels.join import gather
from braidstream.kernels.rows import HASH, KEY, MARK, MASK, TIME, U64, Rows, stored_name, user_name
from braidstream.kernels.stripes import split_code, use_name
from braidstream.model.parts import Segment
from braidstream.state.cells import Cells, is_unit
from braidstream.state.files import Files
from braidstream.state.filters import filter_of, sift
from braidstream.state.manifest import Manifest
from braidstream.state.segments import FOREVER, open_segment, owned_rows

__all__ = ["export", "live_rows"]

_INNER = re.compile(f"{HASH}|{MASK}|{MARK}|{KEY}[0-9]+")
_KEYED = re.compile(r"[^\[]*\[(?P<keys>.*)\](@\d+)?")
_PLAIN = re.compile(r"CAST\(`(?P<name>(?:[^`]|``)+)` AS (?P<kind>[^)]*\)?)\)")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w\[\], .=-]")


def export(files: Files, manifest: Manifest, out: Path, told: Callable[[int, int], object]) -> dict[str, int]:
    """Write all live rows below a new folder; gives the rows of each store, by its folder."""
    _refuse(files, out)
    segments, counts = manifest.segments, dict[str, int]()
    for at, segment in enumerate(segments):
        told(at, len(segments))
        rows = live_rows(files, manifest, segment)
        table = shown(rows, segment.store, _hashes(rows, manifest, segment))
        folder = _UNSAFE.sub("_", segment.store)
        counts[folder] = counts.get(folder, 0) + table.num_rows
        _write(table, out / folder, f"{Path(segment.name).stem}.parquet")
    told(len(segments), len(segments))
    return counts


def _write(table: pa.Table, folder: Path, name: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name)
    except OSError as error:
        wrong = f"{folder} cannot be written: {error.strerror or str(error).splitlines()[0]}"
        raise InputError(wrong, "a folder that may be written", "choose another one with --out") from None


def _refuse(files: Files, out: Path) -> None:
    """Refuse a folder that is there, one of the checkpoint's own, and an address, which a `Path` is not."""
    fix = "choose another one with --out"
    if _ADDRESS.match(str(out)):
        raise InputError(f"{out} is no local folder", "a path on this machine", f"{fix}, and copy it then")
    if files.has_renames and out.resolve().is_relative_to(Path(files.path("")).resolve()):
        raise InputError(f"{out} is in the checkpoint", "a folder of its own", fix)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already", "a folder that is new or empty", fix)


def live_rows(files: Files, manifest: Manifest, segment: Segment) -> Rows:
    """The rows of a segment that are live, each once."""
    rows = open_segment(files, segment)
    if segment.store.startswith("node "):
        return rows
    if segment.parts:
        rows = owned_rows(rows, segment, manifest.directory.groups)
    elif not is_unit(segment.cells[0][0]):
        codes = np.array(sorted(_counted(manifest, segment)), dtype=np.uint64)
        rows = rows.take(gather(rows, codes, None, None))
    window = None if segment.deadline >= FOREVER else segment.deadline - segment.newest
    is_held = any(part.generation for part in segment.parts)
    alive = None if is_held else rows.alive(manifest.watermark, window)
    if alive is not None and not alive.all():
        rows = Rows(rows.table.filter(pa.array(alive)))
    return sift(rows, segment, filter_of(manifest))


def _counted(manifest: Manifest, segment: Segment) -> Iterator[int]:
    """The codes of cells that together have every row of the segment's store once."""
    layouts = Cells(manifest).layouts
    for code, _ in segment.cells:
        grid, cell = split_code(code)
        dimension = use_name(segment.store, segment.use)
        if segment.use == 0 and cell in layouts[grid].counted_cells(dimension):
            yield code


def _hashes(rows: Rows, manifest: Manifest, segment: Segment) -> U64:
    """Of the keys; rows in cells have the codes of these instead."""
    if not segment.cells or is_unit(segment.cells[0][0]):
        return rows.hashes
    layouts = Cells(manifest).layouts
    codes, at = np.unique(rows.hashes, return_inverse=True)
    return np.array([layouts[split_code(code)[0]].hash for code in codes.tolist()], dtype=np.uint64)[at]


def shown(rows: Rows, store: str, hashes: U64) -> pa.Table:
    """Under the users' names; the event time as one."""
    table = rows.table
    if store.startswith("node "):
        return table
    kept = [name for name in table.column_names if not _INNER.fullmatch(name)]
    keys = {name: column for name, column in _keys(rows, store, hashes).items() if stored_name(name) not in kept}
    table = table.select(kept)
    if TIME in kept and pa.types.is_integer(table.schema.field(TIME).type):
        times = table.column(TIME).cast(pa.timestamp("us", "UTC"))
        table = table.set_column(kept.index(TIME), TIME, times)
    table = table.rename_columns([name if name == TIME else user_name(name) for name in kept])
    for name, values in keys.items():
        table = table.append_column(name, values)
    return table


def _keys(rows: Rows, store: str, hashes: U64) -> dict[str, pa.Array | pa.ChunkedArray]:
    """The keys of a store that are columns of its stream, in the type that they are compared in."""
    found = _KEYED.fullmatch(store)
    texts = [] if found is None else list(_PLAIN.finditer(found["keys"]))
    if found is None or ", ".join(one[0] for one in texts) != found["keys"]:
        return {}
    names = [one["name"].replace("``", "`") for one in texts]
    stored = [name for name in rows.table.column_names if re.fullmatch(f"{KEY}[0-9]+", name)]
    if stored:
        return {n: rows.table.column(f"{KEY}{i}") for i, n in enumerate(names)} if len(stored) == len(names) else {}
    values = unhashed_keys(hashes, texts[0]["kind"]) if len(texts) == 1 else None
    return {} if values is None else {names[0]: values}
