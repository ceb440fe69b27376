"""Marks of files that never change (`loops.marks`), kept by a process from epoch to epoch.

Marking looks at all rows of a file. So it is done once, when as many needles have asked for them as make it worth that;
an epoch costs what its needles cost, however much is stored.

Invariant: marks depend on nothing but the file they are named after. Cost: two bytes a row, at most `_ROOM` bytes,
those that were used last; what was pushed out is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from braidstream.kernels.loops import UNMARKED

__all__ = ["kept_marks"]

U64 = npt.NDArray[np.uint64]

_ROOM = 64 << 20
_WORTH = 8
"""Marking a row costs so much less than searching for a needle."""
_MOST = 1 << 14
"""Files whose needles are counted; older ones begin anew."""

_kept: OrderedDict[str, U64] = OrderedDict()
_asked: OrderedDict[str, int] = OrderedDict()


def kept_marks(name: str, n_rows: int, n_needles: int, make: Callable[[], U64]) -> U64:
    """The marks of a file, or none if they are not worth it yet; without a name, of rows that nobody sees again."""
    if not name:
        return make() if n_needles * _WORTH >= n_rows else UNMARKED
    if name in _kept:
        _kept.move_to_end(name)
        return _kept[name]
    asked = _asked.pop(name, 0) + n_needles
    if asked * _WORTH < n_rows:
        _asked[name] = asked
        if len(_asked) > _MOST:
            _asked.popitem(last=False)
        return UNMARKED
    found = _kept[name] = make()
    while len(_kept) > 1 and sum(marks.nbytes for marks in _kept.values()) > _ROOM:
        _kept.popitem(last=False)
    return found
