"""The live state of a checkpoint as Parquet: `braid export`. It only reads.

    OUT/R[k]/0000000012-0-....parquet      the rows of one segment that are live
    OUT/R[k]/...

One folder a store, with the columns that its stream's queries need under the users' names, its keys, and `__t`, the
event time. Keys that were not stored, because their hash tells them, are computed back from it. So the rows of a store
can be read as a stream again, to start anew from (docs/runbook.md).
Each row is there once, also one of a heavy key, which cells hold several times. Rows that have expired, were shed, or
were taken over by another segment are left out. What is no stream (intermediate results, summaries of aggregates) is
exported in the engine's form.

What is damaged is left out and told; the rest is exported all the same. An epoch that a running flow retires meanwhile
is not one that is damaged: then nothing is left of the export.

Cost: one pass over the state, a segment at a time.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import DamagedState, InputError, RunError
from braidstream.kernels.hashing import unhashed_keys
from braidstream.kernels.join import gather
from braidstream.kernels.rows import HASH, KEY, MARK, MASK, TIME, U64, Rows, stored_name, user_name
from braidstream.kernels.stripes import split_code, use_name
from braidstream.model.parts import Segment
from braidstream.state.cells import Cells, is_unit
from braidstream.state.files import Files
from braidstream.state.filters import filter_of, sift
from braidstream.state.kept import ledger_of
from braidstream.state.manifest import Manifest
from braidstream.state.sections import merged_segments
from braidstream.state.segments import FOREVER, open_segment, owned_rows

__all__ = ["Exported", "export", "live_rows"]

_INNER = re.compile(f"{HASH}|{MASK}|{MARK}|{KEY}[0-9]+")
_KEYED = re.compile(r"[^\[]*\[(?P<keys>.*)\](@\d+)?")
_PLAIN = re.compile(r"CAST\(`(?P<name>(?:[^`]|``)+)` AS (?P<kind>[^)]*\)?)\)")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w\[\], .=-]")


@dataclass
class Exported:
    """What was written, and what could not be."""

    rows: dict[str, int] = field(default_factory=dict)
    """Of each store, by its folder."""
    damaged: dict[str, DamagedState] = field(default_factory=dict)
    """By path: files whose rows are not in it."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """What is damaged is noted, once for each file."""
        try:
            yield
        except DamagedState as error:
            self.damaged.setdefault(error.path, error)


def export(files: Files, manifest: Manifest, out: Path, told: Callable[[int, int], object]) -> Exported:
    """Write all live rows that can be read below a new folder."""
    _refuse(files, out)
    made = Exported()
    segments = _segments(manifest, made)
    for at, segment in enumerate(segments):
        told(at, len(segments))
        folder = _UNSAFE.sub("_", segment.store)
        with made.noting():
            rows = live_rows(files, manifest, segment)
            table = shown(rows, segment.store, _hashes(rows, manifest, segment))
            _write(table, out / folder, f"{Path(segment.name).stem}.parquet")
            made.rows[folder] = made.rows.get(folder, 0) + table.num_rows
    told(len(segments), len(segments))
    if made.damaged:
        _refuse_retired(files, manifest, [out / folder for folder in made.rows])
    return made


def _segments(manifest: Manifest, made: Exported) -> Sequence[Segment]:
    """All that is live, as far as sections can be read."""
    found = list[Segment]()
    for entry in manifest.sections.entries().values():
        with made.noting():
            found += entry.section.live(manifest.watermark)
    return merged_segments(found)


def _refuse_retired(files: Files, manifest: Manifest, written: Iterable[Path]) -> None:
    """Refuse a manifest that is not kept any more: its files are gone as they should be. What was written goes, too.

    Asked after something was missing: as long as a manifest is kept, all that it needs is there.
    """
    is_kept = manifest.epoch in Manifest.epochs(files)
    if is_kept and ledger_of(files, manifest.epoch) == manifest.ledger:
        return
    for folder in written:
        shutil.rmtree(folder, ignore_errors=True)
    raise RunError(
        f"{files.root}: epoch {manifest.epoch} was {'replaced' if is_kept else 'retired'} while it was exported: "
        "the flow has gone on",
        "an epoch that is kept until the end",
        "export again, with a larger keep in the flow, or stop the flow meanwhile",
    )


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
