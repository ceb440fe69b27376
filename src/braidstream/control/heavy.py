"""Frequent keys of a store, over the stream or over its window (SHC 3.2's heavy hitters, tracked on line).

Slots see their new rows sorted by hash, so the run lengths are the counts. Of each epoch a slot reports its few largest
(hash, count) and a bound on every count that it left out (`Frequent`). The driver adds the reports of an epoch to the
sketch of the current *pane*, Apache DataSketches' frequent-items sketch. A window is some panes, so that it forgets;
a question is answered by their merged sketch. Of a pane that is over only the largest counts are kept, to keep the
manifest small.

The error is known: with estimate e of a key's true count n over the panes, |e - n| <= `error`, which adds what the
sketches may have lost, what was cut off panes, and, for each epoch, the largest bound that a slot gave. (A key's new
rows are at one slot in an epoch, or, if it is heavy, reported by its cells in any case; so the bounds of slots do not
add up.) An estimate is the upper bound, exact for a key that was frequent from the start; but where more may have been
lost than was counted it is the lower one, or all keys would look frequent where none is. The sketch has at least 7 p
counters, which keeps its part below N / (2p), the epsilon that SHC allows; never fewer than 4,096, because our rule
weighs matches, to which keys with far fewer tuples contribute.

A window's answer covers the whole panes that it touches: up to one pane more than the window.

A `Tracker` is a value of the manifest; its sketches are base64. Cost: O(entries reported)
an epoch and O(panes x counters) a question, whatever the number of keys.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
from datasketches import frequent_items_error_type, frequent_strings_sketch

from braidstream.model.grids import Candidate
from braidstream.model.numbers import FIRST_SLOT, SlotId
from braidstream.model.reports import Frequent
from braidstream.model.values import Value, changed

__all__ = ["MOST_ENTRIES", "Frequent", "Pane", "Tracker", "candidates", "sketch_size"]

MOST_ENTRIES = 256
"""How many keys a slot reports for a store and an epoch, at most."""
_PANES = 4
"""Panes in a window: it forgets in steps of a quarter."""
_SMALLEST = 12
"""The least log2 of the sketch's counters."""
_KEPT = 512
"""Counts kept of a pane that is over."""
_NAME_LENGTH = 16
"""A key is called by the digits of its hash."""
_LABELS = 512
"""Labels kept for people; those of the most frequent keys."""


class Pane(Value, frozen=True):
    """A part of the window: its place in units of the pane's length, its rows, the bound left out, its sketch."""

    at: int
    rows: int
    left_out: int
    sketch: str
    """Base64 of the compressed sketch."""


class Tracker(Value, frozen=True, dict=True):
    """The frequent keys of one store. `window` is in the unit of the clock; None: over the whole stream."""

    window: int | None = None
    lg_size: int = _SMALLEST
    panes: tuple[Pane, ...] = ()
    labels: Mapping[int, str] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, n_slots: int, window: int | None = None) -> Tracker:
        """An empty tracker whose sketches err by at most N / (2p)."""
        return cls(window, sketch_size(n_slots))

    def seen(self, reports: Sequence[Frequent], clock: int) -> Tracker:
        """The tracker after an epoch's reports. `clock` is the epoch's time (its newest), in the window's unit."""
        at = 0 if self.window is None else clock // self._pane_length
        if not reports:
            return changed(self, panes=tuple(pane for pane in self.panes if self._is_live(pane, at)))
        kept = tuple(self._trimmed(pane) for pane in self.panes if pane.at != at and self._is_live(pane, at))
        old = next((pane for pane in self.panes if pane.at == at), None)
        sketch = _decoded(old.sketch) if old else frequent_strings_sketch(self.lg_size)
        update, names = sketch.update, _names(reports)
        counts = (count for report in reports for count in report.counts.array.tolist())
        for begin, count in zip(range(0, len(names), _NAME_LENGTH), counts, strict=True):
            update(names[begin : begin + _NAME_LENGTH], count)
        rows = sum(report.rows for report in reports) + (old.rows if old else 0)
        left_out = max(report.left_out for report in reports) + (old.left_out if old else 0)
        panes = (*kept, Pane(at, rows, left_out, _encoded(sketch)))
        return changed(self, panes=tuple(sorted(panes, key=lambda pane: pane.at)), labels=self._labelled(reports))

    @property
    def rows(self) -> int:
        """N: the rows of the live panes."""
        return sum(pane.rows for pane in self.panes)

    def largest(self, n: int) -> list[tuple[int, int]]:
        """The `n` most frequent keys with their estimated counts, largest first."""
        return _counts(self._merged)[:n]

    def estimates(self, keys: Sequence[int]) -> list[int]:
        """The estimated count of each key; 0 for one that is not tracked."""
        merged = self._merged
        return [_estimate(int(merged.get_lower_bound(_name(key))), _lost(merged)) for key in keys]

    @property
    def error(self) -> int:
        """No estimate is further than this from the truth, in rows."""
        return _lost(self._merged) + sum(pane.left_out for pane in self.panes)

    @property
    def epsilon(self) -> float:
        """The error as a share of all rows."""
        return self.error / self.rows if self.rows else 0.0

    def unasked(self) -> Tracker:
        """The same without the merged sketch that answers were read from: what is kept holds no memory of C++."""
        return changed(self)

    def resized(self, n_slots: int) -> Tracker:
        """The tracker for another number of slots: new panes get sketches of the size it needs."""
        return changed(self, lg_size=max(self.lg_size, sketch_size(n_slots)))

    @property
    def _pane_length(self) -> int:
        return max(1, (self.window or 0) // _PANES)

    def _is_live(self, pane: Pane, now: int) -> bool:
        """Whether the window that ends in pane `now` touches it."""
        if self.window is None:
            return True
        return (pane.at + 1) * self._pane_length > now * self._pane_length - self.window

    def _trimmed(self, pane: Pane) -> Pane:
        """The pane with its largest counts only; what is cut off is counted as left out."""
        sketch = _decoded(pane.sketch)
        if sketch.num_active_items <= _KEPT:
            return pane
        counts = _counts(sketch)
        small = frequent_strings_sketch(self.lg_size)
        for key, count in counts[:_KEPT]:
            small.update(_name(key), count)
        left_out = pane.left_out + _lost(sketch) + counts[_KEPT][1]
        return changed(pane, left_out=left_out, sketch=_encoded(small))

    @cached_property
    def _merged(self) -> frequent_strings_sketch:
        merged = frequent_strings_sketch(self.lg_size)
        for pane in self.panes:
            merged.merge(_decoded(pane.sketch))
        return merged

    def _labelled(self, reports: Sequence[Frequent]) -> Mapping[int, str]:
        """The labels, with the newest added; when there are too many, those of frequent keys stay."""
        labels = dict(self.labels)
        for report in reports:
            labels.update(report.labels)
        if len(labels) <= _LABELS:
            return labels
        frequent = [key for key, _ in self.largest(_LABELS // 2)]
        newest = [key for report in reports for key in report.labels]
        return {key: labels[key] for key in [*frequent, *newest][:_LABELS] if key in labels}


def sketch_size(n_slots: int) -> int:
    """The log2 of the sketch's counters, so that its error is at most N / (2p)."""
    lg_size = _SMALLEST
    while frequent_strings_sketch.get_epsilon_for_lg_size(lg_size) > 1 / (2 * n_slots):
        lg_size += 1
    return lg_size


def candidates(
    trackers: Sequence[Tracker],
    n: int,
    slot_of: Callable[[int], SlotId] = lambda _hash: FIRST_SLOT,
    also: Iterable[int] = (),
) -> list[Candidate]:
    """The `n` most frequent keys over a family's stores, and those of `also` (keys with a grid), with their counts.

    `slot_of` gives the slot of a hash's group in the region of their stage, where the key is while it is light. A key
    that a store does not list may have rows there, if any were left out: it is taken to have one, as the foreign keys
    of a primary key do, which no slot reports (SHC 4.3.2).
    """
    needed = set(also)
    ordered = sorted({key for tracker in trackers for key, _ in tracker.largest(n)} | needed)
    columns = [[count or min(tracker.error, 1) for count in tracker.estimates(ordered)] for tracker in trackers]
    labels = {key: label for tracker in trackers for key, label in tracker.labels.items()}
    found = [
        Candidate(key, tuple(map(float, counts)), slot_of(key), labels.get(key, ""))
        for key, *counts in zip(ordered, *columns, strict=True)
    ]
    found.sort(key=lambda one: (one.hash not in needed, -one.weight, one.hash))
    return found[: max(n, len(needed))]


def _name(key: int) -> str:
    return f"{key:016x}"


def _names(reports: Sequence[Frequent]) -> str:
    """The names of all keys of the reports, one behind the other."""
    return b"".join(report.hashes.unsigned.astype(">u8").tobytes() for report in reports).hex()


def _counts(sketch: frequent_strings_sketch) -> list[tuple[int, int]]:
    """The tracked keys with their estimates, largest first."""
    found, lost = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES, 0), _lost(sketch)
    counts = [(int(item[0], 16), _estimate(int(item[2]), lost)) for item in found]
    return sorted(counts, key=lambda entry: (-entry[1], entry[0]))


def _estimate(counted: int, lost: int) -> int:
    """A count from what was counted for certain and what may have been lost before."""
    return counted + lost if counted > lost else counted


def _lost(sketch: frequent_strings_sketch) -> int:
    """What the sketch may have lost of any key: the upper bound of one that it does not have."""
    return int(sketch.get_upper_bound(""))


def _encoded(sketch: frequent_strings_sketch) -> str:
    return base64.b64encode(zlib.compress(sketch.serialize(), 6)).decode()


def _decoded(text: str) -> frequent_strings_sketch:
    return frequent_strings_sketch.deserialize(zlib.decompress(base64.b64decode(text)))
