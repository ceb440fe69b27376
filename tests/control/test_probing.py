"""Probing sequences follow what probes gave."""

from __future__ import annotations

import pytest

from braidstream.control.probing import learned, probing_order


def test_the_most_selective_input_is_probed_first() -> None:
    assert probing_order(4, {0: 3.0, 1: 0.1, 2: 2.0, 3: 0.5}) == [[1, 3, 2], [3, 2, 0], [1, 3, 0], [1, 2, 0]]


def test_without_measurements_the_order_is_that_of_from() -> None:
    assert probing_order(3, {}) == [[1, 2], [0, 2], [0, 1]]


def test_measurements_of_all_slots_count_and_change_the_order() -> None:
    first = learned({}, [{"q": {"1": [100, 400], "2": [100, 10]}}, {"q": {"1": [100, 0]}}])
    assert first == {"q": {"1": 2.0, "2": 0.1}}
    second = learned(first, [{"q": {"1": [100, 0], "2": [100, 300]}}])
    assert second["q"] == pytest.approx({"1": 1.0, "2": 1.55})
    assert probing_order(3, {int(k): v for k, v in first["q"].items()})[0] == [2, 1]
    assert probing_order(3, {int(k): v for k, v in second["q"].items()})[0] == [1, 2]


def test_a_handful_of_probes_says_nothing() -> None:
    assert learned({}, [{"q": {"1": [5, 500]}}]) == {}
