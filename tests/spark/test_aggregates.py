"""Aggregate queries on local Spark, epoch by epoch: against the oracle, over restarts, with every kind of GROUP BY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from braidstream.errors import QueryError, RunError
from braidstream.spark.flow import Flow
from braidstream.testing import oracle
from braidstream.workloads import append_files

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
        flow.files(name, folder / name, schema=DDL, time="ts", delay=delay, options={"maxFilesPerTrigger": "1"})
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


@pytest.mark.parametrize("streams", [("R", "S"), ("R", "S", "T")], ids=["two streams", "three streams"])
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


@pytest.mark.parametrize(
    ("outputs", "group", "where", "message"),
    [
        ("SUM(R.v * S.v) AS s", "", "", "aggregates over several streams"),
        ("COUNT(*) AS n", "", " AND R.v < S.v", "has a predicate between streams"),
        ("COUNT(*) AS n", "R.c, S.c", "", "groups by columns of several streams"),
        ("COUNT(*) AS epoch", "", "", "names an output 'epoch'"),
    ],
)
def test_what_would_enumerate_composites_is_refused_with_what_is_supported(
    spark: SparkSession, tmp_path: Path, outputs: str, group: str, where: str, message: str
) -> None:
    feed(tmp_path, ("R", "S"), EPOCHS[:1])
    flow = flow_of(spark, tmp_path, ("R", "S"))
    with pytest.raises(QueryError, match=message) as refused:
        flow.query(text_of(("R", "S"), outputs, group, where))
    assert refused.value.expected
