"""Silent streams: the watermark goes on without those that are idle, and a replay sees the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.epoch.idleness import Patience, silence
from braidstream.lab.testing.queries import QueryHarness
from braidstream.model.faults import POINTS
from braidstream.state.notes import Silence
from tests.kernels import stories
from tests.kernels.test_streams_join import with_a_fault
from tests.scale import examples

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
PAIRS = "SELECT A.v AS a, B.v AS b FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS] WHERE A.k = B.k"
COUNT = "SELECT COUNT(*) AS n FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS] WHERE A.k = B.k"
S = 1_000_000


@dataclass
class Clock:
    """Seconds that pass when they are told to."""

    now: int = 0

    def __call__(self) -> int:
        return self.now * S


def rows(*seconds: int) -> pa.Table:
    return pa.table({"k": [1] * len(seconds), "v": list(seconds), "ts": [s * S for s in seconds]}, schema=SCHEMA)


def harness_of(folder: Path, clock: Clock, text: str = PAIRS) -> QueryHarness:
    patience = Patience({"B": 60 * S}, clock)
    return QueryHarness(folder, dict.fromkeys("AB", SCHEMA), {"q": text}, slots=2, patience=patience)


def test_the_watermark_goes_on_without_a_silent_stream_and_what_it_sends_later_is_late(tmp_path: Path) -> None:
    clock = Clock(1000)
    harness = harness_of(tmp_path, clock)
    harness.epoch({"A": rows(1), "B": rows(1)})
    clock.now += 59
    harness.epoch({"A": rows(20)})
    assert harness.manifest.notes.silence.idle == ()
    clock.now += 1
    harness.epoch({"A": rows(30)})
    assert harness.manifest.watermark == 1 * S
    assert harness.runner.progress[-1].idle == ("B",)
    assert "stream B is silent" in harness.runner.progress[-1].warnings[0]
    harness.epoch({"A": rows(40)})
    assert harness.manifest.watermark == 40 * S
    assert harness.runner.progress[-1].warnings == ()
    harness.epoch({"B": rows(39, 41), "A": rows(41)})
    assert harness.runner.progress[-1].late == {"A": 0, "B": 1}
    assert harness.manifest.notes.silence.idle == ()
    assert stories.found(harness, "q") == Counter([(1, 1), (40, 41), (41, 41)])
    harness.epoch({"A": rows(90)})
    assert harness.manifest.watermark == 41 * S  # it is waited for again


WITHIN = "A [RANGE 5 SECONDS] {} B [RANGE 5 SECONDS] ON A.k = B.k"
KINDS = {
    "LEFT JOIN": [(1, 1), (20, None), (40, 41), (41, 41)],
    "FULL JOIN": [(1, 1), (20, None), (40, 41), (41, 41)],
    "LEFT ANTI JOIN": [(20,)],
    "LEFT SEMI JOIN": [(1,), (40,), (41,)],
    "ASOF LEFT JOIN": [(1, 1), (20, None), (40, None), (41, 41)],
}
"""What each kind has put out in the end: B's 39 came too late to be a match, and what is of 90 is still open."""


@pytest.mark.parametrize("kind", KINDS)
def test_rows_close_without_a_silent_stream_and_what_it_sends_later_matches_what_is_open(
    tmp_path: Path, kind: str
) -> None:
    clock, shown = Clock(1000), "A.v AS a" if len(KINDS[kind][0]) == 1 else "A.v AS a, B.v AS b"
    harness = harness_of(tmp_path, clock, f"SELECT {shown} FROM {WITHIN.format(kind)}")
    harness.epoch({"A": rows(1), "B": rows(1)})
    clock.now += 60
    harness.epoch({"A": rows(20)})
    decided = {row["a"] for row in harness.results("q")}
    assert 20 not in decided  # B is idle from the next epoch on
    harness.epoch({"A": rows(40)})
    decided = {row["a"] for row in harness.results("q")}
    assert (20 in decided) == (kind != "LEFT SEMI JOIN")
    assert 40 not in decided
    harness.epoch({"B": rows(39, 41), "A": rows(41)})
    assert harness.runner.progress[-1].late == {"A": 0, "B": 1}
    harness.epoch({"A": rows(90), "B": rows(90)})
    of_90 = {(90,), (90, 90)}
    assert Counter({row: n for row, n in stories.found(harness, "q").items() if row not in of_90}) == Counter(
        KINDS[kind]
    )


def test_windows_that_are_counted_end_without_a_silent_stream(tmp_path: Path) -> None:
    """A pair is in the window of A's time: that of 20 is over when A has passed it and B is idle."""
    clock = Clock(1000)
    counted = (
        f"SELECT window.start AS s, COUNT(*) AS n FROM {WITHIN.format('JOIN')} GROUP BY window(A.ts, '10 seconds')"
    )
    harness = harness_of(tmp_path, clock, counted)
    harness.epoch({"A": rows(1, 20), "B": rows(1, 20)})
    clock.now += 60
    harness.epoch({"A": rows(40)})
    assert [row["n"] for row in harness.results("q")] == [1]  # at 20: the first window is over
    harness.epoch({"A": rows(41)})
    assert [row["n"] for row in harness.results("q")] == [1, 1]
    harness.epoch({"A": rows(42), "B": rows(21, 43)})
    assert harness.runner.progress[-1].late == {"A": 0, "B": 1}
    harness.finish(final=True)
    assert [row["n"] for row in harness.results("q")] == [1, 1, 3]


def test_a_stream_that_never_spoke_is_waited_for_since_the_flow_began(tmp_path: Path) -> None:
    clock = Clock(1000)
    harness = harness_of(tmp_path, clock)
    harness.epoch({"A": rows(1)})
    assert harness.manifest.watermark is None
    clock.now += 60
    harness.epoch({"A": rows(2)})
    harness.epoch({"A": rows(3)})
    assert harness.manifest.watermark == 3 * S


def test_the_time_in_which_nothing_ran_is_no_silence(tmp_path: Path) -> None:
    clock = Clock(1000)
    harness = harness_of(tmp_path, clock)
    harness.epoch({"A": rows(1), "B": rows(1)})
    clock.now += 3600
    harness.restart()
    harness.epoch({"A": rows(20)})
    assert harness.manifest.notes.silence.idle == ()
    clock.now += 60
    harness.epoch({"A": rows(21)})
    assert harness.manifest.notes.silence.idle == ("B",)


@pytest.mark.parametrize("text", [PAIRS, COUNT])
@pytest.mark.parametrize("point", [p for p in POINTS if not p.startswith(("spill", "clean-up", "compaction"))])
def test_a_replay_sees_the_same_whatever_the_clock_says_then(tmp_path: Path, point: str, text: str) -> None:
    """The slots of aggregates compute the watermark themselves: they must see the same streams idle."""
    clock = Clock(1000)
    harness = harness_of(tmp_path, clock, text)
    harness.epoch({"A": rows(1), "B": rows(1)})
    clock.now += 60
    harness.epoch({"A": rows(3)})
    with_a_fault(harness, point, 2, {"A": rows(4)})
    clock.now += 5000
    harness.restart(slots=3)
    if harness.manifest.epoch < 2:
        harness.epoch({"A": rows(4)})
    assert harness.manifest.watermark == 4 * S
    if text == COUNT:
        last = harness.results("q")[-1]
        assert last["watermark"].timestamp() == 4


def test_slots_and_driver_agree_on_the_watermark_of_an_idle_stream(tmp_path: Path) -> None:
    clock = Clock(1000)
    harness = harness_of(tmp_path, clock, COUNT)
    harness.epoch({"A": rows(1, 2), "B": rows(1)})
    clock.now += 60
    for second in (3, 6, 9):
        harness.epoch({"A": rows(second)})
    found = {row["epoch"]: (row["n"], row["watermark"].timestamp()) for row in harness.results("q")}
    assert found[0] == (2, 1)
    assert found[3][1] == 9
    assert found[3][0] == 0


STREAMS = st.sets(st.sampled_from("ABC"))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(STREAMS, st.integers(0, 50)), max_size=12))
def test_a_stream_is_idle_iff_it_was_silent_for_long_enough(epochs: list[tuple[set[str], int]]) -> None:
    clock = Clock(100)
    patience, known, last = Patience({"A": 60 * S, "B": 90 * S}, clock), Silence(), {"A": 100, "B": 100}
    longest = {"A": 0, "B": 0}
    for spoke, passed in epochs:
        clock.now += passed
        known = silence(known, patience, spoke, clock())
        for stream in "AB":
            last[stream] = clock.now if stream in spoke else last[stream]
            longest[stream] = clock.now - last[stream]
        assert known.idle == tuple(s for s, limit in (("A", 60), ("B", 90)) if longest[s] >= limit)


CHAIN_SCHEMA = pa.schema(
    [("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]
)
CHAIN = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS], C [RANGE 8 SECONDS]"
    " WHERE A.k = B.k AND B.j = C.j"
)


def chain_rows(*seconds: int) -> pa.Table:
    ones = [1] * len(seconds)
    return pa.table({"k": ones, "j": ones, "v": list(seconds), "ts": [s * S for s in seconds]}, schema=CHAIN_SCHEMA)


def chain_of(folder: Path, clock: Clock, silence_us: int | None) -> QueryHarness:
    patience = Patience({"C": 60 * S}, clock)
    schemas = dict.fromkeys("ABC", CHAIN_SCHEMA)
    harness = QueryHarness(folder, schemas, {"q": CHAIN}, slots=2, patience=patience, silence_us=silence_us)
    assert str(harness.plan.trees["q"]) == "((A ⋈ B) ⋈ C)"
    return harness


def test_a_join_is_suspended_once_nothing_of_the_idle_stream_can_be_joined(tmp_path: Path) -> None:
    """What is not made while the watermark goes on is not owed: before, it would have been lost."""
    clock = Clock(1000)
    harness = chain_of(tmp_path, clock, silence_us=1 * S)
    harness.epoch({name: chain_rows(1) for name in "ABC"})
    clock.now += 60
    for second in (4, 6, 9):
        harness.epoch({"A": chain_rows(second), "B": chain_rows(second)})
        assert not harness.manifest.notes.suspended  # until second 9 a pair may meet C's tuple of second 1
    harness.epoch({"A": chain_rows(10), "B": chain_rows(10)})
    assert list(harness.manifest.notes.suspended) == ["q:(A⋈B)"]
    for second in (13, 30):
        harness.epoch({"A": chain_rows(second), "B": chain_rows(second)})
    harness.epoch({name: chain_rows(31) for name in "ABC"})
    found = stories.found(harness, "q")
    assert {(9, 9, 1), (6, 4, 1), (30, 30, 31), (31, 30, 31)} <= set(found)
    assert max(found.values()) == 1
    made = sum(sum(entry.produced.values()) for entry in harness.runner.progress)
    assert made < 3 * 8  # those of second 13 never were


SAYING = st.sampled_from(["AB", "AB", "AB", "A", "C"])


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(SAYING, st.integers(0, 4), st.booleans()), min_size=8, max_size=12), st.integers(0, 3))
def test_suspending_loses_nothing_whoever_is_idle_when(story: list[tuple[str, int, bool]], silence_s: int) -> None:
    found = []
    for silence_us in (None, silence_s * S):
        clock, second = Clock(1000), 1
        with TemporaryDirectory() as folder:
            harness = chain_of(Path(folder), clock, silence_us)
            for saying, later, is_long in story:
                second += later
                clock.now += 60 * is_long
                harness.epoch({name: chain_rows(second) for name in saying})
            harness.runner.settle()
            found.append(stories.found(harness, "q"))
    assert found[0] == found[1]
