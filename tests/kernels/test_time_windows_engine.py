"""Counts by hour: groups of windows of time are put out once, when the watermark has passed them, against plain Python.

After every epoch what was put out is compared with what is over at its watermark: so a group comes in just that epoch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.epoch.ending import is_ended
from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case, many_streams
from braidstream.model.faults import POINTS, InjectedFault, armed
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_outer_joins_engine import harness_of
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import QUIET, leftovers, often_compacted, with_a_fault
from tests.scale import examples

SECOND = stories.SECOND
SOME = settings(max_examples=examples(25), deadline=None, suppress_health_check=QUIET)
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


class Told:
    """A query that counts in windows of time of its last stream, and what it should have put out."""

    def __init__(self, case: Case, data: st.DataObject) -> None:
        self.case, self.names = case, [stream.name for stream in case.streams]
        self.timed = self.names[-1]
        self.size = data.draw(st.integers(1, 12), label="size") * SECOND
        self.slide = data.draw(st.sampled_from([self.size, self.size, SECOND, -(-self.size // 2)]), label="slide")
        self.offset = data.draw(st.sampled_from([0, 0, SECOND // 2]), label="offset") if self.slide > SECOND else 0
        self.windows = {s.name: 5 * SECOND if s.window_us is None else s.window_us for s in case.streams}
        ranges = (f"{name} [RANGE {us // SECOND} SECONDS]" for name, us in self.windows.items())
        from_ = self.timed if len(self.names) == 1 else ", ".join(ranges)
        conditions = [stories.equal(case.equalities)] if len(self.names) > 1 else []
        self.even = data.draw(st.booleans(), label="a filter")
        conditions += [f"{self.timed}.v % 2 = 0"] if self.even else []
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        first, t = self.names[0], self.timed
        call = f"window({t}.ts, '{self.size} us', '{self.slide} us', '{self.offset} us')"
        self.text = (
            f"SELECT {first}.k AS k, window.start AS s, {call}.end AS e, COUNT(*) AS n, SUM({t}.v) AS total, "
            f"MAX({first}.v) AS most, COUNT(DISTINCT {t}.j) AS js, COUNT(DISTINCT {t}.v) AS vs "
            f"FROM {from_}{where} GROUP BY {first}.k, {call}"
        )
        self.wait = 0 if len(self.names) == 1 else self.windows[t]

    def expected(self, epochs: Sequence[oracle.Epoch], watermark: float) -> Counter[Any]:
        """The groups that are over at a watermark."""
        arrived = [
            oracle.Stream(n, [row for epoch in epochs for row in epoch.get(n, ())], self.windows[n]) for n in self.names
        ]
        found: dict[tuple[Any, int], list[oracle.Composite]] = defaultdict(list)
        results = (
            oracle.join(arrived, self.case.equalities)
            if len(arrived) > 1
            else [{r: row} for r in self.names for row in arrived[0].rows]
        )
        for one in results:
            row = one[self.timed]
            if self.even and row["v"] % 2:
                continue
            start = (row["ts"] - self.offset) // self.slide * self.slide + self.offset
            while start + self.size > row["ts"]:
                found[one[self.names[0]]["k"], start].append(one)
                start -= self.slide
        return Counter(
            self._row(k, start, own) for (k, start), own in found.items() if start + self.size + self.wait <= watermark
        )

    def _row(self, k: Any, start: int, own: Sequence[oracle.Composite]) -> tuple[Any, ...]:
        timed = [one[self.timed] for one in own]
        js, vs = {row["j"] for row in timed} - {None}, {row["v"] for row in timed}
        most = max(one[self.names[0]]["v"] for one in own)
        return k, start, start + self.size, len(own), sum(row["v"] for row in timed), most, len(js), len(vs)


def found(harness: QueryHarness) -> Counter[Any]:
    def us(moment: Any) -> int:
        return round(moment.timestamp() * 1e6)

    rows = harness.results("q")
    return Counter((r["k"], us(r["s"]), us(r["e"]), r["n"], r["total"], r["most"], r["js"], r["vs"]) for r in rows)


@SOME
@given(many_streams(min_streams=1, max_streams=3, max_rows=10), st.integers(1, 3), st.data())
def test_after_every_epoch_just_the_windows_that_are_over_were_put_out(
    case: Case, slots: int, data: st.DataObject
) -> None:
    told = Told(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        seed = data.draw(st.none() | st.integers(0, 99), label="a controller that never rests")
        controller = None if seed is None else restless(seed)
        harness = harness_of(folder, case, {"q": told.text}, slots=slots, controller=controller)
        for number, epoch in enumerate(case.epochs):
            rows = tables(case, epoch)
            for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]), label="failures")):
                if harness.manifest.epoch < number:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS), label="point"), number, rows)
                    harness.restart(data.draw(st.integers(1, 3), label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            watermark = oracle.watermark_of(case.epochs[: number + 1], case.delays_us)
            reached = float("-inf") if watermark is None else watermark
            assert found(harness) == told.expected(case.epochs[: number + 1], reached), told.text
        assert leftovers(harness) == []
        while not is_ended(harness.manifest):
            point = data.draw(st.sampled_from([*POINTS, "none", "none"]), label="point")
            try:
                with armed(f"{point}:{len(case.epochs)}:raise") if point != "none" else nullcontext():
                    harness.finish(final=True)
            except InjectedFault:
                harness.restart(data.draw(st.integers(1, 3), label="slots"))
        assert found(harness) == told.expected(case.epochs, float("inf"))


def rows(*seconds: int) -> pa.Table:
    return pa.table({"k": [1] * len(seconds), "v": list(seconds), "ts": [s * SECOND for s in seconds]}, schema=SCHEMA)


def test_what_is_kept_of_a_single_stream_are_the_groups_of_windows_that_are_open(tmp_path: Path) -> None:
    text = "SELECT k, window.start AS s, COUNT(*) AS n FROM A GROUP BY k, TUMBLE(ts, INTERVAL 10 SECONDS)"
    harness = QueryHarness(tmp_path, {"A": SCHEMA}, {"q": text}, slots=2)
    for second in range(0, 200, 5):
        harness.epoch({"A": rows(*[second] * 50)})
    assert [row["n"] for row in harness.results("q")] == [100] * 19
    assert sum(segment.live_rows for segment in harness.manifest.segments) <= 4


@pytest.mark.parametrize("overflow", ["spill", "shed"])
def test_composites_that_are_counted_are_never_pushed_or_shed(tmp_path: Path, overflow: str) -> None:
    from braidstream.control.overflow import Overflow

    text = (
        "SELECT A.k, COUNT(*) AS n FROM A [RANGE 20 SECONDS], B [RANGE 20 SECONDS] WHERE A.k = B.k "
        "GROUP BY A.k, window(B.ts, '10 seconds')"
    )
    budget = Overflow(1, overflow)
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": text}, overflow=budget)
    for second in range(0, 100, 10):
        harness.epoch({"A": rows(second), "B": rows(second)})
    harness.finish(final=True)
    expected = sum(abs(a - b) <= 20 for a in range(0, 100, 10) for b in range(0, 100, 10))
    assert sum(row["n"] for row in harness.results("q")) == expected


def test_what_another_join_pushed_is_cleaned_up_beside_composites_that_are_counted(tmp_path: Path) -> None:
    from braidstream.control.overflow import Overflow

    pairs = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20 SECONDS], B [RANGE 20 SECONDS] WHERE A.v = B.v"
    counts = (
        "SELECT A.k, COUNT(*) AS n FROM A [RANGE 20 SECONDS], B [RANGE 20 SECONDS] WHERE A.k = B.k "
        "GROUP BY A.k, window(B.ts, '10 seconds')"
    )
    texts = {"pairs": pairs, "counts": counts}
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), texts, overflow=Overflow(1, "spill"))
    for second in range(0, 100, 10):
        harness.epoch({"A": rows(second), "B": rows(second)})
    harness.finish()
    assert Counter(row["a"] for row in harness.results("pairs")) == Counter(range(0, 100, 10))
    harness.finish(final=True)
    expected = sum(abs(a - b) <= 20 for a in range(0, 100, 10) for b in range(0, 100, 10))
    assert sum(row["n"] for row in harness.results("counts")) == expected


def test_a_query_that_is_submitted_counts_what_arrives_from_then_on_beside_one_that_was_there(tmp_path: Path) -> None:
    text = (
        "SELECT A.k, window.start AS s, COUNT(*) AS n FROM A [RANGE 3 SECONDS], B [RANGE 3 SECONDS] WHERE A.k = B.k "
        "GROUP BY A.k, window(B.ts, '10 seconds')"
    )
    alone = "SELECT window.start AS s, COUNT(*) AS n FROM B GROUP BY window(B.ts, '10 seconds')"
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": text}, slots=2)
    for second in range(40):
        if second == 15:
            harness.submit("later", text)
            harness.submit("alone", alone)
        if second == 30:
            harness.withdraw("q")
        harness.epoch({"A": rows(second), "B": rows(second)})
    harness.finish(final=True)

    def counted(first: int, last: int, start: int) -> int:
        pairs = ((a, b) for a in range(first, last) for b in range(first, last) if abs(a - b) <= 3)
        return sum(start <= b < start + 10 for _, b in pairs)

    found = {
        name: [row["n"] for row in sorted(harness.results(name), key=lambda row: row["s"])]
        for name in ("q", "later", "alone")
    }
    assert found["q"] == [counted(0, 40, start) for start in (0, 10)]
    assert found["later"] == [counted(15, 40, start) for start in (10, 20, 30)]
    assert found["alone"] == [5, 10, 10]
