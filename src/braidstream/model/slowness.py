"""Gives slots a known amount of work, and makes one executor slow, for tests of the controller and experiments.

    BRAIDSTREAM_SLOW=FILE:FACTOR     the first executor that makes FILE is the slow one: its slots take FACTOR times as
                                     long as they otherwise would
    BRAIDSTREAM_WORK=MICROSECONDS    every row that reaches a slot costs so much more, on every executor;
    BRAIDSTREAM_WORK=ROW:MATCH       and every match that it produces, in microseconds

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
_row_s, _match_s = (float(part or 0) / 1e6 for part in f"{os.environ.get(WORK_VARIABLE, '')}:".split(":")[:2])


def slow_down(executor: str, busy_s: float, n_rows: int, n_matches: int = 0) -> None:
    """Sleep as long as this executor would have taken longer for an epoch's work."""
    if not _setting and not _row_s and not _match_s:
        return
    work_s = n_rows * _row_s + n_matches * _match_s
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
