"""Where the fitted price of a recovered result comes from: the paper's three clean-ups, by least squares in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braidstream.lab.sim.dcape.machine import PACES, PAPER_PRICES, CleanUpWork, Prices
from braidstream.lab.sim.dcape.settings_of_paper import PUSH_TUPLE_BYTES, Adaptation, Point, dealt, run_point, thirds
from braidstream.lab.sim.dcape.streams import Streams


def uneven(adaptation: Adaptation) -> Point:
    streams = Streams(thirds(4.0, 2.0, 1.0), 0.03, 30_000, 3000.0, 10.0)
    return Point(streams, adaptation=adaptation, memory_mb=200, tuple_bytes=PUSH_TUPLE_BYTES)


def six_hours() -> Point:
    return Point(Streams(thirds(2.0), 0.03, 760_000, 21_600.0, 60.0), dealt(8, 1, 1), "push", memory_mb=200)


@pytest.mark.slow
def test_the_price_of_a_recovered_result_fits_the_papers_clean_ups() -> None:
    stated = {
        "low output": (uneven("push"), 26.879, 194_308),
        "high output": (uneven("push high output"), 359.396, 992_893),
        "six hours": (six_hours(), 1600.0, 2_023_781),
    }
    rest = replace(PAPER_PRICES, recovered_s=0.0)
    formed, missing_s = {}, {}
    for name, (point, seconds, n_results) in stated.items():
        found = run_point(point).clean_up
        work = max(found.works, key=rest.clean_up_s)
        formed[name] = work.n_formed
        missing_s[name] = seconds * found.n_results / n_results - rest.clean_up_s(work)
        assert missing_s[name] / formed[name] == pytest.approx(PACES[name], rel=0.05)
    least = sum(formed[name] * missing_s[name] for name in stated) / sum(count**2 for count in formed.values())
    assert least == pytest.approx(PAPER_PRICES.recovered_s, rel=0.02)


def test_a_clean_up_costs_what_is_read_entered_probed_and_formed() -> None:
    prices = Prices(tuple_s=1.0, result_s=0.1, recovered_s=10.0, disk_bytes_per_s=100.0)
    works = [
        CleanUpWork(500),
        CleanUpWork(0, 2),
        CleanUpWork(0, 0, 3),
        CleanUpWork(0, 0, 0, 4),
        CleanUpWork(0, 0, 0, 0, 5),
    ]
    assert [prices.clean_up_s(work) for work in works] == pytest.approx([5.0, 2.0, 3.0, 0.4, 50.0])
