"""Routing and packing: from a batch of a stream to blobs of rows for each slot.

A row goes to the slot of its group, which the directory gives by the stage of its store and the leading bits of its key
hash; rows of a heavy key are repeated to the cells of its grid (`kernels.stripes`); rows without a key (NULL equals
nothing) go nowhere, or, where a join puts them out, to a store of their own; rows older than the watermark are late.
What a task read is counted in a `Tally`, which travels with the rows, so that it is counted exactly once however often
Spark runs the task.

Invariant: an envelope holds at most `sizes.ENVELOPE_BYTES`, or one row: Spark and the JVM hold it as one value.
Cost: one radix sort by slot and one `take` for each store, in vectorized NumPy and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels import sizes
from braidstream.kernels.biclique import PROBE, STORED, Biclique
from braidstream.kernels.loops import native
from braidstream.kernels.rows import HASH, I64, MASK, TIME, take
from braidstream.kernels.sizes import cut, cuts, table_bytes, whole
from braidstream.kernels.stripes import HeavyKeys, stripes
from braidstream.model.columns import FAILED
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.model.reports import Tally
from braidstream.model.stores import Branch, Store

__all__ = [
    "ENVELOPE_SCHEMA",
    "Routes",
    "SlotTable",
    "Tally",
    "deal",
    "deal_light",
    "envelopes_to_batch",
    "pack",
    "route",
    "spread_by_time",
    "unpack",
]

ENVELOPE_SCHEMA = pa.schema([("slot", pa.int32()), ("kind", pa.int32()), ("blob", pa.binary())])
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples lie evenly."""
_SMALL = 1 << 18
"""Bytes of envelopes that are put into one record batch."""


@dataclass(frozen=True)
class SlotTable:
    """Where the hashes of one stage go: the slot for each value of the `depth` leading bits, as the directory says."""

    depth: int
    slots: npt.NDArray[np.int32]

    def slot_of(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
        """The slot of each hash."""
        if self.depth == 0:
            return np.full(len(hashes), self.slots[0], dtype=np.uint16)
        leading = (hashes >> np.uint64(64 - self.depth)).astype(np.int64)
        return self.slots.astype(np.uint16)[leading]


@dataclass(frozen=True)
class Routes:
    """Where hashes go."""

    tables: Mapping[int, SlotTable]
    """By the stage of a store."""
    n_slots: int
    watermark: int | None
    heavy: Mapping[str, HeavyKeys] = field(default_factory=dict)
    """The grids of heavy keys, by family."""
    biclique: Biclique | None = None
    """Where the router is a biclique: for all rows, instead of directory and grids."""


def route(table: pa.Table, branch: Branch, routes: Routes) -> tuple[list[Envelope], Tally]:
    """Split one batch of a stream into envelopes."""
    times = _times(table)
    untimed = None if times.null_count == 0 else np.asarray(times.is_null().to_numpy(zero_copy_only=False))
    clock = np.asarray(times.fill_null(0).to_numpy(zero_copy_only=False))
    late = np.zeros(len(clock), dtype=np.bool_) if routes.watermark is None else clock < routes.watermark
    if untimed is not None:
        late |= untimed
    n_late = int(late.sum())
    envelopes: list[Envelope] = []
    n_failed = 0
    if FAILED in branch.late_columns:
        table, aside = _failed(table, late)
        n_failed = int(aside.sum()) - n_late
    else:
        aside = late
    if (n_late or n_failed) and branch.late_columns:
        rows = whole(table.select(list(branch.late_columns)).filter(pa.array(aside)))
        envelopes += _packed(0, Kind(Content.LATE, branch.index), rows)
    keyless = 0
    indexed = 0
    for store in branch.stores:
        packed, missing, stored = _route_store(table, clock, late if n_late else None, store, routes)
        envelopes += packed
        keyless = max(keyless, missing)
        indexed += stored
    seen = clock if untimed is None else clock[~untimed]
    newest = int(seen.max()) if len(seen) else None
    n_untimed = 0 if untimed is None else int(untimed.sum())
    behind = clock[late if untimed is None else late & ~untimed]
    oldest = int(behind.min()) if len(behind) else None
    counts = (table.num_rows, indexed, n_late, keyless, newest, n_untimed, oldest)
    return envelopes, Tally(branch.stream, *counts, failed=n_failed)


def _failed(table: pa.Table, late: npt.NDArray[np.bool_]) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """The rows that are late or failed; what failed of a late row does not matter, for no query takes it."""
    told = pc.if_else(pa.array(late), pa.scalar(None, pa.string()), table.column(FAILED).cast(pa.string()))
    at = table.column_names.index(FAILED)
    aside = late | np.asarray(told.is_valid())
    return table.set_column(at, FAILED, told), aside


def _times(table: pa.Table) -> pa.Array:
    column = table.column(TIME)
    column = column.cast(pa.timestamp("us", column.type.tz)) if pa.types.is_timestamp(column.type) else column
    return column.cast(pa.int64()).combine_chunks()


def _route_store(
    table: pa.Table, clock: npt.NDArray[np.int64], late: npt.NDArray[np.bool_] | None, store: Store, routes: Routes
) -> tuple[list[Envelope], int, int]:
    hashes = table.column(store.branch_column(HASH)).combine_chunks()
    dropped = late
    missing, skipped = 0, None
    if hashes.null_count:
        null = np.asarray(hashes.is_null().to_numpy(zero_copy_only=False))
        if (failed := store.branch_column(FAILED)) in table.column_names:  # not rows without a key: no rows at all
            fails = np.asarray(table.column(failed))
            dropped, null = fails if dropped is None else dropped | fails, null & ~fails
        missing = int(null.sum())
        dropped = null if dropped is None else dropped | null
        hashes = hashes.fill_null(0)
    if store.filters and not store.takes_all:
        skipped = np.asarray(table.column(store.branch_column(MASK))) == 0
        dropped = skipped if dropped is None else dropped | skipped
    own: dict[str, Any] = {name: table.column(store.branch_column(name)) for name in store.own_columns}
    own[HASH], own[TIME] = hashes, pa.array(clock)
    rows = pa.table({**own, **{name: table.column(name) for name in store.columns}})
    slots = routes.tables[store.stage].slot_of(np.asarray(hashes).view(np.uint64))
    if dropped is not None:
        slots[dropped] = routes.n_slots
    envelopes, n_routed = _deal_heavy_and_light(rows, np.asarray(hashes).view(np.uint64), slots, store, routes)
    if missing and store.keyless is not None:
        wanted = null if late is None else null & ~late
        more, n_more = _deal_keyless(table, clock, wanted if skipped is None else wanted & ~skipped, store, routes)
        envelopes, n_routed = envelopes + more, n_routed + n_more
    return envelopes, missing, n_routed


def spread_by_time(clock: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hashes for rows without a key, by their times."""
    return clock.view(np.uint64) * _SPREAD


def _deal_keyless(
    table: pa.Table, clock: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_], store: Store, routes: Routes
) -> tuple[list[Envelope], int]:
    """Rows without a key that some join puts out, spread by their times: they meet nothing, wherever they are."""
    assert store.keyless is not None
    at = np.flatnonzero(wanted)
    hashes = spread_by_time(clock[at])
    names = {name: store.branch_column(name) for name in store.keyless_columns} | {n: n for n in store.columns}
    others = take(table.select(list(names.values())), at).rename_columns(list(names))
    own: dict[str, Any] = {HASH: pa.array(hashes.view(np.int64)), TIME: pa.array(clock[at])}
    rows = pa.table(own | dict(zip(names, others.columns, strict=True)))
    slots = routes.tables[store.stage].slot_of(hashes)
    return _deal(rows, slots, Kind(Content.ROWS, store.keyless), routes.n_slots)


def deal(rows: pa.Table, store: Store, routes: Routes) -> list[Envelope]:
    """Envelopes of a store for rows that carry their key hash, where keys may be heavy."""
    hashes = np.asarray(rows.column(HASH).combine_chunks()).view(np.uint64)
    slots = routes.tables[store.stage].slot_of(hashes)
    return _deal_heavy_and_light(rows, hashes, slots, store, routes)[0]


def deal_light(rows: pa.Table, store: int, stage: int, routes: Routes) -> list[Envelope]:
    """The same for the store of a number at a stage where keys are never heavy."""
    hashes = np.asarray(rows.column(HASH).combine_chunks()).view(np.uint64)
    slots = routes.tables[stage].slot_of(hashes)
    return _deal(rows, slots, Kind(Content.ROWS, store), routes.n_slots)[0]


def _deal_heavy_and_light(
    rows: pa.Table, hashes: npt.NDArray[np.uint64], slots: npt.NDArray[np.uint16], store: Store, routes: Routes
) -> tuple[list[Envelope], int]:
    """One envelope for each slot with rows of groups, and one with rows of cells for each use of the store."""
    if routes.biclique is not None:
        return _deal_biclique(rows, hashes, slots < routes.n_slots, store, routes.biclique)
    heavy = routes.heavy.get(store.family)
    if heavy is None:
        return _deal(rows, slots, Kind(Content.ROWS, store.index), routes.n_slots)
    at, keys = heavy.find(hashes)
    kept = slots[at] < routes.n_slots
    at, keys = at[kept], keys[kept]
    slots[at] = routes.n_slots
    envelopes, n_routed = _deal(rows, slots, Kind(Content.ROWS, store.index), routes.n_slots)
    if len(at):
        for repeated, n_repeated in _deal_heavy(take(rows, at), keys, heavy, store, routes):
            envelopes += repeated
            n_routed += n_repeated
    return envelopes, n_routed


def _deal_heavy(
    rows: pa.Table, keys: I64, heavy: HeavyKeys, store: Store, routes: Routes
) -> Iterator[tuple[list[Envelope], int]]:
    """Rows of heavy keys, repeated; the code of the cell takes the place of the hash."""
    numbers = stripes(rows)
    place, each = rows.column_names.index(HASH), table_bytes(rows)
    for use, dimension in enumerate(store.places):
        index, codes, slots = heavy.spread(keys, numbers, dimension)
        for begin, end in cuts(each[index], sizes.BATCH_BYTES):
            coded = rows.take(pa.array(index[begin:end]))
            coded = coded.set_column(place, HASH, pa.array(codes[begin:end].view(np.int64)))
            yield _deal(coded, slots[begin:end], Kind(Content.CELLS, store.index, use), routes.n_slots)


def _deal_biclique(
    rows: pa.Table, hashes: npt.NDArray[np.uint64], kept: npt.NDArray[np.bool_], store: Store, biclique: Biclique
) -> tuple[list[Envelope], int]:
    """Each row once where it is stored, and once in every unit that it probes."""
    at = np.flatnonzero(kept)
    own, keys, (side,) = take(rows, at), hashes[at], store.places
    homes = biclique.homes(keys, stripes(own), side)
    envelopes, n_routed = _deal(own, homes, Kind(Content.CELLS, store.index, STORED), biclique.n_slots)
    (index, slots), probe = biclique.probes(keys, side), Kind(Content.CELLS, store.index, PROBE)
    for begin, end in cuts(table_bytes(own)[index], sizes.BATCH_BYTES):
        repeated = own.take(pa.array(index[begin:end]))
        probing, n_probing = _deal(repeated, slots[begin:end], probe, biclique.n_slots)
        envelopes, n_routed = envelopes + probing, n_routed + n_probing
    return envelopes, n_routed


def _deal(rows: pa.Table, slots: npt.NDArray[np.uint16], kind: Kind, n_slots: int) -> tuple[list[Envelope], int]:
    """One envelope for each slot, several where rows are large; rows of slot number `n_slots` are dropped."""
    order, ends = _by_slot(slots, n_slots + 1)
    n_routed = int(ends[n_slots - 1])
    sorted_rows = take(rows, order[:n_routed])
    envelopes: list[Envelope] = []
    for slot in range(n_slots):
        begin = int(ends[slot - 1]) if slot else 0
        if ends[slot] > begin:
            envelopes += _packed(slot, kind, sorted_rows.slice(begin, int(ends[slot]) - begin))
    return envelopes, n_routed


def _by_slot(slots: npt.NDArray[np.uint16], n_slots: int) -> tuple[I64, I64]:
    """The rows in the order of their slots, and where those of each slot end."""
    made = native(len(slots))
    if made is not None:
        ends = np.empty(n_slots, dtype=np.int64)
        return made.dealt(slots, ends), ends
    order = np.argsort(slots, kind="stable")  # a radix sort, for 16-bit values
    return order, np.cumsum(np.bincount(slots, minlength=n_slots))


def _packed(slot: int, kind: Kind, rows: pa.Table) -> list[Envelope]:
    return [Envelope(slot, kind, pack(piece)) for piece in cut(rows, sizes.ENVELOPE_BYTES)]


def pack(rows: pa.Table) -> pa.Buffer:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def unpack(blob: pa.Buffer) -> pa.Table:
    """The rows of an Arrow IPC stream, without a copy."""
    return pa.ipc.open_stream(blob).read_all()


def envelopes_to_batch(envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Envelopes as record batches of the exchange: small ones together, because every batch has a fixed cost.

    A large one is a batch of its own, without a copy, so that no batch exceeds Arrow's 2 GB of binary.
    """
    waiting: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        own = len(envelope.blob)
        if own > _SMALL:
            yield _batch([envelope])
            continue
        waiting.append(envelope)
        size += own
        if size > _SMALL:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    blobs = [_binary(envelope.blob) for envelope in envelopes]
    together = blobs[0] if len(blobs) == 1 else pa.concat_arrays(blobs)
    slots = pa.array([envelope.slot for envelope in envelopes], pa.int32())
    kinds = pa.array([envelope.code for envelope in envelopes], pa.int32())
    return pa.RecordBatch.from_arrays([slots, kinds, together], schema=ENVELOPE_SCHEMA)


def _binary(blob: bytes | pa.Buffer) -> pa.Array:
    """A one-element binary array around the blob, without a copy."""
    data = pa.py_buffer(blob) if isinstance(blob, bytes) else blob
    offsets = pa.py_buffer(np.array([0, data.size], dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
