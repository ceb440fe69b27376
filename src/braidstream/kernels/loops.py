"""Which inner loops run: compiled ones (`kernels.native`, by Numba), or those of NumPy beside their callers.

Compiled ones run where Numba is installed and an array has enough rows to pay for the call; NumPy's otherwise, and
where `BRAIDSTREAM_KERNELS=numpy` asks for them. `BRAIDSTREAM_KERNELS=native` takes compiled ones for arrays of any
size. Nothing else depends on the choice: both give the same rows (tests compare them), and a worker that has no Numba
works beside ones that have it.

Cost: loading takes about half a second in a process, once, at the first large array or in `load`; Spark's workers are
forked from a process that has it where that can be had (`spark.session`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import numpy.typing as npt

__all__ = [
    "UNMARKED",
    "VARIABLE",
    "between",
    "load",
    "marks",
    "matches",
    "members",
    "missing",
    "native",
    "only",
    "spans",
    "unmatched",
]

VARIABLE = "BRAIDSTREAM_KERNELS"
_ENOUGH = 1 << 10
"""Rows from which on compiled loops are taken: for fewer NumPy is as quick, and most short runs need no more."""

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

UNMARKED: U64 = np.empty(0, dtype=np.uint64)
"""No marks: every hash may be there."""
_forced: str | None = None


def native(n_rows: int) -> ModuleType | None:
    """The compiled loops, if they are to be used for arrays of so many rows."""
    choice = _forced or os.environ.get(VARIABLE, "")
    if choice == "numpy" or (choice != "native" and n_rows < _ENOUGH):
        return None
    return _loaded()[0]


def load() -> None:
    """Load the compiled loops now, if they are to be used at all; compiles them the first time."""
    native(_ENOUGH)


def missing() -> str:
    """Why this process has no compiled loops, for people; empty where it has, as far as is known without loading."""
    if (_forced or os.environ.get(VARIABLE, "")) == "numpy":
        return f"as {VARIABLE} says"
    if _loaded.cache_info().currsize:
        return _loaded()[1]
    return "" if "numba" in sys.modules or find_spec("numba") else "Numba is not installed"


@contextmanager
def only(choice: str) -> Iterator[None]:
    """Until the end of the block: "native" or "numpy" loops for arrays of any size."""
    global _forced  # noqa: PLW0603  (tests; a process has one choice)
    before, _forced = _forced, choice
    try:
        yield
    finally:
        _forced = before


@lru_cache(maxsize=1)
def _loaded() -> tuple[ModuleType | None, str]:
    """The compiled loops, or why there are none: Numba is missing, or has nowhere to keep what it compiled."""
    try:
        from braidstream.kernels import native as made  # noqa: PLC0415  (half a second)
    except ImportError as error:
        return None, f"Numba is not there: {error}"
    except Exception as error:  # whatever a compiler may say: results do not depend on it
        return None, f"Numba does not work here: {error}"
    return made, ""


def members(build: U64, wanted: U64) -> I64 | None:
    """The rows of `build` whose hash is among `wanted`, both ascending; None where NumPy is to find them."""
    made = native(len(build) + len(wanted))
    if made is None:
        return None
    rows = np.empty(len(build), dtype=np.int64)
    return rows[: made.members(build, wanted, rows)]


def between(values: I64, low: int, high: int) -> I64:
    """The places of values in [low, high)."""
    made = native(len(values))
    if made is None:
        return np.flatnonzero((values >= low) & (values < high))
    rows = np.empty(len(values), dtype=np.int64)
    return rows[: made.between(values, low, high, rows)]


def marks(build: U64) -> U64:
    """What tells of most hashes that are not among ascending ones that they are not; nothing where NumPy is to search.

    Few needles have a partner in each of many segments of a long window: the others need no search.
    """
    made = native(len(build)) if len(build) else None
    return UNMARKED if made is None else made.marks(build)


def unmatched(
    build: U64, times: I64, needles: U64, low: I64, high: I64, left: I64, marked: U64 = UNMARKED
) -> I64 | None:
    """Of the needles at `left` those without a row of their hash and a time in [low, high]; None: NumPy is to."""
    made = native(len(build) + len(left))
    if made is None:
        return None
    kept = left.copy()
    return kept[: made.unmatched(build, times, marked, needles, low, high, kept)]


def spans(build: U64, times: I64, needles: U64, low: I64, high: I64) -> tuple[I64, I64] | None:
    """For each needle where the rows of its hash and a time in [low, high] begin and end; None: NumPy is to."""
    made = native(len(build) + len(needles))
    if made is None:
        return None
    start, stop = np.empty(len(needles), dtype=np.int64), np.empty(len(needles), dtype=np.int64)
    made.spans(build, times, needles, low, high, start, stop)
    return start, stop


def matches(
    build: U64, times: I64, needles: U64, low: I64, high: I64, limit: int, marked: U64 = UNMARKED
) -> Iterator[tuple[I64, I64]] | None:
    """Pairs (needle, row) of one hash with a time in [low, high], at most `limit` at a time; None: NumPy is to."""
    made = native(len(build) + len(needles))
    return None if made is None else _matches(made, build, times, needles, low, high, limit, marked)


def _matches(
    made: ModuleType, build: U64, times: I64, needles: U64, low: I64, high: I64, limit: int, marked: U64
) -> Iterator[tuple[I64, I64]]:
    place = np.array([0, 0, -1], dtype=np.int64)
    while place[0] < len(needles):
        out_needles, out_rows = np.empty(limit, dtype=np.int64), np.empty(limit, dtype=np.int64)
        n = made.matched(build, times, marked, needles, low, high, place, out_needles, out_rows)
        if n:
            yield out_needles[:n], out_rows[:n]
