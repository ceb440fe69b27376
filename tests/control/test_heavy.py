"""Frequent keys: every estimate is within the known error of the truth, and a window forgets.

pane     0     1     2     3     4     5       a window of 4 panes that ends in pane 5
rows  [ a a | a b | b b | b   |     | c  ]     touches panes 1 to 5: those of pane 0 are forgotten
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.heavy import MOST_ENTRIES, Frequent, Tracker, candidates, sketch_size
from tests.scale import examples

EPOCHS = st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=1, max_size=12)


def reports(keys: Sequence[int], n_slots: int, most: int) -> list[Frequent]:
    """What slots report of an epoch's keys, each key at slot `key % n_slots`, at most `most` entries each."""
    made = []
    for slot in range(n_slots):
        counts = Counter(key for key in keys if key % n_slots == slot).most_common()
        left_out = counts[most][1] if len(counts) > most else 0
        made.append(Frequent.of(sum(n for _, n in counts), tuple(counts[:most]), left_out))
    return made


@given(EPOCHS, st.integers(1, 4), st.integers(1, 5))
@settings(max_examples=examples(100), deadline=None)
def test_no_estimate_is_further_from_the_truth_than_the_error(epochs: list[list[int]], n_slots: int, most: int) -> None:
    tracker = Tracker.of(n_slots)
    for clock, keys in enumerate(epochs):
        tracker = tracker.seen(reports(keys, n_slots, most), clock)
    truth = Counter(key for keys in epochs for key in keys)
    assert tracker.rows == sum(truth.values())
    for key, estimate in zip(range(41), tracker.estimates(range(41)), strict=True):
        assert abs(estimate - truth[key]) <= tracker.error


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 5), max_size=8)), min_size=1, max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_a_window_counts_what_its_panes_hold_and_forgets_the_rest(steps: list[tuple[int, list[int]]]) -> None:
    window, clock, tracker = 8, 0, Tracker.of(2, window=8)
    held: list[tuple[int, int]] = []
    for step, keys in steps:
        clock += step
        tracker = tracker.seen(reports(keys, 2, 9), clock)
        held.extend((clock, key) for key in keys)
    estimates = tracker.estimates(range(6))
    for key, estimate in zip(range(6), estimates, strict=True):
        within = sum(k == key and t >= clock - window for t, k in held)
        with_a_pane_more = sum(k == key and t > clock - window - 2 * window // 4 for t, k in held)
        assert within <= estimate <= with_a_pane_more


@pytest.mark.parametrize("n_slots", [2, 8, 48])
def test_a_hundred_thousand_keys_leave_the_error_below_one_over_2p(n_slots: int) -> None:
    rng = np.random.default_rng(5)
    tracker, truth = Tracker.of(n_slots), Counter()
    for clock in range(4):
        keys = np.concatenate([rng.integers(0, 100_000, 20_000), np.repeat([1, 2, 3], [3000, 1500, 700])])
        found, counts = np.unique(keys, return_counts=True)
        made = []
        for slot in range(n_slots):
            mine = found % n_slots == slot
            order = np.argsort(-counts[mine], kind="stable")
            pairs = list(zip(found[mine][order].tolist(), counts[mine][order].tolist(), strict=True))
            left_out = pairs[MOST_ENTRIES][1] if len(pairs) > MOST_ENTRIES else 0
            made.append(Frequent.of(int(counts[mine].sum()), tuple(pairs[:MOST_ENTRIES]), left_out))
        tracker = tracker.seen(made, clock)
        truth.update(keys.tolist())
    assert tracker.epsilon <= 1 / (2 * n_slots)
    assert [key for key, _ in tracker.largest(3)] == [1, 2, 3]
    for key, estimate in tracker.largest(3):
        assert abs(estimate - truth[key]) <= tracker.error
    assert len(msgspec.json.encode(tracker)) < 70_000  # whatever the number of keys


def test_the_sketch_grows_with_the_number_of_slots() -> None:
    assert [sketch_size(p) for p in (1, 48, 200, 1000)] == [12, 12, 12, 13]


def test_the_plain_form_is_json_and_goes_on_as_before() -> None:
    tracker = Tracker.of(2, window=100).seen([Frequent.of(9, ((1 << 63, 5), (7, 4)), 0, {7: "seven"})], 10)
    again = msgspec.json.decode(msgspec.json.encode(tracker), type=Tracker)
    assert again == tracker
    more = [Frequent.of(3, ((7, 3),))]
    assert again.seen(more, 20) == tracker.seen(more, 20)
    report = Frequent.of(9, ((1 << 63, 5), (7, 4)), 2, {7: "seven"})
    assert msgspec.json.decode(msgspec.json.encode(report), type=Frequent) == report


def test_a_tracker_that_is_kept_has_no_sketch_in_memory() -> None:
    """Else a manifest that lives as long as the process has the sketch library complain of leaks at its end."""
    tracker = Tracker.of(2).seen([Frequent.of(5, ((7, 5),))], 10)
    assert tracker.largest(1) == [(7, 5)]
    assert not vars(tracker.unasked())
    assert tracker.unasked() == tracker


def test_an_epoch_without_reports_forgets_what_is_too_old() -> None:
    tracker = Tracker.of(2, window=100).seen([Frequent.of(5, ((7, 5),))], 10)
    assert tracker.seen([], 60).rows == 5
    assert tracker.seen([], 500).rows == 0
    assert tracker.seen([], 500).largest(3) == []


def test_candidates_have_the_counts_of_every_store_a_label_and_their_light_slot() -> None:
    left = Tracker.of(2).seen([Frequent.of(9, ((4, 6), (7, 3)), 0, {4: "four"})], 0)
    right = Tracker.of(2).seen([Frequent.of(9, ((7, 9),), 0, {7: "seven"})], 0)
    found = candidates([left, right], 10, lambda key: key % 2, also=[99])
    assert [(one.hash, one.counts, one.label, one.slot) for one in found] == [
        (99, (0.0, 0.0), "", 1),
        (7, (3.0, 9.0), "seven", 1),
        (4, (6.0, 0.0), "four", 0),
    ]
    assert [one.hash for one in candidates([left, right], 1)] == [7]


def test_a_key_that_a_store_does_not_list_has_a_row_there_if_any_was_left_out() -> None:
    """A primary key's runs of one row are not reported; its foreign keys are (SHC 4.3.2)."""
    primary = Tracker.of(2).seen([Frequent.of(9, (), 1)], 0)
    foreign = Tracker.of(2).seen([Frequent.of(9, ((7, 9),), 0)], 0)
    (one,) = candidates([primary, foreign], 10)
    assert (one.counts, one.results) == ((1.0, 9.0), 9.0)


def test_labels_of_frequent_keys_stay_when_there_are_too_many() -> None:
    tracker = Tracker.of(2).seen([Frequent.of(900, ((1, 900),), 0, {1: "one"})], 0)
    for epoch in range(8):
        keys = tuple((1000 + 200 * epoch + i, 1) for i in range(200))
        tracker = tracker.seen([Frequent.of(200, keys, 0, {key: str(key) for key, _ in keys})], epoch)
    assert tracker.labels[1] == "one"
    assert len(tracker.labels) <= 512
