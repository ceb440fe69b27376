"""Where the time of an epoch goes: parts of a generated course of events add up to it, and each is what was put in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.epoch.timeline import PARTS, parts_of
from braidstream.model.numbers import SlotId
from braidstream.model.reports import SlotReport, Tally

some_s = st.floats(0.001, 10)


@given(
    planned=some_s,
    routing=st.lists(some_s, min_size=1, max_size=4),
    stages=st.lists(st.tuples(some_s, st.lists(st.tuples(some_s, some_s), min_size=1, max_size=3)), max_size=3),
    collected=some_s,
    delivered=some_s,
    committed=some_s,
)
def test_parts_are_what_happened_and_add_up(
    planned: float,
    routing: list[float],
    stages: list[tuple[float, list[tuple[float, float]]]],
    collected: float,
    delivered: float,
    committed: float,
) -> None:
    """Routing tasks begin together; after each exchange so do the slots of a stage, which join and then store."""
    now = 1e9 + planned
    tallies = tuple(Tally("R", began=now, ended=now + length) for length in routing)
    now += max(routing)
    reports = [SlotReport(slot=SlotId(0), executor="", stage=-1, tallies=tallies)]
    ran = busy = stored = 0.0
    for stage, (exchange, slots) in enumerate(stages):
        now += exchange
        for slot, (join, store) in enumerate(slots):
            reports.append(
                SlotReport(slot=SlotId(slot), executor="", stage=stage, began=now, busy_s=join + store, store_s=store)
            )
            busy, stored = busy + join + store, stored + store
        longest = max(join + store for join, store in slots)
        now, ran = now + longest, ran + longest
    join_s = now - 1e9 + collected
    seconds = {"join": join_s, "deliver": delivered, "commit": committed, "total": join_s + delivered + committed}
    parts = parts_of(reports, seconds)
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == pytest.approx(seconds["total"], abs=1e-5)
    assert parts["routing"] == pytest.approx(max(routing), abs=1e-5)
    assert parts["exchange"] == pytest.approx(sum(exchange for exchange, _ in stages), abs=1e-5)
    assert parts["store"] == pytest.approx(ran * stored / busy if busy else 0.0, abs=1e-5)
    assert parts["join"] + parts["store"] == pytest.approx(ran, abs=1e-5)
    assert parts["engine"] == pytest.approx(planned + collected, abs=1e-5)


def test_an_epoch_that_nobody_reported_of_is_the_engines() -> None:
    parts = parts_of([], {"total": 2.0, "deliver": 0.5, "commit": 0.25})
    assert {name: value for name, value in parts.items() if value} == {"deliver": 0.5, "commit": 0.25, "engine": 1.25}


def test_tallies_of_tasks_together_span_both() -> None:
    both = Tally("R", 1, began=3.0, ended=4.0).plus(Tally("R", 2, began=2.0, ended=3.5))
    assert (both.rows, both.began, both.ended) == (3, 2.0, 4.0)
    assert Tally("R", began=3.0).plus(Tally("R")).began == 3.0
