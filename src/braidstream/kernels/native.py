"""The inner loops as compiled code: what NumPy does in several passes over whole arrays, in one, by Numba.

Everything here is also in NumPy, beside its callers, and means the same (`kernels.loops` chooses between them; tests
compare both). Numba compiles a function once for each installation and keeps the code on disk, beside this file or, if
that is read-only, in the user's cache; after that importing this file takes the time of loading it.

Invariants: no function allocates more than its results and working space of the size of its input; positions are never
outside of the arrays, whatever these hold.

Cost: sorting O(n) for hashes that are spread, O(n log n) for runs of close ones that are not in the order of time;
matching O(needles log(build / needles) + pairs), by galloping; the others one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types

__all__ = [
    "between",
    "dealt",
    "hash_longs",
    "hash_texts",
    "marks",
    "matched",
    "members",
    "ordered",
    "spans",
    "unmatched",
]

F = TypeVar("F", bound=Callable[..., Any])

_I64, _U64, _FLAG = types.int64, types.uint64, types.boolean
_READ_I64, _READ_U64, _READ_U16, _READ_U8 = (
    types.Array(kind, 1, "C", readonly=True) for kind in (_I64, _U64, types.uint16, types.uint8)
)
_NEW_I64, _NEW_U64 = types.Array(_I64, 1, "C"), types.Array(_U64, 1, "C")

_DIGIT = 11
"""Bits of a hash that one pass deals by: its counts fit the first cache."""
_FEW = 24
"""A run of close hashes of so many rows is sorted by insertion."""


def _compiled(result: Any, *arguments: Any) -> Callable[[F], F]:
    made: Callable[[F], F] = numba.njit(result(*arguments), cache=True, nogil=True, error_model="numpy")
    return made


@_compiled(types.void, _READ_U64, _READ_I64, _NEW_I64, _NEW_I64)
def _merge_sort(hashes: Any, times: Any, rows: Any, spare: Any) -> None:
    """Sort `rows` by their (hash, time), stably."""
    n, width = len(rows), 1
    while width < n:
        begin = 0
        while begin < n:
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right, at = begin, middle, begin
            while left < middle and right < end:
                a, b = rows[left], rows[right]
                if hashes[b] < hashes[a] or (hashes[b] == hashes[a] and times[b] < times[a]):
                    spare[at] = b
                    right += 1
                else:
                    spare[at] = a
                    left += 1
                at += 1
            while left < middle:
                spare[at] = rows[left]
                left, at = left + 1, at + 1
            while right < end:
                spare[at] = rows[right]
                right, at = right + 1, at + 1
            begin += 2 * width
        rows[:n] = spare[:n]
        width *= 2


@_compiled(types.void, _READ_U64, _READ_I64, _NEW_I64, _NEW_I64, _I64, _I64)
def _sort_run(hashes: Any, times: Any, order: Any, spare: Any, begin: Any, end: Any) -> None:
    """Sort a run of the order: by insertion if it is short or nearly sorted, else by merging."""
    budget = 8 * (end - begin) if end - begin > _FEW else _FEW * _FEW
    for i in range(begin + 1, end):
        row = order[i]
        h, t, at = hashes[row], times[row], i
        while at > begin:
            other = order[at - 1]
            if hashes[other] < h or (hashes[other] == h and times[other] <= t):
                break
            order[at] = other
            at -= 1
            budget -= 1
        order[at] = row
        if budget < 0:
            _merge_sort(hashes, times, order[begin:end], spare[begin:end])
            return


@_compiled(_NEW_I64, _READ_U64, _READ_I64)
def ordered(hashes: Any, times: Any) -> Any:
    """The order of rows by (hash, time), of equal ones by place: two passes by 22 leading bits, then run by run."""
    n = len(hashes)
    order, spare = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    if n == 0:
        return order
    least, most = hashes[0], hashes[0]
    for i in range(1, n):
        h = hashes[i]
        least, most = min(least, h), max(most, h)
    shift, digit = np.uint64(0), np.uint64(_DIGIT)
    while (most - least) >> shift >= np.uint64(1 << 2 * _DIGIT):
        shift += np.uint64(1)
    mask = np.uint64((1 << _DIGIT) - 1)
    low, high = np.zeros((1 << _DIGIT) + 1, dtype=np.int64), np.zeros((1 << _DIGIT) + 1, dtype=np.int64)
    for i in range(n):
        d = (hashes[i] - least) >> shift
        low[(d & mask) + np.uint64(1)] += 1
        high[(d >> digit) + np.uint64(1)] += 1
    for b in range(1 << _DIGIT):
        low[b + 1] += low[b]
        high[b + 1] += high[b]
    for i in range(n):
        b = ((hashes[i] - least) >> shift) & mask
        spare[low[b]] = i
        low[b] += 1
    for i in range(n):
        row = spare[i]
        b = ((hashes[row] - least) >> shift) >> digit
        order[high[b]] = row
        high[b] += 1
    begin = 0
    while begin < n:
        d, end = (hashes[order[begin]] - least) >> shift, begin + 1
        while end < n and (hashes[order[end]] - least) >> shift == d:
            end += 1
        if end - begin > 1:
            _sort_run(hashes, times, order, spare, begin, end)
        begin = end
    return order


@_compiled(_I64, _READ_U64, _I64, _U64)
def _reached(build: Any, begin: Any, wanted: Any) -> Any:
    """The first place from `begin` on whose value is at least `wanted`: steps that double, then bisection."""
    n = len(build)
    if begin >= n or build[begin] >= wanted:
        return begin
    low, step = begin, 1
    while low + step < n and build[low + step] < wanted:
        low += step
        step *= 2
    high = min(low + step, n)
    while low + 1 < high:
        middle = (low + high) >> 1
        if build[middle] < wanted:
            low = middle
        else:
            high = middle
    return high


@_compiled(_I64, _READ_U64, _READ_I64, _I64, _I64)
def _in_time(build: Any, times: Any, begin: Any, first: Any) -> Any:
    """The first row from `begin` on that is of another hash or not before a time; within a hash times ascend."""
    n, h = len(build), build[begin]
    if times[begin] >= first:
        return begin
    low, step = begin, 1
    while low + step < n and build[low + step] == h and times[low + step] < first:
        low += step
        step *= 2
    high = min(low + step, n)
    while low + 1 < high:
        middle = (low + high) >> 1
        if build[middle] == h and times[middle] < first:
            low = middle
        else:
            high = middle
    return high


@_compiled(_NEW_U64, _READ_U64)
def marks(build: Any) -> Any:
    """Which hashes may be among ascending ones: the least, how far to shift what a hash is above it, and bits by that.

    16 bits a row: of the hashes that are not there one in sixteen or so is told to be. In the order of the hashes, so
    that who asks for ascending ones reads on.
    """
    n = len(build)
    least = build[0]
    span, shift = build[n - 1] - least, np.uint64(0)
    while span >> shift >= np.uint64(16 * n):
        shift += np.uint64(1)
    found = np.zeros(3 + np.int64((span >> shift) >> np.uint64(6)), dtype=np.uint64)
    found[0], found[1] = least, shift
    for i in range(n):
        bit = (build[i] - least) >> shift
        found[np.uint64(2) + (bit >> np.uint64(6))] |= np.uint64(1) << (bit & np.uint64(63))
    return found


@_compiled(_FLAG, _READ_U64, _U64)
def _is_absent(marked: Any, h: Any) -> Any:
    """Whether a hash is not among those that were marked, as far as the marks tell; without marks, no."""
    if len(marked) == 0:
        return False
    bit = (h - marked[0]) >> marked[1]
    word = np.uint64(2) + (bit >> np.uint64(6))
    return word >= np.uint64(len(marked)) or (marked[word] >> (bit & np.uint64(63))) & np.uint64(1) == np.uint64(0)


@_compiled(_I64, _READ_U64, _READ_I64, _READ_U64, _READ_U64, _READ_I64, _READ_I64, _NEW_I64, _NEW_I64, _NEW_I64)
def matched(
    build: Any,
    times: Any,
    marked: Any,
    needles: Any,
    low: Any,
    high: Any,
    place: Any,
    out_needles: Any,
    out_rows: Any,
) -> Any:
    """Pairs of needles and rows of `build` with the same hash and a time in [low, high]: as many as there is room for.

    Hashes ascend in both, times within a hash. `place` says where to go on: (needle, row, row within the run or -1);
    when the needle is past the last one, that was all.
    """
    n_build, n_needles, room = len(build), len(needles), len(out_needles)
    n = 0
    i, j, at = place[0], place[1], place[2]
    while i < n_needles:
        h = needles[i]
        if _is_absent(marked, h):
            i += 1
            continue
        if j < n_build and build[j] < h:
            j = _reached(build, j, h)
        if j >= n_build:
            i = n_needles
            break
        if build[j] != h:
            i = _reached(needles, i, build[j])
            continue
        if at < 0:
            at = _in_time(build, times, j, low[i])
        last = high[i]
        while at < n_build and build[at] == h and times[at] <= last:
            if n == room:
                place[0], place[1], place[2] = i, j, at
                return n
            out_needles[n], out_rows[n] = i, at
            n += 1
            at += 1
        at = -1
        i += 1
    place[0], place[1], place[2] = i, j, -1
    return n


@_compiled(_I64, _READ_U64, _READ_I64, _READ_U64, _READ_U64, _READ_I64, _READ_I64, _NEW_I64)
def unmatched(build: Any, times: Any, marked: Any, needles: Any, low: Any, high: Any, left: Any) -> Any:
    """Of the needles at `left` (ascending) those without a row of `build` of their hash and a time in [low, high].

    They are moved to the front of `left`; their number. Hashes ascend in both, times within a hash.
    """
    n_build = len(build)
    n = j = 0
    for k in range(len(left)):
        i = left[k]
        h = needles[i]
        left[n] = i
        if _is_absent(marked, h):
            n += 1
            continue
        if j < n_build and build[j] < h:
            j = _reached(build, j, h)
        if j < n_build and build[j] == h:
            at = _in_time(build, times, j, low[i])
            if at < n_build and build[at] == h and times[at] <= high[i]:
                continue
        n += 1
    return n


@_compiled(types.void, _READ_U64, _READ_I64, _READ_U64, _READ_I64, _READ_I64, _NEW_I64, _NEW_I64)
def spans(build: Any, times: Any, needles: Any, low: Any, high: Any, start: Any, stop: Any) -> None:
    """For each needle the rows of `build` with its hash and a time in [low, high]: from `start` to before `stop`.

    Hashes ascend in both, times within a hash.
    """
    n_build = len(build)
    j = 0
    for i in range(len(needles)):
        h = needles[i]
        if j < n_build and build[j] < h:
            j = _reached(build, j, h)
        first = last = j
        if j < n_build and build[j] == h:
            first = last = _in_time(build, times, j, low[i])
            if first < n_build and build[first] == h:
                last = _in_time(build, times, first, high[i] + 1)
        start[i], stop[i] = first, last


@_compiled(_I64, _READ_I64, _I64, _I64, _NEW_I64)
def between(values: Any, low: Any, high: Any, out_rows: Any) -> Any:
    """The places of values in [low, high): their number; there is room for all."""
    n = 0
    for i in range(len(values)):
        out_rows[n] = i
        n += low <= values[i] < high
    return n


@_compiled(_I64, _READ_U64, _READ_U64, _NEW_I64)
def members(build: Any, wanted: Any, out_rows: Any) -> Any:
    """The rows of `build` whose hash is among `wanted`, both ascending: their number; there is room for all."""
    n_build, n_wanted = len(build), len(wanted)
    n = i = j = 0
    while i < n_wanted and j < n_build:
        h, own = wanted[i], build[j]
        if own == h:
            out_rows[n] = j
            n += 1
            j += 1
        elif own < h:
            j = _reached(build, j, h)
        else:
            i = _reached(wanted, i, own)
    return n


@_compiled(_NEW_I64, _READ_U16, _NEW_I64)
def dealt(slots: Any, ends: Any) -> Any:
    """The rows in the order of their slots, which are below len(ends); `ends` says where each slot's rows end."""
    n, n_slots = len(slots), len(ends)
    begins = np.zeros(n_slots + 1, dtype=np.int64)
    for i in range(n):
        begins[slots[i] + 1] += 1
    for slot in range(n_slots):
        begins[slot + 1] += begins[slot]
        ends[slot] = begins[slot + 1]
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        slot = slots[i]
        order[begins[slot]] = i
        begins[slot] += 1
    return order


_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


@_compiled(_U64, _U64, _U64)
def _rotated(value: Any, bits: Any) -> Any:
    return (value << bits) | (value >> (np.uint64(64) - bits))


@_compiled(_U64, _U64)
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@_compiled(_U64, _U64, _U64)
def _mixed(h: Any, word: Any) -> Any:
    word = _rotated(word * _P2, np.uint64(31)) * _P1
    return _rotated(h ^ word, np.uint64(27)) * _P1 + _P4


@_compiled(_NEW_U64, _READ_I64, _READ_U64)
def hash_longs(values: Any, seeds: Any) -> Any:
    """XXH64 of 8-byte numbers; one seed for all, or one for each."""
    n, is_one = len(values), len(seeds) == 1
    hashes = np.empty(n, dtype=np.uint64)
    for i in range(n):
        seed = seeds[0] if is_one else seeds[i]
        hashes[i] = _avalanche(_mixed(seed + _P5 + np.uint64(8), np.uint64(values[i])))
    return hashes


@_compiled(_U64, _READ_U8, _I64, _I64)
def _word(data: Any, at: Any, width: Any) -> Any:
    word = np.uint64(0)
    for k in range(width):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@_compiled(_NEW_U64, _READ_U8, _READ_I64, _READ_U64)
def hash_texts(data: Any, offsets: Any, seeds: Any) -> Any:
    """XXH64 of values of any width: value i is data[offsets[i] : offsets[i + 1]]."""
    n, is_one = len(offsets) - 1, len(seeds) == 1
    hashes = np.empty(n, dtype=np.uint64)
    for i in range(n):
        seed = seeds[0] if is_one else seeds[i]
        at, end = offsets[i], offsets[i + 1]
        h = seed + _P5
        if end - at >= 32:
            a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while at + 32 <= end:
                a = _rotated(a + _word(data, at, 8) * _P2, np.uint64(31)) * _P1
                b = _rotated(b + _word(data, at + 8, 8) * _P2, np.uint64(31)) * _P1
                c = _rotated(c + _word(data, at + 16, 8) * _P2, np.uint64(31)) * _P1
                d = _rotated(d + _word(data, at + 24, 8) * _P2, np.uint64(31)) * _P1
                at += 32
            h = _rotated(a, np.uint64(1)) + _rotated(b, np.uint64(7))
            h += _rotated(c, np.uint64(12)) + _rotated(d, np.uint64(18))
            for lane in (a, b, c, d):
                h = (h ^ (_rotated(lane * _P2, np.uint64(31)) * _P1)) * _P1 + _P4
        h += np.uint64(end - offsets[i])
        while at + 8 <= end:
            h = _mixed(h, _word(data, at, 8))
            at += 8
        if at + 4 <= end:
            h = _rotated(h ^ (_word(data, at, 4) * _P1), np.uint64(23)) * _P2 + _P3
            at += 4
        while at < end:
            h = _rotated(h ^ (np.uint64(data[at]) * _P5), np.uint64(11)) * _P1
            at += 1
        hashes[i] = _avalanche(h)
    return hashes
