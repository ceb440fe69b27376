"""Aggregate queries on local Spark, epoch by epoch: against the oracle, over restarts, with every kind of GROUP BY."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from braidstream.errors import QueryError, RunError
from braidstream.lab.testing import oracle
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECOND = 1_000_000
SCHEMA = pa.schema([
    ("k", pa.int64()), ("v", pa.int64()), ("x", pa.float64()), ("d", pa.decimal128(10, 2)), ("c", pa.string()),
    ("ts", pa.timestamp("us", tz="UTC")),
])  # fmt: skip
DDL = "k long, v long, x double, d decimal(10,2), c string, ts timestamp"
WINDOWS = {"R": 10 * SECOND, "S": 4 * SECOND, "T": None}


def rows(name: str, epoch: int) -> list[dict[str, Any]]:
    """Rows of one stream in one epoch: some out of order, some NULL, one hot key."""
    made = []
    for i in range(12):
        n = i * 7 + epoch * 3 + ord(name)
        at = (epoch * 5 + (n % 6)) * SECOND
        key = None if n % 11 == 0 else (1 if n % 3 else n % 4)
        made.append({
            "k": key, "v": None if n % 5 == 0 else n - 90, "x": n / 8, "d": Decimal(n) / 4, "c": "pqr"[n % 3], "ts": at,
        })  # fmt: skip
    return made


N_EPOCHS = 6
EPOCHS = [{name: rows(name, epoch) for name in WINDOWS} for epoch in range(N_EPOCHS)]
DELAYS = {"R": 6 * SECOND, "S": 0, "T": 2 * SECOND}


def flow_of(spark: SparkSession, folder: Path, streams: Sequence[str], slots: int = 2) -> Flow:
    flow = Flow(spark, slots=slots)
    for name in streams:
        delay = f"{DELAYS[name]} microseconds"
        one = {"maxFilesPerTrigger": "1"}
        flow.files(name, folder / name, schema=DDL, time="ts", delay=delay, options=one, order="modified")
    return flow


def feed(folder: Path, streams: Sequence[str], epochs: Sequence[Mapping[str, Any]]) -> None:
    for name in streams:
        append_files(folder / name, [pa.Table.from_pylist(epoch[name], SCHEMA) for epoch in epochs])


def text_of(streams: Sequence[str], outputs: str, group: str = "", where: str = "") -> str:
    ranges = {n: "UNBOUNDED" if w is None else f"{w // SECOND} SECONDS" for n, w in WINDOWS.items()}
    named = ", ".join(f"{name} [RANGE {ranges[name]}]" for name in streams)
    equal = " AND ".join(f"{streams[0]}.k = {other}.k" for other in streams[1:])
    return f"SELECT {outputs} FROM {named} WHERE {equal}{where}" + (f" GROUP BY {group}" if group else "")


def expected(
    streams: Sequence[str], n_epochs: int, wanted: Sequence[oracle.Aggregate], group_by: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    given = [{name: epoch[name] for name in streams} for epoch in EPOCHS[:n_epochs]]
    on_time, _ = oracle.split_late(given, {name: DELAYS[name] for name in streams})
    at = watermark(streams, n_epochs)
    made = [oracle.Stream(name, on_time[name], WINDOWS[name]) for name in streams]
    equalities = [(f"{streams[0]}.k", f"{other}.k") for other in streams[1:]]
    return oracle.aggregate(made, equalities, wanted, watermark_us=at, group_by=group_by)


def watermark(streams: Sequence[str], n_epochs: int) -> int:
    seen = {n: max(r["ts"] for epoch in EPOCHS[:n_epochs] for r in epoch[n]) for n in streams}
    return min(seen[name] - DELAYS[name] for name in streams)


def micros(time: datetime) -> int:
    return round(time.replace(tzinfo=time.tzinfo or timezone.utc).timestamp() * 1_000_000)


def run(flow: Flow, checkpoint: Path, sinks: Sequence[Any]) -> list[list[dict[str, Any]]]:
    flow.start(checkpoint, warm=False).await_termination()
    return [q.sink.table().to_pylist() for q in sinks]


@pytest.mark.parametrize(
    "streams", [("R", "S"), pytest.param(("R", "S", "T"), marks=pytest.mark.slow)], ids=["two streams", "three streams"]
)
def test_without_group_by_each_epoch_has_one_row_as_the_oracle_says(
    spark: SparkSession, tmp_path: Path, streams: Sequence[str]
) -> None:
    feed(tmp_path, streams, EPOCHS)
    flow = flow_of(spark, tmp_path, streams)
    query = flow.query(
        text_of(streams, "COUNT(*) AS n, COUNT(R.v) AS c, SUM(R.v) AS s, AVG(S.x) AS a, MIN(S.v) AS lo, MAX(R.c) AS hi")
    ).to("memory")
    (found,) = run(flow, tmp_path / "ck", [query])
    A = oracle.Aggregate  # noqa: N806
    wanted = [A("COUNT"), A("COUNT", "R.v"), A("SUM", "R.v"), A("AVG", "S.x"), A("MIN", "S.v"), A("MAX", "R.c")]
    assert [row["epoch"] for row in found] == list(range(N_EPOCHS))
    for n, row in enumerate(found, start=1):
        (right,) = expected(streams, n, wanted)
        assert tuple(row.values())[:-2] == pytest.approx(right)
        assert micros(row["watermark"]) == watermark(streams, n)


@pytest.mark.slow
def test_groups_by_key_by_column_and_by_both_change_as_the_oracle_says(spark: SparkSession, tmp_path: Path) -> None:
    streams = ("R", "S")
    feed(tmp_path, streams, EPOCHS)
    flow = flow_of(spark, tmp_path, streams, slots=3)
    outputs = "COUNT(*) AS n, SUM(S.v) AS s, MIN(R.x) AS lo, MAX(S.d) AS hi"
    grouped = {"S.k": ("R.k",), "R.c": ("R.c",), "R.c, R.k": ("R.c", "R.k")}
    queries = [
        flow.query(text_of(streams, f"{by}, {outputs}", by), f"q{i}").to("memory") for i, by in enumerate(grouped)
    ]
    A = oracle.Aggregate  # noqa: N806
    wanted = [A("COUNT"), A("SUM", "S.v"), A("MIN", "R.x"), A("MAX", "S.d")]
    for found, columns in zip(run(flow, tmp_path / "ck", queries), grouped.values(), strict=True):
        view: dict[Any, Any] = {}
        for n in range(1, N_EPOCHS + 1):
            for row in (row for row in found if row["epoch"] == n - 1):
                values = tuple(row.values())[:-2]
                group, rest = values[: len(columns)], values[len(columns) :]
                view.pop(group, None)
                if rest[0]:
                    view[group] = rest
                else:
                    assert rest == (0, None, None, None)
            right = {row[: len(columns)]: row[len(columns) :] for row in expected(streams, n, wanted, columns)}
            assert view == right
        assert len(found) < N_EPOCHS * 12


def test_a_restart_with_other_slots_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    streams = ("R", "S")
    text = text_of(streams, "R.c, COUNT(*) AS n, MAX(R.x) AS hi", "R.c")
    feed(tmp_path, streams, EPOCHS[:3])
    flow = flow_of(spark, tmp_path, streams, slots=2)
    first = run(flow, tmp_path / "ck", [flow.query(text).to("memory")])[0]
    feed(tmp_path, streams, EPOCHS[3:])
    again = flow_of(spark, tmp_path, streams, slots=3)
    second = run(again, tmp_path / "ck", [again.query(text).to("memory")])[0]
    view = {row["c"]: (row["n"], row["hi"]) for row in [*first, *second]}
    A = oracle.Aggregate  # noqa: N806
    right = {c: (n, hi) for c, n, hi in expected(streams, N_EPOCHS, [A("COUNT"), A("MAX", "R.x")], ["R.c"])}
    assert {c: v for c, v in view.items() if v[0]} == right


@pytest.mark.slow
def test_expressions_filters_and_outputs_over_aggregates(spark: SparkSession, tmp_path: Path) -> None:
    streams = ("R", "S")
    feed(tmp_path, streams, EPOCHS)
    flow = flow_of(spark, tmp_path, streams)
    text = text_of(streams, "SUM(R.x * R.v) / COUNT(*) AS q, MAX(upper(S.c)) AS m", where=" AND S.v > 0 AND R.c <> 'p'")
    beside = text_of(streams, "R.k AS k, S.v AS v", where=" AND S.v > 0")
    one, two = flow.query(text, "a").to("memory"), flow.query(beside, "b").to("memory")
    found, _ = run(flow, tmp_path / "ck", [one, two])
    assert set(found[0]) == {"q", "m", "epoch", "watermark"}
    on_time, _ = oracle.split_late([{n: e[n] for n in streams} for e in EPOCHS], {n: DELAYS[n] for n in streams})
    at = watermark(streams, N_EPOCHS)
    live = [
        (r, s)
        for r in on_time["R"]
        for s in on_time["S"]
        if r["k"] is not None and r["k"] == s["k"] and (s["v"] or 0) > 0 and r["c"] != "p"
        and r["ts"] + WINDOWS["R"] >= at and s["ts"] + WINDOWS["S"] >= at
    ]  # fmt: skip
    products = [r["x"] * r["v"] for r, _ in live if r["v"] is not None]
    assert live
    assert found[-1]["q"] == pytest.approx(sum(products) / len(live))
    assert found[-1]["m"] == max(s["c"].upper() for _, s in live)


def test_a_sum_that_does_not_fit_is_an_error_and_no_other_number(spark: SparkSession, tmp_path: Path) -> None:
    huge = {"k": 1, "v": 2**62, "x": 0.0, "d": Decimal(0), "c": "p", "ts": 0}
    feed(tmp_path, ("R", "S"), [{"R": [huge] * 2, "S": [huge] * 2}])
    flow = flow_of(spark, tmp_path, ("R", "S"))
    flow.query(text_of(("R", "S"), "SUM(R.v) AS total"), "big").to("memory")
    with pytest.raises(RunError, match=r"query 'big': 'total' does not fit"):
        flow.start(tmp_path / "ck", warm=False).await_termination()


@pytest.mark.slow
def test_queries_that_must_enumerate_composites_give_the_same_and_say_so(spark: SparkSession, tmp_path: Path) -> None:
    streams = ("R", "S")
    feed(tmp_path, streams, EPOCHS)
    flow = flow_of(spark, tmp_path, streams, slots=3)
    limited = " AND R.v < S.v"
    queries = [
        flow.query(text_of(streams, "COUNT(*) AS n, SUM(R.v * S.v) AS s, MAX(S.x - R.x) AS hi"), "products").to(
            "memory"
        ),
        flow.query(text_of(streams, "COUNT(*) AS n, MIN(R.x) AS lo", where=limited), "limited").to("memory"),
        flow.query(text_of(streams, "R.c, S.c AS d, COUNT(*) AS n, AVG(R.v) AS a", "R.c, S.c"), "pairs").to("memory"),
    ]
    assert flow.explain().count("enumerates composites") == 3
    products, limited_, pairs = run(flow, tmp_path / "ck", queries)
    view: dict[Any, Any] = {}
    for n in range(1, N_EPOCHS + 1):
        live = live_composites(streams, n)
        both = [(r, s) for r, s in live if r["v"] is not None and s["v"] is not None]
        (row,) = (row for row in products if row["epoch"] == n - 1)
        assert (row["n"], row["s"]) == (len(live), sum(r["v"] * s["v"] for r, s in both))
        assert row["hi"] == max(s["x"] - r["x"] for r, s in live)
        under = [r["x"] for r, s in both if r["v"] < s["v"]]
        (row,) = (row for row in limited_ if row["epoch"] == n - 1)
        assert (row["n"], row["lo"]) == (len(under), min(under, default=None))
        view |= {(row["c"], row["d"]): (row["n"], row["a"]) for row in pairs if row["epoch"] == n - 1}
        for group in {(r["c"], s["c"]) for r, s in live}:
            values = [r["v"] for r, s in live if (r["c"], s["c"]) == group and r["v"] is not None]
            n_own = sum((r["c"], s["c"]) == group for r, s in live)
            assert view[group] == (n_own, pytest.approx(sum(values) / len(values)) if values else None)
        assert {group for group, values in view.items() if values[0]} == {(r["c"], s["c"]) for r, s in live}
    assert not list((tmp_path / "ck" / "staged").iterdir())


@pytest.mark.slow
def test_aggregates_over_a_join_on_different_keys(spark: SparkSession, tmp_path: Path) -> None:
    streams = ("R", "S", "T")
    feed(tmp_path, streams, EPOCHS)
    flow = flow_of(spark, tmp_path, streams, slots=3)
    ranges = "R [RANGE 10 SECONDS], S [RANGE 4 SECONDS], T [RANGE UNBOUNDED]"
    joined = f"FROM {ranges} WHERE R.k = S.k AND S.v = T.v AND R.x < T.x"
    whole = flow.query(f"SELECT COUNT(*) AS n, SUM(T.v) AS s, MAX(R.x) AS hi {joined}", "whole").to("memory")
    groups = flow.query(f"SELECT R.c, COUNT(*) AS n, AVG(S.x + T.x) AS a {joined} GROUP BY R.c", "groups").to("memory")
    found, grouped = run(flow, tmp_path / "ck", [whole, groups])
    view: dict[Any, Any] = {}
    sizes = []
    for n in range(1, N_EPOCHS + 1):
        given = [{name: epoch[name] for name in streams} for epoch in EPOCHS[:n]]
        on_time, _ = oracle.split_late(given, DELAYS)
        at = watermark(streams, n)
        live = [[r for r in on_time[s] if WINDOWS[s] is None or r["ts"] + WINDOWS[s] >= at] for s in streams]
        right = [
            (r, s, t)
            for r, s, t in itertools.product(*live)
            if None not in (r["k"], s["v"]) and r["k"] == s["k"] and s["v"] == t["v"] and r["x"] < t["x"]
        ]
        sizes.append(len(right))
        (row,) = (row for row in found if row["epoch"] == n - 1)
        assert (row["n"], row["s"]) == (len(right), sum(t["v"] for _, _, t in right) if right else None)
        assert row["hi"] == max((r["x"] for r, _, _ in right), default=None)
        view |= {row["c"]: (row["n"], row["a"]) for row in grouped if row["epoch"] == n - 1}
        sums = {c: [s["x"] + t["x"] for r, s, t in right if r["c"] == c] for c in {r["c"] for r, _, _ in right}}
        wanted = {c: (len(values), pytest.approx(sum(values) / len(values))) for c, values in sums.items()}
        assert {c: values for c, values in view.items() if values[0]} == wanted
    assert max(sizes) > 5


def live_composites(streams: Sequence[str], n_epochs: int) -> list[tuple[dict[str, Any], ...]]:
    given = [{name: epoch[name] for name in streams} for epoch in EPOCHS[:n_epochs]]
    on_time, _ = oracle.split_late(given, {name: DELAYS[name] for name in streams})
    at = watermark(streams, n_epochs)
    live = [[r for r in on_time[n] if WINDOWS[n] is None or r["ts"] + WINDOWS[n] >= at] for n in streams]
    return [pair for pair in itertools.product(*live) if pair[0]["k"] is not None and len({r["k"] for r in pair}) == 1]


def test_a_query_submitted_while_running_starts_from_nothing(spark: SparkSession, tmp_path: Path) -> None:
    streams = ("R", "S")
    feed(tmp_path, streams, EPOCHS[:2])
    flow = flow_of(spark, tmp_path, streams)
    flow.query(text_of(streams, "COUNT(*) AS n"), "first").to("memory")
    handle = flow.start(tmp_path / "ck", epoch="100 milliseconds", warm=False)
    wait_for(lambda: len(handle.progress) >= 2)
    later = flow.submit(text_of(streams, "COUNT(*) AS n"), "later", "memory")
    feed(tmp_path, streams, EPOCHS[2:4])
    wait_for(lambda: len(handle.progress) >= 4)
    handle.stop()
    found = later.sink.table().to_pylist()[-1]  # type: ignore[union-attr]
    at = watermark(streams, 4)
    given = [{name: epoch[name] for name in streams} for epoch in EPOCHS[:4]]
    on_time, _ = oracle.split_late(given, {name: DELAYS[name] for name in streams})
    early, _ = oracle.split_late(given[:2], {name: DELAYS[name] for name in streams})
    made = [oracle.Stream(n, on_time[n][len(early[n]) :], WINDOWS[n]) for n in streams]
    assert [(found["n"],)] == oracle.aggregate(made, [("R.k", "S.k")], [oracle.Aggregate("COUNT")], watermark_us=at)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "this takes too long"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (text_of(("R", "S"), "COUNT(*) AS epoch"), "names an output 'epoch'"),
    ],
    ids=["a name of its own columns"],
)
def test_what_is_not_supported_is_refused_with_what_is(
    spark: SparkSession, tmp_path: Path, text: str, message: str
) -> None:
    feed(tmp_path, ("R", "S", "T"), EPOCHS[:1])
    flow = flow_of(spark, tmp_path, ("R", "S", "T"))
    with pytest.raises(QueryError, match=message) as refused:
        flow.query(text)
    assert refused.value.expected
