"""Makes one executor slow, for tests of the controller.

`BRAIDSTREAM_SLOW=FILE:FACTOR` in the executors' environment: the first executor that makes FILE is the slow one, and
each of its slots takes FACTOR times as long. Cost while unset: one comparison.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["VARIABLE", "slow_down"]

VARIABLE = "BRAIDSTREAM_SLOW"
_setting = os.environ.get(VARIABLE, "")


def slow_down(executor: str, busy_s: float) -> None:
    """Sleep as long as the slow executor would have taken longer."""
    if not _setting:
        return
    file, _, factor = _setting.rpartition(":")
    marker = Path(file)
    try:
        with marker.open("x") as made:
            made.write(executor)
    except FileExistsError:
        pass
    if marker.read_text() == executor:
        time.sleep(busy_s * (float(factor) - 1))
