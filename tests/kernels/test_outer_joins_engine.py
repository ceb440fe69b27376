"""Outer, semi, anti and as-of joins on the engine without Spark, against the nested loop: whatever befalls them.

After every epoch the results are compared with those of what has arrived so far at the watermark of that epoch: so a
row without a match is put out in the epoch in which it is decided, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing import oracle
from braidstream.lab.testing.batch import BatchStream, batch_join_of_kind, same_rows
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.testing.strategies import Case, two_streams
from braidstream.model.faults import POINTS
from braidstream.model.join_kinds import JoinKind
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import SPILLS
from tests.kernels.test_streams_join import QUIET, crowded, leftovers, often_compacted, reorganized, with_a_fault
from tests.scale import examples

SECOND = stories.SECOND
SOME = settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIET)
FEW = settings(SOME, max_examples=examples(30))
KINDS = st.sampled_from([kind for kind in JoinKind if kind is not JoinKind.INNER])
SLOTS, GROUPS = st.integers(1, 4), st.integers(1, 16)
Check = Callable[[oracle.Composite], bool | None]

CONDITIONS: dict[str, Check] = {
    "R.v <= S.v": lambda c: c["R"]["v"] <= c["S"]["v"],
    "R.v + 1 > S.v": lambda c: c["R"]["v"] + 1 > c["S"]["v"],
    "S.v BETWEEN R.v - 2 AND R.v + 2": lambda c: abs(c["S"]["v"] - c["R"]["v"]) <= 2,
    "R.v != S.v": lambda c: c["R"]["v"] != c["S"]["v"],
    "R.j >= S.j": lambda c: None not in (c["R"]["j"], c["S"]["j"]) and c["R"]["j"] >= c["S"]["j"],
    "R.j <=> S.j": lambda c: c["R"]["j"] == c["S"]["j"],
    "R.v % 3 > 0": lambda c: c["R"]["v"] % 3 > 0,
    "S.v % 3 > 0": lambda c: c["S"]["v"] % 3 > 0,
}
"""What ON may have beside equalities."""


class Told:
    """A query over a case, and what it should have put out."""

    def __init__(self, case: Case, kind: JoinKind, data: st.DataObject) -> None:
        bounded = tuple(replace(s, window_us=5 * SECOND) if s.window_us is None else s for s in case.streams)
        kept = {case.streams[place].name for place in kind.kept}
        streams = [b if s.name in kept else s for s, b in zip(case.streams, bounded, strict=True)]
        self.kind = kind
        chosen = data.draw(st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=2, unique=True), label="ON")
        self.on = [CONDITIONS[text] for text in chosen]
        streams, windows, interval = self._interval(streams, data)
        self.case = replace(case, streams=tuple(streams))
        on = " AND ".join([stories.equal(case.equalities), *chosen, *interval])
        self.columns = [f"{case.streams[place].name}.{c}" for place in kind.shown for c in ("v", "k", "j")]
        self.where: Check | None = None
        text = ", ".join(f"{name} AS c{i}" for i, name in enumerate(self.columns))
        if data.draw(st.booleans(), label="expressions"):
            text += ", coalesce(R.v, -1) + 1 AS more"
            self.columns.append("R.v")
        self.text = f"SELECT {text} FROM R {windows[0]} {kind.words} S {windows[1]} ON {on}"
        if data.draw(st.booleans(), label="WHERE"):
            self.text += " WHERE R.v % 2 = 0"
            self.where = lambda c: c["R"] and c["R"]["v"] % 2 == 0

    def _interval(self, streams: list[oracle.Stream], data: st.DataObject) -> tuple[list[oracle.Stream], Any, Any]:
        """The streams with the windows that RANGE, an interval or both give; what is written after them, and in ON.

        An as-of join has windows, and to it an interval is a condition on a match.
        """
        windows = [self._window(stream) for stream in streams]
        drawn = data.draw(st.none() | st.tuples(st.integers(-6, 6), st.integers(0, 8)), label="interval")
        if drawn is None:
            return streams, windows, []
        are_ranged = [self.kind.is_asof or data.draw(st.booleans(), label=f"RANGE of {s.name}") for s in streams]
        most = [s.window_us if r else None for s, r in zip(streams, are_ranged, strict=True)]
        low = drawn[0] * SECOND if most[0] is None else min(drawn[0] * SECOND, most[0])
        high = low + drawn[1] * SECOND if most[1] is None else max(low + drawn[1] * SECOND, -most[1])
        self.on.append(lambda c: low <= c["S"]["ts"] - c["R"]["ts"] <= high)
        if not self.kind.is_asof:
            told = ((most[0], high), (most[1], -low))
            lengths = [max(0, bound if own is None else min(own, bound)) for own, bound in told]
            streams = [replace(s, window_us=length) for s, length in zip(streams, lengths, strict=True)]
        windows = [window if is_ranged else "" for window, is_ranged in zip(windows, are_ranged, strict=True)]
        bounds = [f"R.ts {'-' if us < 0 else '+'} INTERVAL {abs(us) // SECOND} SECONDS" for us in (low, high)]
        return streams, windows, [f"S.ts BETWEEN {bounds[0]} AND {bounds[1]}"]

    def _window(self, stream: oracle.Stream) -> str:
        return "[RANGE UNBOUNDED]" if stream.window_us is None else f"[RANGE {stream.window_us // SECOND} SECONDS]"

    def expected(self, epochs: list[oracle.Epoch], first: int = 0, until: int | None = None) -> Counter[Any]:
        """After some epochs, of what arrived from the `first` to before `until`."""
        arrived = [
            replace(s, rows=[row for epoch in epochs[first:until] for row in epoch.get(s.name, ())])
            for s in self.case.streams
        ]
        watermark = oracle.watermark_of(epochs[:until], self.case.delays_us)
        found = oracle.join_of_kind(
            self.kind.value,
            (arrived[0], arrived[1]),
            self.case.equalities,
            self.on,
            watermark_us=-(1 << 62) if watermark is None else watermark,
        )
        rows = oracle.project([one for one in found if self.where is None or self.where(one)], self.columns)
        if len(self.columns) % 3:
            rows = [(*row[:-1], (-1 if row[-1] is None else row[-1]) + 1) for row in rows]
        return Counter(rows)


def closing(case: Case) -> oracle.Epoch:
    """A row of each stream that matches nothing, so late that all others are closed."""
    row = dict.fromkeys(case.schema.names) | {"v": 0, "ts": 1000 * SECOND}
    return {stream.name: [row] for stream in case.streams}


def harness_of(folder: str, case: Case, texts: dict[str, str], **options: Any) -> QueryHarness:
    schemas = {stream.name: case.schema for stream in case.streams}
    return QueryHarness(folder, schemas, texts, **{"delays_us": case.delays_us, **options})


@SOME
@given(two_streams(max_rows=12), KINDS, SLOTS, GROUPS, st.data())
def test_after_every_epoch_just_what_is_decided_was_put_out(
    case: Case, kind: JoinKind, slots: int, groups: int, data: st.DataObject
) -> None:
    told = Told(case, kind, data)
    options: dict[str, Any] = {"hash_keys": crowded(3)} if data.draw(st.booleans(), label="hashes collide") else {}
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, told.case, {"q": told.text}, slots=slots, groups=groups, **options)
        epochs = [*case.epochs, closing(case)]
        for number, epoch in enumerate(epochs):
            harness.epoch(tables(told.case, epoch))
            assert stories.found(harness, "q") == told.expected(epochs[: number + 1]), told.text


@SOME
@given(two_streams(max_rows=12), KINDS, SLOTS, GROUPS, st.data())
def test_crashes_moves_and_restarts_with_other_slots_change_nothing(
    case: Case, kind: JoinKind, slots: int, groups: int, data: st.DataObject
) -> None:
    told = Told(case, kind, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, told.case, {"q": told.text}, slots=slots, groups=groups)
        epochs = [*case.epochs, closing(case)]
        for number, epoch in enumerate(epochs):
            rows = tables(told.case, epoch)
            for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]), label="failures")):
                if harness.manifest.epoch < number:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS), label="point"), number, rows)
                    harness.restart(data.draw(SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            if data.draw(st.booleans(), label="moves"):
                n_slots = harness.manifest.n_slots
                harness.restart(directory=reorganized(harness.manifest.directory, n_slots, data))
        assert stories.found(harness, "q") == told.expected(epochs), told.text
        assert leftovers(harness) == []


@FEW
@given(two_streams(max_rows=12), KINDS, SLOTS, st.integers(0, 999), st.data())
def test_a_controller_that_never_rests_changes_nothing(
    case: Case, kind: JoinKind, slots: int, seed: int, data: st.DataObject
) -> None:
    told = Told(case, kind, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, told.case, {"q": told.text}, slots=slots, controller=restless(seed))
        epochs = [*case.epochs, closing(case)]
        for epoch in epochs:
            harness.epoch(tables(told.case, epoch))
        assert stories.found(harness, "q") == told.expected(epochs), told.text


@FEW
@given(two_streams(max_rows=12), KINDS, SLOTS, st.integers(0, 999), st.data())
def test_grids_that_never_rest_spread_an_inner_join_and_leave_other_kinds_whole(
    case: Case, kind: JoinKind, slots: int, seed: int, data: st.DataObject
) -> None:
    """The inner join is on `v`, so its stores are its own, and their keys are spread; the others stay in one slot."""
    told = Told(case, kind, data)
    windows = "R [RANGE 4 SECONDS], S [RANGE 7 SECONDS]"
    inner = f"SELECT R.v AS a, S.v AS b FROM {windows} WHERE R.v = S.v"
    values = {row["v"] for stream in case.streams for row in stream.rows}
    keys = {row[name] for stream in case.streams for row in stream.rows for name in "kj" if row[name] is not None}
    hashes = hash_columns([pa.array(sorted(values | {k for k in keys if isinstance(k, int)}), pa.int64())])[0].tolist()
    grids = RestlessGrids(hashes, seed, max_dim=3)
    with TemporaryDirectory() as folder, often_compacted():
        texts = {"q": told.text, "inner": inner}
        harness = harness_of(folder, told.case, texts, slots=slots, regridder=grids)
        epochs = [*case.epochs, closing(case)]
        for epoch in epochs:
            harness.epoch(tables(told.case, epoch))
        assert stories.found(harness, "q") == told.expected(epochs), told.text
        streams = [
            oracle.Stream(s.name, [row for epoch in epochs for row in epoch.get(s.name, ())], w * SECOND)
            for s, w in zip(case.streams, (4, 7), strict=True)
        ]
        found = oracle.project(oracle.join(streams, [("R.v", "S.v")]), ["R.v", "S.v"])
        assert stories.found(harness, "inner") == Counter(found)


@SOME
@given(two_streams(max_rows=12), KINDS, KINDS, SLOTS, st.data())
def test_queries_of_all_kinds_come_and_go_and_share_their_stores(
    case: Case, kind: JoinKind, other: JoinKind, slots: int, data: st.DataObject
) -> None:
    """One is there throughout, beside an inner join; another sees what arrives while it is there."""
    told, later = Told(case, kind, data), Told(case, other, data)
    windows = "R [RANGE 4 SECONDS], S [RANGE 7 SECONDS]"
    inner = f"SELECT R.v AS a, S.v AS b FROM {windows} WHERE {stories.equal(case.equalities)}"
    epochs = [*case.epochs, closing(case)]
    begin = data.draw(st.integers(0, len(epochs) - 1), label="submitted")
    end = data.draw(st.integers(begin, len(epochs)), label="withdrawn")
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": told.text, "inner": inner}, slots=slots)
        for number, epoch in enumerate(epochs):
            if number == begin:
                harness.submit("later", later.text)
            if number == end:
                harness.withdraw("later")
            harness.epoch(tables(case, epoch))
        assert stories.found(harness, "q") == told.expected(epochs), told.text
        assert stories.found(harness, "later") == later.expected(epochs, begin, end), later.text
        streams = [replace(s, window_us=w * SECOND) for s, w in zip(case.streams, (4, 7), strict=True)]
        found = oracle.project(oracle.join(streams, case.equalities), ["R.v", "S.v"])
        assert stories.found(harness, "inner") == Counter(found)


@pytest.mark.parametrize("kind", [kind for kind in JoinKind if kind is not JoinKind.INNER], ids=lambda k: k.value)
def test_late_rows_are_late_for_every_kind(kind: JoinKind, tmp_path: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])

    def rows(*own: tuple[int | None, int, int]) -> pa.Table:
        return pa.table(list(zip(*[(k, v, ts * SECOND) for k, v, ts in own], strict=True)), schema=schema)

    shown = "R.v AS a, S.v AS b" if len(kind.shown) == 2 else "R.v AS a"
    text = f"SELECT {shown} FROM R [RANGE 2 SECONDS] {kind.words} S [RANGE 2 SECONDS] ON R.k = S.k"
    harness = QueryHarness(tmp_path, {"R": schema, "S": schema}, {"q": text})
    harness.epoch({"R": rows((1, 1, 100)), "S": rows((2, 2, 100))})
    harness.epoch({"R": rows((2, 3, 50), (None, 4, 50)), "S": rows((1, 5, 50))})
    harness.epoch({"R": rows((7, 6, 200)), "S": rows((8, 7, 200))})
    found = {value for row in harness.results("q") for value in row.values()}
    assert found.isdisjoint({3, 4, 5})


def test_the_inner_join_and_the_left_join_of_two_streams_share_one_store(tmp_path: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    windows = "R [RANGE 2 SECONDS] {} S [RANGE 3 SECONDS] ON R.k = S.k"
    texts = {"inner": f"SELECT R.v AS a FROM {windows.format('JOIN')}"}
    texts["left"] = f"SELECT R.v AS a FROM {windows.format('LEFT JOIN')}"
    plan = QueryHarness(tmp_path, {"R": schema, "S": schema}, texts).plan
    assert [(store.name, store.window_us) for store in plan.stores] == [
        ("R[CAST(`k` AS bigint)]", 2 * SECOND),
        ("S[CAST(`k` AS bigint)]", 5 * SECOND),
        ("R[CAST(`k` AS bigint)] without key", 2 * SECOND),
    ]


def steady(rng: Any, names: str = "RS", most_rows: int = 13) -> Case:
    """Streams that advance together, with few keys, so that rows come, match, close and expire in every epoch."""
    windows = rng.integers(0, 12, len(names)) * (rng.random(len(names)) < 0.8)
    delays = rng.integers(0, 4, len(names))
    n_epochs, n_rows = 8, int(rng.integers(2, most_rows + 1))
    keys: list[int | None] = [*range(int(rng.integers(1, 8))), None]
    epochs: list[oracle.Epoch] = []
    for epoch in range(n_epochs):
        own = {}
        for name, delay in zip(names, delays, strict=True):
            times = np.sort(rng.integers(5 * epoch, 5 * epoch + 5, n_rows)) - rng.integers(0, delay + 1, n_rows)
            own[name] = [
                {"k": keys[rng.integers(len(keys))], "j": [0, 1, 2, None][rng.integers(4)], "v": int(rng.integers(9))}
                | {"ts": int(time) * SECOND}
                for time in np.maximum(times, 5 * epoch - delay)
            ]
        epochs.append(own)
    streams = tuple(
        oracle.Stream(name, [row for epoch in epochs for row in epoch[name]], int(window) * SECOND)
        for name, window in zip(names, windows, strict=True)
    )
    schema = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    delays_us = {name: int(delay) * SECOND for name, delay in zip(names, delays, strict=True)}
    return Case(streams, (("R.k", "S.k"),), delays_us, tuple(epochs), schema)


class Drawn:
    """What `st.data` is to Hypothesis, of a seed."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def draw(self, strategy: Any, label: str = "") -> Any:
        if label == "interval":
            return (int(self.rng.integers(-6, 7)), int(self.rng.integers(9))) if self.rng.integers(2) else None
        if label == "ON":
            return list(self.rng.permutation(sorted(CONDITIONS))[: self.rng.integers(0, 3)])
        return bool(self.rng.integers(2))


@pytest.mark.parametrize("seed", range(examples(30, least=3)))
@pytest.mark.parametrize("kind", [kind for kind in JoinKind if kind is not JoinKind.INNER], ids=lambda k: k.value)
def test_streams_that_go_on_and_on_are_decided_epoch_by_epoch(kind: JoinKind, seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng([seed, 18])
    case = steady(rng)
    told: Any = Told(case, kind, Drawn(rng))
    with often_compacted():
        harness = harness_of(tmp_path, case, {"q": told.text}, slots=int(rng.integers(1, 4)))
        epochs = [*case.epochs, closing(case)]
        for number, epoch in enumerate(epochs):
            harness.epoch(tables(case, epoch))
            if rng.random() < 0.3:
                harness.restart(int(rng.integers(1, 5)))
            assert stories.found(harness, "q") == told.expected(epochs[: number + 1]), told.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in JoinKind if kind is not JoinKind.INNER], ids=lambda k: k.value)
def test_every_kind_survives_every_fault_point(kind: JoinKind, tmp_path: Any) -> None:
    """Two deaths an epoch, at one point after the other, each followed by a start with other slots."""
    rng = np.random.default_rng([18, 9])
    case = steady(rng)
    told: Any = Told(case, kind, Drawn(rng))
    epochs, points = [*case.epochs, closing(case)], list(POINTS)
    with often_compacted():
        harness = harness_of(tmp_path, case, {"q": told.text}, slots=2)
        for number, epoch in enumerate(epochs):
            rows = tables(case, epoch)
            n_left = len(epochs) - number
            for _ in range(-(-len(points) // n_left)):
                if harness.manifest.epoch < number:
                    with_a_fault(harness, points.pop(0), number, rows)
                    harness.restart(1 + number % 3)
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            assert stories.found(harness, "q") == told.expected(epochs[: number + 1]), told.text
    assert all(point.startswith("clean-up") for point in points), "nothing is pushed here, and cleaned up"


@pytest.mark.parametrize("kind", [kind for kind in JoinKind if kind is not JoinKind.INNER], ids=lambda k: k.value)
def test_thousands_of_rows_are_joined_as_by_duckdb(kind: JoinKind, tmp_path: Any) -> None:
    """Times are distinct within a stream, so that the newest partner is one."""
    rng = np.random.default_rng(18)
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    n_epochs, n_rows = 6, 700
    streams: dict[str, list[pa.Table]] = {"R": [], "S": []}
    for epoch in range(n_epochs):
        for name, own in streams.items():
            times = np.sort(rng.choice(3 * n_rows, n_rows, replace=False)) + 3 * n_rows * epoch
            keys = pa.array([f"key {k}" if k else None for k in rng.zipf(1.5, n_rows) % 200], pa.string())
            own.append(pa.table([keys, rng.integers(0, 99, n_rows), times * SECOND], schema=schema))
            del name
    batch = [
        BatchStream(name, pa.concat_tables(own), window * SECOND)
        for (name, own), window in zip(streams.items(), (120, 300), strict=True)
    ]
    shown = {"rv": "R.v", "rk": "R.k", **({"sv": "S.v", "sk": "S.k"} if len(kind.shown) == 2 else {})}
    select = ", ".join(f"{sql} AS {name}" for name, sql in shown.items())
    on = "" if kind.is_asof else " AND R.v <= S.v + 50"
    text = f"SELECT {select} FROM R [RANGE 120 SECONDS] {kind.words} S [RANGE 300 SECONDS] ON R.k = S.k{on}"
    harness = QueryHarness(tmp_path, {"R": schema, "S": schema}, {"q": text}, slots=3)
    for number in range(n_epochs):
        harness.epoch({name: own[number] for name, own in streams.items()})
    harness.epoch({n: pa.table([[f"last of {n}"], [-1], [10**6 * SECOND]], schema=schema) for n in streams})
    predicates = [] if kind.is_asof else ["R.v <= S.v + 50"]
    expected = batch_join_of_kind(kind.value, (batch[0], batch[1]), [("R.k", "S.k")], shown, predicates)
    found = pa.Table.from_pylist(harness.results("q"), expected.schema)
    told = same_rows(found, expected)
    assert told, str(told)
    assert expected.num_rows > 500


@FEW
@given(two_streams(max_rows=12), KINDS, SLOTS, SPILLS, st.data())
def test_another_kind_of_join_comes_to_state_that_was_pushed_and_goes(
    case: Case, kind: JoinKind, slots: int, spills: Any, data: st.DataObject
) -> None:
    """An inner join whose state is pushed at random, before another kind shares its stores, beside it and after it."""
    told = Told(case, kind, data)
    windows = "R [RANGE 4 SECONDS], S [RANGE 7 SECONDS]"
    inner = f"SELECT R.v AS a, S.v AS b FROM {windows} WHERE {stories.equal(case.equalities)}"
    epochs = [*case.epochs, closing(case)]
    begin = data.draw(st.integers(0, len(epochs) - 1), label="submitted")
    end = data.draw(st.integers(begin + 1, len(epochs)), label="withdrawn")
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"inner": inner}, slots=slots, **spills)
        for number, epoch in enumerate(epochs):
            if number == begin:
                harness.submit("later", told.text)
            if number == end:
                harness.withdraw("later")
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert stories.found(harness, "later") == told.expected(epochs, begin, end), told.text
        streams = [replace(s, window_us=w * SECOND) for s, w in zip(case.streams, (4, 7), strict=True)]
        found = oracle.project(oracle.join(streams, case.equalities), ["R.v", "S.v"])
        assert stories.found(harness, "inner") == Counter(found)
