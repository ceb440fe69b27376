"""Where decisions are owed: ranges of hashes whose rows of a store wait for a clean-up (`slot.closing`).

A row of an outer, anti or as-of join is decided when the watermark passes its window, if all its partners are active.
Where some were pushed it is not: from the push on nothing is decided there, and the clean-up decides what has closed
since. So what has to be remembered is a watermark for a range of hashes: until it rows were decided in time.

A range is of hashes, not of a group: groups move, split and merge without anything changing here.

Invariant: ranges ascend and are apart; neighbours with one watermark are one. Where a range is noted for a store, rows
of it or of what it is joined with are in inactive generations there, which hold all others (`state.generations`).
Cost: O(ranges + groups) for each change, O(log ranges) a look; there is at most one range for each group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from braidstream.model.directory import Range

__all__ = ["Owed", "noted", "owed_in", "span_of", "without"]

Span = tuple[int, int, int]
"""A stage, and the first and last hash in it."""
Owed = tuple[int, int, int, int | None]
"""A span, and the watermark until which its rows were decided; None: there was none yet."""


def span_of(group: Range) -> Span:
    """The hashes of a group."""
    return group.stage, group.first, group.last


def noted(known: Sequence[Owed], groups: Iterable[Range], watermark: int | None) -> tuple[Owed, ...]:
    """With groups of which nothing is decided from a watermark on; where that was so before, it stays as it was."""
    new = [(*span_of(group), watermark) for group in groups]
    return _joined(sorted([*known, *_outside(new, sorted(one[:3] for one in known))], key=lambda one: one[:3]))


def without(known: Sequence[Owed], groups: Iterable[Range]) -> tuple[Owed, ...]:
    """Without groups that nothing is owed for any more."""
    return tuple(_outside(known, sorted(span_of(group) for group in groups)))


def owed_in(known: Mapping[str, Sequence[Owed]], store: str, span: Span) -> Iterator[tuple[int, int, int | None]]:
    """The ranges of a store within a span: first and last hash, and the watermark until which rows were decided."""
    stage, low, high = span
    ranges = known.get(store, ())
    begin = max(bisect_right(ranges, (stage, low), key=lambda one: one[:2]) - 1, 0)
    for own, first, last, watermark in ranges[begin : bisect_right(ranges, (stage, high), key=lambda one: one[:2])]:
        if own == stage and last >= low:
            yield max(first, low), min(last, high), watermark


def _outside(ranges: Iterable[Owed], spans: Sequence[Span]) -> Iterator[Owed]:
    """What of the ranges lies in none of the spans, which ascend and are apart."""
    lows = [span[:2] for span in spans]
    for stage, first, last, watermark in ranges:
        begin, at = first, max(bisect_right(lows, (stage, first)) - 1, 0)
        while at < len(spans) and lows[at] <= (stage, last):
            own, low, high = spans[at]
            at += 1
            if own == stage and high >= begin:
                if low > begin:
                    yield stage, begin, low - 1, watermark
                begin = high + 1
        if begin <= last:
            yield stage, begin, last, watermark


def _joined(ranges: Sequence[Owed]) -> tuple[Owed, ...]:
    found: list[Owed] = []
    for one in ranges:
        if found and found[-1][0] == one[0] and found[-1][2] + 1 == one[1] and found[-1][3] == one[3]:
            found[-1] = (*found[-1][:2], *one[2:])
        else:
            found.append(one)
    return tuple(found)
