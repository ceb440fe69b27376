"""Gives slots a known amount of work, and makes one executor slow, for tests of the controller.

    BRAIDSTREAM_SLOW=FILE:FACTOR     the first executor that makes FILE is the slow one: its slots take FACTOR times as
                                     long as they otherwise would
    BRAIDSTREAM_WORK=MICROSECONDS    every row that reaches a slot costs so much more, on every executor

Both are slept, so they cost no processor: executors that share a machine, even a busy one, then differ by what the
test says and little else. The environment of the executors is read once. Cost while unset: one comparison.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["VARIABLE", "WORK_VARIABLE", "slow_down"]

VARIABLE = "BRAIDSTREAM_SLOW"
WORK_VARIABLE = "BRAIDSTREAM_WORK"
_setting = os.environ.get(VARIABLE, "")
_row_s = float(os.environ.get(WORK_VARIABLE) or 0) / 1e6


def slow_down(executor: str, busy_s: float, n_rows: int) -> None:
    """Sleep as long as this executor would have taken longer for an epoch's work."""
    if not _setting and not _row_s:
        return
    work_s = n_rows * _row_s
    time.sleep((busy_s + work_s) * _factor(executor) - busy_s)


def _factor(executor: str) -> float:
    if not _setting:
        return 1.0
    file, _, factor = _setting.rpartition(":")
    marker = Path(file)
    try:
        with marker.open("x") as made:
            made.write(executor)
    except FileExistsError:
        pass
    return float(factor) if marker.read_text() == executor else 1.0
