"""What equation 1 of D-CAPE 4.2 takes to merge one more generation into a group, term by term and as it is written.

With P the union of the generations before, and P_k the next, there is a term for each stream i:

    (P u P_k) of the streams before i,  P_k of stream i,  P of the streams after it

joined from left to right. So the tuples of a term's first operand *probe*, and what it has joined before its last
operand are *partial* results. All terms but the first begin with the whole merged group: its tuples probe again for
every generation, so with many generations merging takes more than in proportion to the results. (The engine does not
do that. It begins every term with P_k: `kernels.join.composites`.)

Invariant: the last operands give what `composites` gives for the same pools. Cost: O(keys) for each operand; tuples
are counted by key, none is joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braidstream.kernels.join import Pool
from braidstream.kernels.rows import I64, U64, Rows

__all__ = ["Terms", "terms_of"]


@dataclass(frozen=True)
class Terms:
    """For each key: tuples that probe, partial results, and results, those within P_k included."""

    probing: I64
    partial: I64
    formed: I64


def terms_of(pools: Sequence[Pool], keys: U64, is_merged: npt.NDArray[np.bool_]) -> Terms:
    """Merge the new rows of the pools into the stored ones, for those of the ascending keys that are merged."""
    before = [_by_key(pool.stored, keys) for pool in pools]
    after = [_by_key(pool.new, keys) for pool in pools]
    sums = np.zeros((len(pools), len(keys)), dtype=np.int64)
    for source in range(len(pools)):
        joined = is_merged.astype(np.int64)
        for stream in range(len(pools)):
            earlier = before[stream] if stream != source else 0
            joined = joined * (earlier + (after[stream] if stream <= source else 0))
            sums[stream] += joined
    return Terms(sums[0], sums[1:-1].sum(axis=0), sums[-1])


def _by_key(rows: Rows, keys: U64) -> I64:
    return np.bincount(np.searchsorted(keys, rows.hashes), minlength=len(keys)).astype(np.int64)
