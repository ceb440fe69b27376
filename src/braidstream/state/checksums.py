"""CRC-32, and what this process has spent on it: `sealing_s` of an epoch's progress is made of that.

Several threads may count at once (zlib lets others run meanwhile); what they spend is added up. Cost: a lock for each
piece of a megabyte, or each small file.
"""

from __future__ import annotations

import threading
import time
import zlib

__all__ = ["crc32", "seal_seconds"]

_LOCK = threading.Lock()


class _Spent:
    seconds = 0.0


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """The checksum of data after what has `value`."""
    began = time.perf_counter()
    found = zlib.crc32(data, value)
    with _LOCK:
        _Spent.seconds += time.perf_counter() - began
    return found


def seal_seconds() -> float:
    """What this process has spent so far, all threads together."""
    return _Spent.seconds
