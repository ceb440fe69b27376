"""Aggregates over the window, epoch by epoch, against the oracle: every function, grouped and not, over several slots.

The driver below runs the two stages as the engine does, with the exchange in a dict and segments in memory. What must
not matter is changed at random: the number of slots, when segments are merged, whether they are read back from files.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidstream.errors import RunError
from braidstream.kernels.aggregates import (
    AggregateColumn,
    AggregateInput,
    Aggregation,
    Clock,
    GroupAggregator,
    KeyAggregator,
    Measure,
    alive_from,
)
from braidstream.kernels.exact import Exact, product
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.rows import HASH, KEY, TIME, Rows, sort_rows
from braidstream.kernels.summaries import ORDER, RUN, Summary, merge_summaries
from braidstream.lab.testing import oracle
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from tests.scale import examples

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
MANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=QUIET)
SOME = settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIET)

TYPES = {"w": pa.int64(), "x": pa.float64(), "d": pa.decimal128(20, 2), "s": pa.string(), "c": pa.string()}
SPACE = 1 << 64
TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass
class Driver:
    """Epochs of one aggregate query over slots in this process."""

    aggregation: Aggregation
    n_slots: int
    chance: Random
    collide: bool = False
    delays: Mapping[str, int] = field(default_factory=dict)
    epoch: int = -1
    watermark: int | None = None
    newest: dict[str, int] = field(default_factory=dict)
    segments: dict[str, list[Summary]] = field(default_factory=dict)
    """By store: each input, totals, leases. Slots share them; a slot sees its range of hashes."""

    def run(self, names: Sequence[str], tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
        """One epoch; gives its results."""
        self.epoch += 1
        before = self.watermark
        arrived = {n: Rows(r.table.filter(r.times >= before)) if before is not None else r
                   for n in names if (r := self._rows(tables[n])) is not None}  # fmt: skip
        self._advance(names, tables)
        clock = Clock(self.epoch, before, self.watermark)
        results, changes, leases = [], [], []
        kept: dict[str, list[Summary]] = {}
        for low, high in self._ranges():
            new = [_slice(arrived.get(name), low, high) for name in names]
            stored = [self._stored(f"input {i}", low, high) for i in range(len(names))]
            step = KeyAggregator(self.aggregation).step(new, stored, clock)
            for i, summary in enumerate(step.kept):
                kept.setdefault(f"input {i}", []).extend([summary] if summary is not None else [])
            results += [] if step.results is None else step.results.to_pylist()
            changes += [step.totals] if step.totals is not None else []
            leases += [step.leases] if step.leases is not None else []
        if not self.aggregation.local:
            for place, (low, high) in enumerate(self._ranges()):
                group = GroupAggregator(self.aggregation, place == 0 and not self.aggregation.group_by)
                stored_totals, stored_leases = self._stored("totals", low, high), self._stored("leases", low, high)
                made = group.step(
                    _parts(changes, low, high), _parts(leases, low, high), stored_totals, stored_leases, clock
                )
                kept.setdefault("totals", []).extend([made.totals] if made.totals else [])
                kept.setdefault("leases", []).extend([made.leases] if made.leases else [])
                results += made.results.to_pylist()
        for store, made_ in kept.items():
            self.segments.setdefault(store, []).extend(made_)
        self._compact()
        return results

    def restart(self, n_slots: int) -> None:
        """Read all segments back from files, and go on with other slots."""
        self.segments = {store: [_reread(s) for s in summaries] for store, summaries in self.segments.items()}
        self.n_slots = n_slots

    def _rows(self, table: pa.Table) -> Rows | None:
        hashes, valid = hash_columns([table.column("k").combine_chunks()])
        if self.collide:
            hashes &= np.uint64(3 << 62)
        columns = {HASH: pa.array(hashes.view(np.int64)), TIME: table.column("ts").cast(pa.int64())}
        columns[f"{KEY}0"] = table.column("k")
        columns |= {name: table.column(name) for name in table.column_names}
        made = pa.table(columns).filter(pa.array(valid))
        return sort_rows(made) if made.num_rows else None

    def _advance(self, names: Sequence[str], tables: Mapping[str, pa.Table]) -> None:
        for name in names:
            times = tables[name].column("ts").cast(pa.int64()).to_pylist()
            if times:
                self.newest[name] = max([self.newest.get(name, times[0]), *times])
        if len(self.newest) == len(names):
            reached = min(self.newest[name] - self.delays[name] for name in names)
            self.watermark = reached if self.watermark is None else max(reached, self.watermark)

    def _ranges(self) -> list[tuple[int, int]]:
        cuts = [i * SPACE // self.n_slots for i in range(self.n_slots + 1)]
        return [(low, high - 1) for low, high in itertools.pairwise(cuts)]

    def _stored(self, store: str, low: int, high: int) -> list[Summary]:
        return [replace(s, ranges=[(low, high)], _columns={}) for s in self.segments.get(store, [])]

    def _compact(self) -> None:
        for store, summaries in self.segments.items():
            if len(summaries) > 1 and self.chance.random() < 0.4:
                places = self.chance.sample(range(len(summaries)), self.chance.randint(2, len(summaries)))
                chosen = [summaries[place] for place in places]
                window = 0 if store == "leases" else None
                if store.startswith("input"):
                    window = self.aggregation.inputs[int(store.split()[1])].window_us
                merged = merge_summaries(chosen, alive_from(self.watermark, window))
                rest = [s for place, s in enumerate(summaries) if place not in places]
                self.segments[store] = [*rest, *([merged] if merged is not None else [])]


def _slice(rows: Rows | None, low: int, high: int) -> Rows | None:
    if rows is None:
        return None
    own = (rows.hashes >= np.uint64(low)) & (rows.hashes <= np.uint64(high))
    return Rows(rows.table.filter(pa.array(own)).combine_chunks()) if own.any() else None


def _parts(summaries: Sequence[Summary], low: int, high: int) -> list[pa.Table]:
    tables = []
    for summary in summaries:
        own = replace(summary, ranges=[(low, high)]).owned(summary.hashes)
        if own.any():
            tables.append(summary.table.drop_columns([RUN, ORDER]).filter(pa.array(own)))
    return tables


def _reread(summary: Summary) -> Summary:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, summary.table.schema) as writer:
        writer.write_table(summary.table.combine_chunks())
    return Summary(pa.ipc.open_file(sink.getvalue()).read_all())


def result_type(function: str, kind: pa.DataType) -> pa.DataType:
    if function == "count":
        return pa.int64()
    if function in ("min", "max"):
        return kind
    if pa.types.is_decimal(kind):
        more = (10, 0) if function == "sum" else (4, 4)
        return pa.decimal128(kind.precision + more[0], kind.scale + more[1])
    return pa.float64() if function == "avg" or pa.types.is_floating(kind) else pa.int64()


def aggregation_of(
    windows: Sequence[int | None],
    wanted: Sequence[tuple[str, int | None, str | None]],
    grouped: int = 0,
    group_by: Sequence[str] = (),
    types: Mapping[str, pa.DataType] = TYPES,
) -> Aggregation:
    """An aggregation of `wanted` (function, input, column)."""
    kinds = {**types, "k": types.get("k", pa.int64())}
    inputs = []
    for i, window in enumerate(windows):
        columns = dict.fromkeys(column for _, place, column in wanted if place == i and column)
        measures = tuple(
            Measure(
                column,
                kinds[column],
                any(f in ("sum", "avg") and (p, c) == (i, column) for f, p, c in wanted),
                ("min", i, column) in wanted,
                ("max", i, column) in wanted,
            )
            for column in columns
        )
        inputs.append(AggregateInput(i, window, None, measures))
    made = tuple(
        AggregateColumn(
            f"{function}_{place}_{column}", function, place, column,
            result_type(function, kinds[column] if column else pa.int64()),
            kinds[column].scale if column and pa.types.is_decimal(kinds[column]) else 0,
        )
        for function, place, column in wanted
    )  # fmt: skip
    fields = [pa.field(f"group_{name}", kinds[name]) for name in group_by]
    fields += [pa.field(column.name, column.type) for column in made]
    schema = pa.schema([*fields, ("epoch", pa.int64()), ("watermark", TIMESTAMP)])
    groups = tuple((f"group_{name}", name) for name in group_by)
    return Aggregation("q", tuple(inputs), grouped, groups, "k" in group_by, made, schema)


@st.composite
def aggregate_cases(draw: Any, grouping: Sequence[tuple[str, ...]]) -> tuple[Case, list[Any], int, tuple[str, ...]]:
    """A case on one key with further columns, the aggregates wanted, the grouped input and the group columns."""
    cases = st.one_of(two_streams(), many_streams(max_streams=4, max_rows=8))
    case = draw(cases.filter(lambda c: all(name.endswith(".k") for pair in c.equalities for name in pair)))
    palettes = {
        "w": draw(st.lists(st.none() | st.integers(-5, 5) | st.integers(-(2**52), 2**52), min_size=1, max_size=6)),
        "x": draw(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=6)),
        "d": draw(st.lists(st.none() | st.decimals(-999, 10**9, places=2), min_size=1, max_size=6)),
        "s": draw(st.lists(st.none() | st.text("abü", max_size=2), min_size=1, max_size=6)),
        "c": draw(st.lists(st.none() | st.sampled_from("pqr"), min_size=1, max_size=6)),
    }

    def more(row: Mapping[str, Any], shift: int) -> dict[str, Any]:
        return {**row, **{name: values[(row["v"] + shift) % len(values)] for name, values in palettes.items()}}

    names = [stream.name for stream in case.streams]
    shifts = {name: i for i, name in enumerate(names)}
    epochs = tuple({n: [more(row, shifts[n]) for row in rows] for n, rows in e.items()} for e in case.epochs)
    columns = st.sampled_from("wxds")
    anything = st.tuples(st.sampled_from(["count", "min", "max"]), st.integers(0, len(names) - 1), columns)
    numeric = st.tuples(st.sampled_from(["sum", "avg"]), st.integers(0, len(names) - 1), st.sampled_from("wxd"))
    star = st.just(("count", None, None))
    wanted = draw(st.lists(st.one_of(anything, numeric, star), min_size=1, max_size=5, unique=True))
    group_by = draw(st.sampled_from(grouping))
    schema = pa.schema([*case.schema, *TYPES.items()])
    return replace(case, epochs=epochs, schema=schema), wanted, draw(st.integers(0, len(names) - 1)), group_by


def expected(
    case: Case, n_epochs: int, watermark: int | None, wanted: Sequence[Any], grouped: int, group_by: Sequence[str]
) -> list[tuple[Any, ...]]:
    on_time, _ = oracle.split_late(case.epochs[:n_epochs], case.delays_us)
    streams = [replace(stream, rows=on_time[stream.name]) for stream in case.streams]
    names = [stream.name for stream in case.streams]
    aggregates = [oracle.Aggregate(f.upper(), None if c is None else f"{names[p]}.{c}") for f, p, c in wanted]
    at = -(1 << 60) if watermark is None else watermark
    by = [f"{names[grouped]}.{column}" for column in group_by]
    return oracle.aggregate(streams, case.equalities, aggregates, watermark_us=at, group_by=by)


def close(found: Any, right: Any) -> bool:
    if isinstance(right, float) and isinstance(found, float):
        return math.isclose(found, right, rel_tol=1e-9, abs_tol=1e-6)
    if isinstance(found, Decimal) and isinstance(right, Decimal):
        return abs(found - right) <= Decimal("0.00005")  # the oracle's quotient has other digits
    return bool(found == right)


def all_close(found: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(found) == len(right) and all(map(close, found, right))


def key_type(case: Case) -> dict[str, pa.DataType]:
    return {**TYPES, "k": case.schema.field("k").type}


def drive(data: st.DataObject, case: Case, aggregation: Aggregation) -> Any:
    """Epoch by epoch: the results and the watermark."""
    driver = Driver(
        aggregation,
        data.draw(st.integers(1, 4), "slots"),
        data.draw(st.randoms(use_true_random=False)),
        data.draw(st.booleans(), "collide"),
        case.delays_us,
    )
    names = [stream.name for stream in case.streams]
    for epoch in case.epochs:
        tables = {n: pa.Table.from_pylist(list(epoch.get(n, ())), case.schema) for n in names}
        yield driver.run(names, tables), driver.watermark
        if data.draw(st.booleans(), "restart"):
            driver.restart(data.draw(st.integers(1, 4), "slots"))


@MANY
@given(st.data(), aggregate_cases([()]))
def test_without_group_by_there_is_one_row_an_epoch(data: st.DataObject, made: Any) -> None:
    case, wanted, _, _ = made
    aggregation = aggregation_of([s.window_us for s in case.streams], wanted, types=key_type(case))
    for n, (rows, watermark) in enumerate(drive(data, case, aggregation), start=1):
        (right,) = expected(case, n, watermark, wanted, 0, ())
        (row,) = rows
        *found, epoch, at = row.values()
        assert all_close(found, right), (found, right)
        assert epoch == n - 1
        assert (None if at is None else round(at.timestamp() * 1e6)) == watermark


@MANY
@given(st.data(), aggregate_cases([("k",), ("c",), ("k", "c"), ("x",), ("w", "c")]))
def test_groups_that_changed_are_given_with_their_new_values(data: st.DataObject, made: Any) -> None:
    case, wanted, grouped, group_by = made
    wanted = [("count", None, None), *(w for w in wanted if w != ("count", None, None))]
    aggregation = aggregation_of([s.window_us for s in case.streams], wanted, grouped, group_by, key_type(case))
    view: dict[Any, tuple[Any, ...]] = {}
    for n, (rows, watermark) in enumerate(drive(data, case, aggregation), start=1):
        named = {tuple(list(row.values())[: len(group_by)]): tuple(row.values())[len(group_by) : -2] for row in rows}
        assert len(named) == len(rows)
        right = {
            row[: len(group_by)]: row[len(group_by) :]
            for row in expected(case, n, watermark, wanted, grouped, group_by)
        }
        for group, values in named.items():
            before = view.get(group)
            assert before != values
            if values[0]:
                view[group] = values
            else:
                assert before is not None
                assert all(value in (0, None) for value in values)
                del view[group]
        assert view.keys() == right.keys()
        for group, values in view.items():
            assert all_close(values, right[group]), (group, values, right[group])


@pytest.mark.parametrize("group_by", [("k",), ("c",)], ids=["of a key", "of several keys"])
def test_a_group_that_looks_as_before_is_not_given_again(group_by: tuple[str, ...]) -> None:
    wanted = [("count", None, None), ("avg", 0, "w"), ("min", 0, "d")]
    types = {**TYPES, "k": pa.int64()}
    driver = Driver(
        aggregation_of([10_000_000, None], wanted, 0, group_by, types), 2, Random(1), delays={"R": 0, "S": 0}
    )
    schema = pa.schema([("k", pa.int64()), ("ts", TIMESTAMP), *TYPES.items()])

    def given_at(at_s: int, *values: tuple[int | None, Decimal | None]) -> list[tuple[Any, ...]]:
        same = {"k": 1, "ts": at_s * 1_000_000, "c": "p"}
        rows = pa.Table.from_pylist([{**same, "w": w, "d": d} for w, d in values], schema)
        driver.newest["S"] = at_s * 1_000_000
        s = pa.Table.from_pylist([{**same, "ts": 0}] if at_s == 0 else [], schema)
        return [tuple(row.values())[1:-2] for row in driver.run(["R", "S"], {"R": rows, "S": s})]

    assert given_at(0, (4, Decimal(7)), (None, Decimal(5))) == [(2, 4.0, Decimal(5))]
    assert given_at(20, (4, None), (4, Decimal(5))) == [], "the same mean of more numbers, the same minimum of fewer"
    assert given_at(40, (None, None)) == [(1, None, None)]
    assert given_at(60, (None, None)) == []


def one_key(rows: Sequence[tuple[float, Any]], column: str) -> pa.Table:
    """Rows of key 1 at given seconds with a value each."""
    listed = [{"k": 1, "ts": round(at * 1_000_000), column: value} for at, value in rows]
    return pa.Table.from_pylist(listed, pa.schema([("k", pa.int64()), (column, TYPES[column]), ("ts", TIMESTAMP)]))


def follow(wanted: Sequence[Any], column: str, epochs: Sequence[Sequence[tuple[float, Any]]]) -> list[tuple[Any, ...]]:
    """The results, epoch by epoch, of R [10 s] with values joined with S [unbounded], which has one row."""
    driver = Driver(aggregation_of([10_000_000, None], wanted), 2, Random(1), delays={"R": 0, "S": 0})
    results = []
    for n, rows in enumerate(epochs):
        s = one_key([(0, None)] if n == 0 else [], column)
        if n:
            driver.newest["S"] = round(rows[-1][0] * 1_000_000)  # S says nothing more, but time goes on there
        (row,) = driver.run(["R", "S"], {"R": one_key(rows, column), "S": s})
        results.append(tuple(row.values())[:-2])
    return results


def test_what_is_not_a_number_is_gone_when_its_row_is() -> None:
    #  R:  1.5  inf      nan        2.5        (window 10 s)
    #      0s   5s       8s   ...   30s
    found = follow(
        [("sum", 0, "x"), ("avg", 0, "x"), ("min", 0, "x"), ("max", 0, "x")],
        "x",
        [[(0, 1.5)], [(5, math.inf)], [(8, math.nan)], [(17, 1e300)], [(30, 2.5)]],
    )
    assert found[0] == (1.5, 1.5, 1.5, 1.5)
    assert found[1] == (math.inf, math.inf, 1.5, math.inf)
    assert math.isnan(found[2][0])
    assert found[2][2] == 1.5
    assert math.isnan(found[2][3])  # NaN is larger than every number, as in Spark
    assert math.isnan(found[3][0])
    assert found[4] == (2.5, 2.5, 2.5, 2.5)


def test_a_sum_of_doubles_forgets_what_expired_exactly() -> None:
    found = follow([("sum", 0, "x")], "x", [[(0, 1e308), (0, 0.1)], [(6, 0.2)], [(12, 0.3)], [(40, 5e-324)]])
    assert found == [(1e308,), (1e308,), (0.5,), (5e-324,)]


def test_decimals_are_exact_and_averages_rounded_half_up() -> None:
    values = [Decimal("0.05"), Decimal("0.05"), Decimal("0.07")]
    found = follow([("sum", 0, "d"), ("avg", 0, "d"), ("min", 0, "d")], "d", [[(i, v) for i, v in enumerate(values)]])
    assert found == [(Decimal("0.17"), Decimal("0.056667"), Decimal("0.05"))]


def test_a_sum_may_leave_the_range_of_its_type_in_between_but_not_as_a_result() -> None:
    top = 2**63 - 1
    assert follow([("sum", 0, "w")], "w", [[(0, top), (0, top), (0, -top)]]) == [(top,)]
    with pytest.raises(RunError, match=r"query 'q': 'sum_0_w' does not fit in int64"):
        follow([("sum", 0, "w")], "w", [[(0, top), (0, 1)]])


def test_a_hot_key_counts_composites_that_could_never_be_listed() -> None:
    n_rows, n_epochs = 60_000, 3
    chance = np.random.default_rng(5)
    driver = Driver(
        aggregation_of([None, None, 10_000_000], [("count", None, None)]), 3, Random(2), delays=dict.fromkeys("RST", 0)
    )
    drawn: dict[str, list[Any]] = {"R": [], "S": [], "T": []}
    result: dict[str, Any] = {}
    for epoch in range(n_epochs):
        tables = {}
        for name in "RST":
            keys = np.where(chance.random(n_rows) < 0.3, 7, chance.integers(0, 50_000, n_rows))
            drawn[name].append(keys)
            times = pa.array(np.full(n_rows, epoch * 6_000_000)).cast(TIMESTAMP)
            tables[name] = pa.table({"k": keys, "ts": times})
        (result,) = driver.run(["R", "S", "T"], tables)
    live = [np.concatenate(drawn[name][1 if name == "T" else 0 :]) for name in "RST"]
    counts = [np.bincount(keys, minlength=50_000).astype(object) for keys in live]
    right = int((counts[0] * counts[1] * counts[2]).sum())
    assert result["count_None_None"] == right
    assert right > 10**13


@MANY
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12))
def test_exact_sums_of_doubles_are_those_of_fractions(values: list[float]) -> None:
    exact = Exact.of_floats(np.array(values))
    assert exact.to_float64().tolist() == values
    right = sum(map(Fraction, values))
    found = exact.summed(np.array([0])).to_float64()[0]
    if abs(right) < Fraction(sys.float_info.max):
        assert abs(Fraction(found) - right) <= Fraction(math.ulp(float(right)))


@MANY
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**62)), min_size=1))
def test_exact_products_are_those_of_whole_numbers(values: list[tuple[int, int, int]]) -> None:
    numbers, *factors = (np.array(column, dtype=np.int64) for column in zip(*values, strict=True))
    right = [n * a * b for n, a, b in values]
    exact = Exact.of_ints(numbers).times(product(factors, len(values)))
    assert exact.to_objects().tolist() == right
    found, too_large = exact.to_int64()
    for number, is_too_large, expect in zip(found.tolist(), too_large.tolist(), right, strict=True):
        assert is_too_large == (not -(2**63) <= expect < 2**63)
        assert is_too_large or number == expect
    assert not exact.differs(exact.plus(exact).minus(exact)).any()
