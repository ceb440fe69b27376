"""A manifest that is missing between those that are kept: what it alone refers to looks like an orphan, and is none.

A ledger names the files that its manifest does not need any more and the one before does. So without one in the middle
nobody knows all files of the epoch before it. Roots come one for each epoch and go from the oldest on; whatever dies,
there is no gap, unless a hand or a disk has made it. Where there is one nothing is deleted, until the file is put back
or the epochs before the gap are not kept any more, but for what a crash has left beside Spark's log, which is no
manifest's. A flow goes on meanwhile: its state is that of the last manifest.

Cost: a look at the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from braidstream.errors import DamagedState
from braidstream.state.files import Files
from braidstream.state.manifest import manifest_name

__all__ = ["gap"]


def gap(files: Files, epochs: Sequence[int]) -> DamagedState | None:
    """What to say of the first manifest that is missing between these, which ascend; None where none is."""
    for before, after in pairwise(epochs):
        if after != before + 1:
            wrong = f"this manifest is missing: those of epochs {before} and {after} are there"
            return DamagedState(files.path(manifest_name(before + 1)), wrong)
    return None
