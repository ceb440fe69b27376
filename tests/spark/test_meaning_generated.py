"""Random keys, predicates and outputs over all types: direct reading, general reading and Spark's batch join agree.

A flow has many queries over the same two streams, so that a thousand cases are some dozens of flows. `--seed N` draws
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from braidstream import Flow
from braidstream.errors import InputError
from tests.scale import examples
from tests.spark.meanings import (
    DDL,
    Answer,
    Case,
    batch,
    draw,
    draw_expressions,
    rows_of,
    sound,
    types_of,
    write_streams,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCUMENTED = {
    "do not compare": "keys of different kinds need a cast",
    "are compared as": "keys with a collation, or intervals of months",
    "no join predicate": "an equality that Spark reads as part of another predicate joins nothing",
    "two output columns": "names that are equal",
    "gives another value when": "what a replayed epoch would compute otherwise, such as the time of day",
}
"""What a flow refuses although Spark takes it, by words of the message; docs/guide.md names each."""


@dataclass
class Found:
    """What became of the cases."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def difference(self, case: Case, what: str) -> None:
        self.counts["different"] += 1
        self.differences.append(f"{what}\n    {case.cql}")
        print(self.differences[-1], flush=True)


def run_cases(
    spark: SparkSession,
    folder: Path,
    seed: int,
    n_cases: int,
    found: Found,
    *,
    direct: bool,
    sink: str,
    files: int,
    deep: int = 0,
) -> None:
    """One flow each way over random streams, and Spark's batch join beside it; with so many deep outputs each."""
    random = Random(f"{seed} {direct}")
    write_streams(folder, random, rows=48, files=files)
    for name in "RS":
        spark.read.schema(DDL).parquet(str(folder / name)).coalesce(1).cache().createOrReplaceTempView(name)
    cases: dict[str, tuple[Case, Answer]] = {}
    flows = {way: _flow(spark, folder, way, files) for way in ("direct", "general")}
    while len(cases) < n_cases and found.counts["drawn"] < 40 * n_cases + found.counts["cases"] * 4:
        found.counts["drawn"] += 1
        case = _deep_case(spark, random, found, deep, direct=direct) if deep else draw(random, direct=direct)
        if case is None:
            continue
        answer = batch(spark, case)
        if answer.failed:
            found.counts["Spark fails while it runs"] += 1
            continue
        name = f"q{len(cases)}"
        if _is_taken(flows, name, case, answer, found):
            cases[name] = (case, answer)
            found.counts["expressions"] += case.n_expressions
    for way, flow in flows.items():
        if direct and way == "direct":
            assert flow.explain().count("Parquet files read in the routing task") == 2
        _run(flow, folder, way, sink)
        for name, (case, answer) in cases.items():
            _compare(spark, flow, folder, way, name, case, answer, found, sink)
    found.counts["cases"] += len(cases)
    spark.catalog.clearCache()


def _deep_case(spark: SparkSession, random: Random, found: Found, n_outputs: int, *, direct: bool) -> Case | None:
    """Deep expressions of which Spark can compute all; what it cannot is no case."""
    case = sound(spark, draw_expressions(random, n_outputs, direct=direct))
    found.counts["drawn, and not computed by Spark"] += case is None
    return case


def _is_taken(flows: dict[str, Flow], name: str, case: Case, answer: Answer, found: Found) -> bool:
    """Whether both flows take the case; what Spark refuses must be refused, and by both ways alike."""
    refusals = []
    for flow in flows.values():
        refusal = _refusal(flow, name, case)
        refusals += [] if refusal is None else [refusal]
    if answer.refused:
        found.counts["refused by Spark and by the flow"] += len(refusals) == len(flows)
        if len(refusals) < len(flows):
            found.difference(case, f"Spark refuses it, the flow does not: {answer.refused}")
            for flow in flows.values():
                flow._queries.pop(name, None)
        return False
    if not refusals:
        return True
    reason = next((why for words, why in DOCUMENTED.items() if words in refusals[0]), None)
    if reason is None or len(refusals) < len(flows):
        found.difference(case, f"refused without a documented reason: {refusals[0]}")
    found.counts[f"refused: {reason}"] += 1
    return False


def _refusal(flow: Flow, name: str, case: Case) -> str | None:
    try:
        flow.query(case.cql, name)
    except InputError as error:
        return str(error)
    return None


def _flow(spark: SparkSession, folder: Path, way: str, files: int) -> Flow:
    flow = Flow(spark, way, slots=2, groups=4)
    options = {"maxFilesPerTrigger": "1"} if files > 1 else {}
    for name in "RS":
        path = folder / name
        if way == "direct":
            flow.files(name, path, schema=DDL, time="ts", delay="1 hour", options=options)
        else:
            frame = spark.readStream.schema(DDL).options(**options).parquet(str(path))
            flow.stream(name, frame, time="ts", delay="1 hour")
    return flow


def _run(flow: Flow, folder: Path, way: str, sink: str) -> None:
    for name in flow.names:
        path = str(folder / way / name) if sink == "parquet" else None
        flow._queries[name].to(sink, path)
    flow.start(folder / f"checkpoint-{way}", warm=False).await_termination()


def _compare(
    spark: SparkSession,
    flow: Flow,
    folder: Path,
    way: str,
    name: str,
    case: Case,
    answer: Answer,
    found: Found,
    sink: str,
) -> None:
    rows, types = _results(spark, flow, folder / way / name, name, sink)
    if rows != answer.rows:
        assert answer.rows is not None
        missing, more = answer.rows - rows, rows - answer.rows
        shown = (
            f"{sum(missing.values())} missing, e.g. {list(missing)[:1]}; {sum(more.values())} more: {list(more)[:1]}"
        )
        found.difference(case, f"{way}: {rows.total()} rows for {answer.rows.total()}: {shown}")
    elif types is not None and types != answer.types:
        found.difference(case, f"{way}: types {types} for {answer.types}")
    found.counts["rows"] += rows.total()


def _results(spark: SparkSession, flow: Flow, path: Path, name: str, sink: str) -> tuple[Counter[Any], Any]:
    if sink == "memory":
        return rows_of(flow._queries[name].sink.table()), None  # type: ignore[union-attr]
    if not list(path.glob("*.parquet")):
        return Counter(), None
    frame = spark.read.parquet(str(path))
    return rows_of(frame.toArrow()), types_of(frame.schema.jsonValue())


def _report(found: Found) -> str:
    counts = "\n".join(f"  {what}: {n}" for what, n in sorted(found.counts.items()))
    return f"\n{counts}\n" + "\n".join(found.differences[:20])


SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""Interpreted expressions: they mean the same, and rows are few, so that compiling them would be most of the time."""


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, without compiling expressions."""
    settings = {**SETTINGS, "spark.sql.session.timeZone": "UTC"}
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield spark
    finally:
        for name, known in before.items():
            _ = spark.conf.unset(name) if known is None else spark.conf.set(name, known)


def test_direct_general_and_batch_agree_on_random_expressions(
    interpreted: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found, seed = Found(), request.config.getoption("--seed")
    run_cases(interpreted, tmp_path / "a", seed, examples(12, least=4), found, direct=False, sink="parquet", files=1)
    run_cases(interpreted, tmp_path / "b", seed, examples(8, least=3), found, direct=True, sink="memory", files=2)
    assert not found.differences, _report(found)


ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Europe/Berlin", "Pacific/Apia", "America/St_Johns")


@pytest.mark.slow
def test_deep_expressions_agree(interpreted: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found, seed = Found(), request.config.getoption("--seed")
    for number, zone in enumerate(("Europe/Berlin", "America/New_York")):
        interpreted.conf.set("spark.sql.session.timeZone", zone)
        run_cases(
            interpreted, tmp_path / zone.replace("/", "-"), seed, examples(12, least=3), found,
            direct=number == 1, sink="memory", files=1, deep=12,
        )  # fmt: skip
    assert not found.differences, _report(found)


@pytest.mark.acceptance
def test_five_thousand_expressions_agree(
    interpreted: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found, seed, chunk = Found(), request.config.getoption("--seed"), 0
    while found.counts["expressions"] < 5000:
        interpreted.conf.set("spark.sql.session.timeZone", ZONES[chunk % len(ZONES)])
        run_cases(
            interpreted, tmp_path / str(chunk), seed * 1000 + chunk, 10, found,
            direct=chunk % 4 == 3, sink="parquet" if chunk % 4 == 0 else "memory", files=1, deep=40,
        )  # fmt: skip
        print(chunk, ZONES[chunk % len(ZONES)], dict(found.counts), found.differences[-2:], flush=True)
        chunk += 1
    print(_report(found))
    assert not found.differences, _report(found)


@pytest.mark.acceptance
def test_a_thousand_cases_agree(interpreted: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found, seed = Found(), request.config.getoption("--seed")
    for chunk in range(25):
        zone = ("UTC", "America/New_York", "Asia/Kolkata")[chunk % 3]
        interpreted.conf.set("spark.sql.session.timeZone", zone)
        sink, files = "parquet" if chunk % 12 == 0 else "memory", 2 if chunk % 12 == 1 else 1
        run_cases(
            interpreted, tmp_path / str(chunk), seed * 1000 + chunk, 40, found,
            direct=chunk % 3 == 1, sink=sink, files=files,
        )  # fmt: skip
        print(chunk, zone, dict(found.counts), found.differences[-3:], flush=True)
    print(_report(found))
    assert found.counts["cases"] >= 1000, _report(found)
    assert not found.differences, _report(found)
