"""The frequent keys among a slot's new rows: rows are sorted by hash, so run lengths are the counts.

Cost: a pass over the hashes; what is reported is bounded, whatever the number of keys.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from braidstream.kernels.hashing import unhashed
from braidstream.kernels.rows import Rows, key_columns, text_at
from braidstream.model.packed_numbers import Column
from braidstream.model.reports import Frequent
from braidstream.model.stores import Store

__all__ = ["label_of", "largest_runs"]

MOST = 256
"""Keys reported for a store, at most."""
_LABELLED = 16
_SHARE = 1 << 14
"""Keys with less than one row in so many are not reported: they are far from heavy at any number of slots."""
_CAST = re.compile(r"CAST\(`(?P<column>[^`]+)` AS (?P<type>\w+)\)$")


def largest_runs(rows: Rows, store: Store, most: int = MOST) -> Frequent:
    """The most frequent keys of new rows of a store."""
    starts = np.append(0, np.flatnonzero(rows.hashes[1:] != rows.hashes[:-1]) + 1)
    counts = np.diff(np.append(starts, len(rows)))
    large = np.flatnonzero(counts > max(1, len(rows) // _SHARE))
    large = large[np.argsort(-counts[large], kind="stable")[:most]]
    rest = np.delete(counts, large)
    hashes = rows.hashes[starts[large]]
    labels = {}
    for hash_, at in zip(hashes[:_LABELLED].tolist(), starts[large[:_LABELLED]].tolist(), strict=True):
        label = label_of(rows.table, at, hash_, store)
        if label:
            labels[hash_] = label
    left_out = int(rest.max()) if len(rest) else 0
    return Frequent(len(rows), Column.of(hashes), Column.of(counts[large]), left_out, labels)


def label_of(table: pa.Table, row: int, hash_: int, store: Store) -> str:
    """The key's value as people know it: from the stored keys or columns, or from a hash that can be undone."""
    own = key_columns(table)
    if own:
        return ", ".join(text_at(table.column(name), row) for name in own[: len(store.key)])
    found = [_CAST.match(key) for key in store.key]
    names = [match["column"] if match else key for match, key in zip(found, store.key, strict=True)]
    if all(name in table.column_names for name in names):
        return ", ".join(text_at(table.column(name), row) for name in names)
    kind = found[0]["type"] if len(found) == 1 and found[0] else ""
    value = unhashed(hash_, kind)
    return "" if value is None else str(value)
