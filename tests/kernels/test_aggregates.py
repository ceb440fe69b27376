"""Aggregates over the window, epoch by epoch, against the oracle: every function, grouped and not, over several slots.

The driver below runs the two stages as the engine does, with the exchange in a dict and segments in memory. What must
not matter is changed at random: the number of slots, when segments are merged, whether they are read back from files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.rows import HASH, KEY, TIME, Rows, sort_rows
from braidstream.kernels.summaries import ORDER, RUN, Summary, merge_summaries
from braidstream.testing import oracle
from braidstream.testing.strategies import Case, many_streams, two_streams

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
MANY = settings(max_examples=150, deadline=None, suppress_health_check=QUIET)
SOME = settings(max_examples=60, deadline=None, suppress_health_check=QUIET)

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
