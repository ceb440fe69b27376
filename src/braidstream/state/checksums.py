"""Checksums, and what this process has spent on them: `sealing_s` of an epoch's progress is made of that.

Large files (segments, staged results, windows of functions) have xxh3, which takes a pass at the speed of memory;
metadata, a few kilobytes each, has CRC-32, and so have large files of format 2. The number tells which: a CRC-32 has 32
bits, and what is made of xxh3 is 63 bits with the highest set, so it fits a signed column. Both find accidents, and
neither is against somebody who means harm.

Several threads may count at once; what they spend is added up. Cost: a lock for each piece, or each small file.
"""

from __future__ import annotations

import threading
import time
import zlib
from typing import Protocol

import xxhash

__all__ = ["MADE_NOW", "Checksum", "crc32", "seal_seconds", "spend"]

MADE_NOW = 1 << 62
"""Like no other checksum: by the method of today."""
_LOCK = threading.Lock()


class _Spent:
    seconds = 0.0


class _Sum(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def value(self) -> int: ...


class Checksum:
    """The checksum of a large file whose bytes pass piece by piece; `like` another one: by the same method."""

    def __init__(self, like: int = MADE_NOW) -> None:
        self._sum: _Sum = _Xxh3() if like >= MADE_NOW else _Crc32()

    def update(self, data: bytes | memoryview) -> None:
        """Take the next piece."""
        began = time.perf_counter()
        self._sum.update(data)
        spend(time.perf_counter() - began)

    @property
    def value(self) -> int:
        """That of all pieces so far."""
        return self._sum.value()


class _Xxh3:
    def __init__(self) -> None:
        self._state = xxhash.xxh3_64()

    def update(self, data: bytes | memoryview) -> None:
        self._state.update(data)

    def value(self) -> int:
        return MADE_NOW | (self._state.intdigest() & (MADE_NOW - 1))


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = zlib.crc32(data, self._value)

    def value(self) -> int:
        return self._value


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """The CRC-32 of data after what has `value`."""
    began = time.perf_counter()
    found = zlib.crc32(data, value)
    spend(time.perf_counter() - began)
    return found


def spend(seconds: float) -> None:
    """Count what somebody spent for checksums beside counting them."""
    with _LOCK:
        _Spent.seconds += seconds


def seal_seconds() -> float:
    """What this process has spent so far, all threads together."""
    return _Spent.seconds
