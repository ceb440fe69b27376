"""LEFT JOINs on top of inner joins, one or several, on the engine without Spark, against the nested loop and DuckDB.

After every epoch the results are compared with those of what has arrived so far at the watermark of that epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.lab.testing import oracle
from braidstream.lab.testing.batch import BatchStream, batch_left_joins, same_rows
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case, many_streams
from braidstream.model.faults import POINTS
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_outer_joins_engine import Check, closing, harness_of, steady
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import QUIET, leftovers, often_compacted, reorganized, with_a_fault
from tests.scale import examples

SECOND = stories.SECOND
SOME = settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIET)
FEW = settings(SOME, max_examples=examples(30))
SLOTS = st.integers(1, 4)
SILENCES = st.none() | st.integers(0, 12).map(lambda seconds: seconds * SECOND)
MORE = ("nothing", "a comparison", "computed", "a filter", "NULL is equal")
"""What ON of a LEFT JOIN may have beside equalities."""
WHERE = ("nothing", "of the first", "between the first", "of the last")


class Stacked:
    """A query over a case, the last `n_left` streams of which are joined by LEFT JOIN, and what it should put out."""

    def __init__(self, case: Case, n_left: int, more: Sequence[tuple[str, int]], where: str) -> None:
        n_whole = len(case.streams) - n_left
        bounded = [replace(s, window_us=5 * SECOND) if s.window_us is None else s for s in case.streams]
        self.case = replace(case, streams=(*bounded[:n_whole], *case.streams[n_whole:]))
        self.names = [stream.name for stream in case.streams]
        self.columns = [f"{name}.{column}" for name in self.names for column in ("v", "k")]
        self.on: list[list[Check]] = []
        windows = stories.from_clause(self.case).split(", ")
        select = ", ".join(f"{name} AS c{i}" for i, name in enumerate(self.columns))
        self.text = f"SELECT {select} FROM {windows[0]}"
        for place in range(1, len(self.names)):
            text = f"{'LEFT JOIN' if place >= n_whole else 'JOIN'} {windows[place]} ON {self._equal(place)}"
            if place >= n_whole:
                kind, other = more[place - n_whole]
                added, check = _more(kind, self.names[other % place], self.names[place])
                text, self.on = f"{text}{added}", [*self.on, [check]]
            self.text += f" {text}"
        self.below, self.after = self._where(where, n_whole)

    def _equal(self, place: int) -> str:
        own, before = self.names[place], {*self.names[: place + 1]}
        sides = [(pair, {side.split(".")[0] for side in pair}) for pair in self.case.equalities]
        return stories.equal([pair for pair, names in sides if own in names <= before])

    def _where(self, where: str, n_whole: int) -> tuple[list[Check], Check]:
        first, last = self.names[0], self.names[-1]
        if where == "of the first":
            self.text += f" WHERE {first}.v % 2 = 0"
            return [lambda c: c[first]["v"] % 2 == 0], lambda c: True
        if where == "between the first" and n_whole > 1:
            second = self.names[1]
            self.text += f" WHERE {first}.v <= {second}.v + 1"
            return [lambda c: c[first]["v"] <= c[second]["v"] + 1], lambda c: True
        if where == "of the last":
            self.text += f" WHERE {last}.v IS NULL OR {last}.v > {first}.v"
            return [], lambda c: not c[last] or c[last]["v"] > c[first]["v"]
        return [], lambda c: True

    def expected(self, epochs: Sequence[oracle.Epoch], first: int = 0, until: int | None = None) -> Counter[Any]:
        """After some epochs, of what arrived from the `first` to before `until`."""
        arrived = [
            replace(s, rows=[row for epoch in epochs[first:until] for row in epoch.get(s.name, ())])
            for s in self.case.streams
        ]
        watermark = oracle.watermark_of(epochs[:until], self.case.delays_us)
        now = -(1 << 62) if watermark is None else watermark
        found = oracle.left_joins_on_top(arrived, self.case.equalities, self.below, self.on, watermark_us=now)
        return Counter(oracle.project([one for one in found if self.after(one)], self.columns))


def _more(kind: str, one: str, own: str) -> tuple[str, Check]:
    texts: dict[str, tuple[str, Check]] = {
        "a comparison": (f" AND {one}.v <= {own}.v", lambda c: c[one] and c[one]["v"] <= c[own]["v"]),
        "computed": (f" AND {one}.v + 1 > {own}.v", lambda c: c[one] and c[one]["v"] + 1 > c[own]["v"]),
        "a filter": (f" AND {own}.v % 2 = 0", lambda c: c[own]["v"] % 2 == 0),
        "NULL is equal": (f" AND {one}.j <=> {own}.j", lambda c: c[one].get("j") == c[own]["j"]),
    }
    return texts.get(kind, ("", lambda c: True))


CASES = many_streams(min_streams=3, max_streams=4, max_rows=7)


@st.composite
def stacked(draw: Any, case: Case | None = None) -> Stacked:
    case = case or draw(CASES)
    n_left = draw(st.integers(1, len(case.streams) - 1))
    more = draw(st.lists(st.tuples(st.sampled_from(MORE), st.integers(0, 2)), min_size=n_left, max_size=n_left))
    return Stacked(case, n_left, more, draw(st.sampled_from(WHERE)))


@SOME
@given(stacked(), SLOTS, st.data())
def test_left_joins_on_top_of_inner_ones_survive_crashes_and_moves(
    told: Stacked, slots: int, data: st.DataObject
) -> None:
    """One or several, on one key or several; after every epoch what is decided was put out."""
    epochs = [*told.case.epochs, closing(told.case)]
    with TemporaryDirectory() as folder, often_compacted():
        silence = data.draw(SILENCES, label="silence")
        harness = harness_of(folder, told.case, {"q": told.text}, slots=slots, silence_us=silence)
        for number, epoch in enumerate(epochs):
            rows = tables(told.case, epoch)
            if data.draw(st.integers(0, 3), label="failure") == 3:
                with_a_fault(harness, data.draw(st.sampled_from(POINTS), label="point"), number, rows)
                harness.restart(data.draw(SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            assert stories.found(harness, "q") == told.expected(epochs[: number + 1]), told.text
            if data.draw(st.booleans(), label="moves"):
                n_slots = harness.manifest.n_slots
                harness.restart(directory=reorganized(harness.manifest.directory, n_slots, data))
        assert leftovers(harness) == []


@FEW
@given(CASES, SLOTS, st.integers(0, 999), st.data())
def test_left_joins_on_top_come_and_go_while_groups_move(
    case: Case, slots: int, seed: int, data: st.DataObject
) -> None:
    """One is there throughout; another, of as many or fewer LEFT JOINs, sees what arrives while it is there."""
    told, later = (data.draw(stacked(case), label="query") for _ in range(2))
    epochs = [*case.epochs, closing(case)]
    begin = data.draw(st.integers(0, len(epochs) - 1), label="submitted")
    end = data.draw(st.integers(begin, len(epochs)), label="withdrawn")
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": told.text}, slots=slots, controller=restless(seed))
        for number, epoch in enumerate(epochs):
            if number == begin:
                harness.submit("later", later.text)
            if number == end:
                harness.withdraw("later")
            harness.epoch(tables(case, epoch))
        assert stories.found(harness, "q") == told.expected(epochs), told.text
        assert stories.found(harness, "later") == later.expected(epochs, begin, end), later.text


WAYS = {
    "ABC": [
        (1, (("A.k", "B.k"), ("B.k", "C.k"))),
        (1, (("A.k", "B.k"), ("B.j", "C.k"))),
        (2, (("A.k", "B.k"), ("A.k", "C.k"))),
        (2, (("A.k", "B.k"), ("B.j", "C.j"))),
    ],
    "ABCD": [
        (2, (("A.k", "B.k"), ("A.k", "C.k"), ("A.k", "D.k"))),
        (2, (("A.k", "B.k"), ("B.j", "C.j"), ("C.k", "D.k"))),
        (2, (("A.k", "B.k"), ("B.j", "C.j"), ("C.k", "D.k"), ("A.j", "D.j"))),
        (3, (("A.k", "B.k"), ("A.j", "C.j"), ("B.j", "D.j"))),
    ],
}
"""Streams, and ways to join them: how many LEFT JOINs, and on what; also on what one of them may have no row for."""


@pytest.mark.parametrize("seed", range(examples(60, least=8)))
def test_streams_that_go_on_are_decided_on_top_of_inner_joins(seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng([seed, 181])
    names, ways = sorted(WAYS.items())[seed % 2]
    n_left, equalities = ways[seed // 2 % len(ways)]
    more = [(MORE[int(rng.integers(len(MORE)))], int(rng.integers(3))) for _ in range(n_left)]
    case = replace(steady(rng, names, 10 if len(names) == 3 else 7), equalities=equalities)
    told = Stacked(case, n_left, more, WHERE[int(rng.integers(len(WHERE)))])
    epochs = [*case.epochs, closing(case)]
    with often_compacted():
        harness = harness_of(tmp_path, told.case, {"q": told.text}, slots=int(rng.integers(1, 4)))
        for number, epoch in enumerate(epochs):
            harness.epoch(tables(case, epoch))
            if rng.random() < 0.3:
                harness.restart(int(rng.integers(1, 5)))
            assert stories.found(harness, "q") == told.expected(epochs[: number + 1]), told.text


def test_two_left_joins_of_thousands_of_rows_are_as_by_duckdb(tmp_path: Any) -> None:
    """On two keys, one of which is of a stream that is joined by LEFT JOIN; with texts and a comparison."""
    rng = np.random.default_rng(18)
    schema = pa.schema([("k", pa.string()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    n_epochs, n_rows = 5, 400
    streams: dict[str, list[pa.Table]] = {name: [] for name in "ABCD"}
    for epoch in range(n_epochs):
        for own in streams.values():
            times = np.sort(rng.integers(0, 2 * n_rows, n_rows)) + 2 * n_rows * epoch
            keys = pa.array([f"key {k}" if k else None for k in rng.integers(0, 60, n_rows)], pa.string())
            others = pa.array([int(j) if j else None for j in rng.integers(0, 40, n_rows)], pa.int64())
            own.append(pa.table([keys, others, rng.integers(0, 99, n_rows), times * SECOND], schema=schema))
    windows = dict(zip("ABCD", (40, 60, 30, 50), strict=True))
    shown = {f"{name}{column}": f"{name}.{column}" for name in "ABCD" for column in ("v", "k")}
    text = (
        f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in shown.items())} FROM A [RANGE 40 SECONDS] "
        "JOIN B [RANGE 60 SECONDS] ON A.k = B.k LEFT JOIN C [RANGE 30 SECONDS] ON B.j = C.j AND A.v <= C.v "
        "LEFT JOIN D [RANGE 50 SECONDS] ON C.k = D.k"
    )
    harness = QueryHarness(tmp_path, dict.fromkeys("ABCD", schema), {"q": text}, slots=3)
    for number in range(n_epochs):
        harness.epoch({name: own[number] for name, own in streams.items()})
    harness.epoch({n: pa.table([[f"last of {n}"], [None], [-1], [10**6 * SECOND]], schema=schema) for n in streams})
    batch = [BatchStream(name, pa.concat_tables(own), windows[name] * SECOND) for name, own in streams.items()]
    on = [["B.j = C.j", "A.v <= C.v"], ["C.k = D.k"]]
    expected = batch_left_joins(batch, [("A.k", "B.k")], shown, on)
    told = same_rows(pa.Table.from_pylist(harness.results("q"), expected.schema), expected)
    assert told, str(told)
    nulls = [{row["Cv"] is None, row["Dv"] is None} for row in expected.to_pylist()]
    assert min(nulls.count({True}), nulls.count({False}), nulls.count({True, False})) > 100
