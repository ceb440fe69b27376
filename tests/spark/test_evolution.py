"""A flow that is declared otherwise on an old checkpoint: what is said, what goes on, what begins, to the row."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import BraidstreamError, CheckpointMismatch, RunError
from braidstream.model.declarations import Declared, Target
from braidstream.model.directory import Directory
from braidstream.model.faults import CHANGES, armed
from braidstream.model.values import changed
from braidstream.query.evolution import Held, Step
from braidstream.spark.evolving import Evolution, refuse_recognized
from braidstream.spark.flow import Flow
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.generations import pushed_stores
from braidstream.state.manifest import Manifest
from tests.spark.stage import DDL, declare, pairs
from tests.spark.test_changes import EPOCHS, SELECT, Stage

pytestmark = pytest.mark.spark

Declarations = dict[str, tuple[str, str]]
"""By name: the text, and the folder of its results."""
BASE: Declarations = {"q": (SELECT, "q"), "other": (SELECT + " AND R.v <= S.v", "other")}
OTHER = BASE["other"]
TYPED = SELECT.replace("R.v AS rv", "R.v AS rv, R.name AS name")
DOUBLED = SELECT.replace("R.v AS rv", "2 * R.v AS rv")


def flow_of(stage: Stage, declared: Declarations, ddl: str = DDL, **options: Any) -> Flow:
    flow = declare(Flow(stage.spark, **{**stage.options, **options}), stage.paths, ddl=ddl)
    for name, (text, folder) in declared.items():
        flow.query(text, name=name).to("parquet", path=stage.out(folder))
    return flow


def ran(stage: Stage, declared: Declarations, n_epochs: int = 2, **options: Any) -> tuple[str, ...]:
    for _ in range(n_epochs):
        stage.arrive()
    handle = stage.start(flow_of(stage, declared, **options), "available")
    assert handle.await_termination(120)
    return handle.changes


Pair = tuple[dict[str, Any], dict[str, Any]]


def both(r: Any, s: Any) -> tuple[Any, ...]:
    return (r["v"], s["v"])


def found_between(
    begin: int, end: int, since: int = 0, condition: Callable[[Any, Any], Any] = lambda r, s: True
) -> list[Pair]:
    """The pairs whose last row arrived in epochs from `begin` up to `end`, of rows that arrived from `since` on."""
    until = {repr(p) for p in pairs(EPOCHS[since:begin], (30, 30))}
    return [p for p in pairs(EPOCHS[since:end], (30, 30)) if repr(p) not in until and condition(*p)]


def rows(found: list[Pair], shown: Callable[[Any, Any], tuple[Any, ...]] = both) -> Counter[Any]:
    return Counter(shown(*pair) for pair in found)


ALL, OLD, NEW, LATER = ((0, 4, 0), (0, 2, 0), (2, 4, 2), (2, 4, 0))
"""All the time; until the change; from the change on, of rows since then; from the change on, of all rows."""
BEFORE = {name: (SELECT, name) for name in ("same", "gone", "old", "sent", "times", "sum", "typed", "some", "long")}
AFTER: Declarations = {
    "same": (SELECT, "same"),
    "new": (SELECT, "old"),
    "sent": (SELECT, "elsewhere"),
    "times": (DOUBLED, "times"),
    "sum": (SELECT + " AND R.v + S.v > 40", "sum"),
    "typed": (TYPED, "typed"),
    "some": (SELECT + " AND R.v > 5", "some"),
    "long": (SELECT.replace("R [RANGE 30", "R [RANGE 60"), "long"),
    "more": (SELECT, "more"),
}
TOLD = [
    r"query 'gone' is withdrawn: its results end with epoch 1$",
    r"query 'old' is called 'new' now: its state and its sink stay$",
    r"query 'sent' delivers to parquet files in .*elsewhere after epoch 1, until then to .*out/sent; its state stays$",
    r"query 'times' has other outputs or conditions after epoch 1: its state has all that it needs$",
    r"query 'sum' has other outputs or conditions after epoch 1: its state has all that it needs$",
    r"query 'typed' is another one now \(R.name was not stored\): the old one ends with epoch 1, the new one begins",
    r"query 'some' is another one now \(the condition on R is another: which stored rows pass it is not known\): ",
    r"query 'long' is another one now \(the window of R is 1 minute, rows were kept for 30 seconds\): ",
    r"query 'more' is added: it sees what arrives after epoch 1$",
]
until, later = rows(found_between(*OLD)), found_between(*LATER)
EXPECTED = {
    "same": rows(found_between(*ALL)),
    "gone": until,
    "old": rows(found_between(*ALL)),
    "sent": until,
    "elsewhere": rows(later),
    "times": until + rows(later, lambda r, s: (2 * r["v"], s["v"])),
    "sum": until + rows([p for p in later if p[0]["v"] + p[1]["v"] > 40]),
    "typed": until + rows(found_between(*NEW), lambda r, s: (r["v"], r["name"], s["v"])),
    "some": until + rows(found_between(*NEW, lambda r, s: r["v"] > 5)),
    "long": until + Counter(both(*p) for p in pairs(EPOCHS[2:4], (60, 30))),
    "more": rows(found_between(*NEW)),
}


def test_a_changed_declaration_is_said_and_done(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    assert ran(stage, BEFORE) == ()
    before = Checkpoint(str(tmp_path / "ck")).latest()
    lines = flow_of(stage, AFTER).check(tmp_path / "ck")
    assert Checkpoint(str(tmp_path / "ck")).latest() == before
    assert ran(stage, AFTER) == lines
    assert len(lines) == len(TOLD)
    for pattern, line in zip(TOLD, lines, strict=True):
        assert re.match(pattern, line), line
    for folder, wanted in EXPECTED.items():
        assert stage.found(folder) == wanted != Counter(), folder
    assert flow_of(stage, AFTER).check(tmp_path / "ck") == ()  # once is enough


DIED = ("after-results", "after-manifest", "change-settled", "change-committed")
RARELY = ("epoch-start", "after-join", "before-manifest", "change-prepared")


@pytest.mark.slow
@pytest.mark.parametrize("point", [*DIED, *(pytest.param(point, marks=pytest.mark.slow) for point in RARELY)])
def test_a_change_after_or_in_a_crash_gives_every_result_once(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """An epoch that was begun under the old declaration is replayed under the new one; nothing of both stays."""
    stage = Stage(spark, tmp_path)
    ran(stage, BASE)
    declared = {"q": (DOUBLED, "q2"), "called": OTHER, "more": (SELECT, "more")}
    if point in CHANGES:
        with armed(f"{point}:1:raise"), pytest.raises(Exception, match="injected"):
            ran(stage, declared, 2)
    else:
        with armed(f"{point}:2:raise"), pytest.raises(RunError):
            ran(stage, BASE, 2)
        if point != "after-manifest":
            assert Checkpoint(str(tmp_path / "ck")).latest().epoch == 1
    ran(stage, declared, 0)
    begun = 3 if point == "after-manifest" else 2
    assert stage.found("q") == rows(found_between(0, begun))
    assert stage.found("q2") == rows(found_between(begun, 4), lambda r, s: (2 * r["v"], s["v"]))
    assert stage.found("other") == rows(found_between(0, 4, 0, lambda r, s: r["v"] <= s["v"]))
    assert stage.found("more") == rows(found_between(begun, 4, begun)) != Counter()


def test_what_is_owed_to_a_query_that_ends_is_delivered_first(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, memory=1500, spill_share=1.0)
    flow = flow_of(stage, BASE)
    handle = stage.start(flow)
    for _ in range(3):
        stage.arrive(handle)
    assert pushed_stores(handle.manifest)
    handle.stop()
    last = Checkpoint(str(tmp_path / "ck")).latest().epoch
    changes = ran(stage, {"q": (TYPED, "q")}, 1)
    assert len(changes) == 2
    assert stage.found("other") == rows(found_between(0, 3, 0, lambda r, s: r["v"] <= s["v"]))
    new = rows(found_between(3, 4, 3), lambda r, s: (r["v"], r["name"], s["v"]))
    assert stage.found("q") == rows(found_between(0, 3)) + new
    assert last >= 2


@pytest.mark.slow
def test_what_is_owed_is_delivered_with_what_may_fail_of_the_old_query(spark: SparkSession, tmp_path: Path) -> None:
    """The new one computes other expressions of other streams, and nothing of joined rows."""
    text = (
        "SELECT R.k AS k, SUM({0} div ({0} % 5)) AS n FROM R [RANGE 30 SECONDS], S [RANGE 30 SECONDS] WHERE R.k = S.k"
    )
    divided = SELECT.replace("S.v AS sv", "S.v AS sv, 7 div (R.v % 5) AS d")
    stage = Stage(spark, tmp_path, memory=1500, spill_share=1.0)

    def declared(column: str, other: str) -> Flow:
        flow = flow_of(stage, {"n": (text.format(column) + " GROUP BY R.k", "n"), "q": (other, "q")})
        for name in "nq":
            flow._queries[name].bad("json", path=stage.out(f"bad-{name}"))
        return flow

    handle = stage.start(declared("R.v", divided))
    for _ in range(3):
        stage.arrive(handle)
    assert pushed_stores(handle.manifest)
    handle.stop()
    stage.arrive()
    after = stage.start(declared("S.v", SELECT), "available")
    assert after.await_termination(120)
    assert len(after.changes) == 2
    found = Counter((r, s) for file in Path(stage.out("q")).glob("part-*") for r, s in rows_of(file, "rv", "sv"))
    until = [pair for pair in found_between(0, 3) if pair[0]["v"] % 5]
    assert found == rows(until) + rows(found_between(3, 4))
    lines = [one for file in Path(stage.out("bad-q")).rglob("part-*") for one in file.read_text().splitlines()]
    failed = Counter((row["R"]["v"], row["S"]["v"]) for line in lines for row in [json.loads(json.loads(line)["row"])])
    assert failed == rows([pair for pair in found_between(0, 3) if not pair[0]["v"] % 5]) != Counter()


@pytest.mark.slow
@pytest.mark.parametrize("to", ["function", "memory"])
def test_a_flow_that_is_owed_results_and_stopped_at_a_row_goes_on_with_an_output_for_it(
    spark: SparkSession, tmp_path: Path, to: str
) -> None:
    """As it was declared it would stop again; what is owed goes where the query delivers now as before."""
    wrong = found_between(3, 4, 3)[0][0]["v"]
    failing = SELECT.replace("S.v AS sv", f"S.v AS sv, 7 div (R.v - {wrong}) AS d")
    stage, seen = Stage(spark, tmp_path, memory=1500, spill_share=1.0), dict[tuple[str, int], Counter[Any]]()

    def declared(*, has_bad: bool) -> Flow:
        flow = flow_of(stage, {})
        for name, text in (("q", failing), ("same", SELECT)):

            def take(frame: DataFrame, epoch: int, name: str = name) -> None:
                seen[name, epoch] = Counter((one.rv, one.sv) for one in frame.collect())

            query = flow.query(text, name).to("memory" if to == "memory" else take)
            if has_bad and name == "q":
                query.bad("json", path=stage.out("bad"))
        return flow

    before, stopped, after = (declared(has_bad=has_bad) for has_bad in (False, False, True))
    handle = stage.start(before)
    for _ in range(3):
        stage.arrive(handle)
    assert pushed_stores(handle.manifest)
    handle.stop()
    stage.arrive()
    with pytest.raises(BraidstreamError, match="DIVIDE_BY_ZERO"):
        stage.start(stopped, "available").await_termination(120)
    assert stage.start(after, "available").await_termination(120)
    results = {name: sum((own for (one, _), own in seen.items() if one == name), Counter()) for name in ("q", "same")}
    wanted = rows(found_between(0, 4))
    if to == "memory":  # that of flows that have ended is gone
        tables = {name: after._queries[name].table() for name in results}
        results = {name: in_memory(table) for name, table in tables.items() if table is not None}
        lost = in_memory(before._queries["same"].table()) + in_memory(stopped._queries["same"].table())
        assert lost
        wanted -= lost
    assert results["same"] == wanted
    assert results["q"] == Counter({pair: n for pair, n in wanted.items() if pair[0] != wrong})


@pytest.mark.parametrize("marks", [None, "other"])
def test_other_marks_of_an_output_for_bad_rows_are_refused_while_an_epoch_may_be_there(marks: str | None) -> None:
    """It would be taken again: the marks of before are what tells."""
    options = [{"table": "bad", "marks": "own"}, {"table": "bad", **({} if marks is None else {"marks": marks})}]
    before, after = (Target("postgresql", None, one) for one in options)
    queries = [{"q": Declared("same", sink=Target("noop"), bad=one)} for one in (before, after)]
    step = Step("redirect", "q", "")
    last = Manifest(2, Directory.of(4, 2), 2)
    had_bad = replace(last, notes=changed(last.notes, bad={"R": before}))
    refuse = partial(refuse_recognized, queries={}, shown="ck", is_begun=True, is_settled=False)
    with pytest.raises(CheckpointMismatch, match=r"epoch 3 of .* may be in the table of query 'q' already"):
        refuse(Evolution(Held(queries[0]), queries[1], {}, {}, (step,)), last=last)
    with pytest.raises(CheckpointMismatch, match="may be in the table of stream 'R', bad rows already"):
        refuse(Evolution(Held({}), {}, {}, {"R": after}), last=had_bad)
    refuse(Evolution(Held(queries[0]), queries[0], {}, {"R": before}, (step,)), last=had_bad)


def in_memory(table: pa.Table | None) -> Counter[Any]:
    return Counter((row["rv"], row["sv"]) for row in ([] if table is None else table.to_pylist()))


def rows_of(file: Path, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in pq.read_table(file).to_pylist()]


def test_a_column_is_added_to_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    ran(stage, BASE)
    wider = f"{DDL}, extra long"
    use = SELECT.replace("R.v AS rv", "R.v AS rv, R.extra AS extra")
    changes = ran(stage, {**BASE, "more": (use, "more")}, 2, ddl=wider)
    assert changes[0].startswith("stream 'R' has a column more: extra bigint")
    assert stage.found("q") == rows(found_between(*ALL))
    assert stage.found("more") == rows(found_between(*NEW), lambda r, s: (r["v"], None, s["v"]))
    for ddl in (DDL, wider.replace("extra long", "extra string"), wider.replace("name string, ", "")):
        with pytest.raises(CheckpointMismatch, match="stream 'R' differs: schema is"):
            ran(stage, BASE, 0, ddl=ddl)


@pytest.mark.slow
def test_what_came_and_went_while_it_ran_stays_so_beside_a_change(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    flow = flow_of(stage, BASE)
    handle = stage.start(flow)
    stage.arrive(handle)
    handle.withdraw("other")
    flow.submit(SELECT, name="came", to="parquet", path=stage.out("came"))
    stage.arrive(handle)
    handle.stop()
    changes = ran(stage, {"called": BASE["q"], "other": OTHER, "more": (SELECT, "more")}, 2)
    assert len(changes) == 2
    assert stage.found("q") == rows(found_between(0, 4))
    assert stage.found("other") == rows(found_between(0, 1, 0, lambda r, s: r["v"] <= s["v"]))
    assert stage.found("came") == rows(found_between(1, 4, 1))
    assert stage.found("more") == rows(found_between(2, 4, 2))


THREE = (
    "SELECT R.v AS rv, S.v AS sv, T.v AS tv FROM R [RANGE 30 SECONDS], S [RANGE 30 SECONDS], T [RANGE 30 SECONDS] "
    "WHERE R.k = S.k AND S.v = T.v"
)
TOTAL = "SELECT R.k AS k, COUNT(*) AS n FROM R [RANGE 60 SECONDS], S [RANGE 60 SECONDS] WHERE R.k = S.k GROUP BY R.k"


@pytest.mark.slow
def test_queries_with_stores_of_their_own_are_renamed_with_them(spark: SparkSession, tmp_path: Path) -> None:
    """A query of type 2 and an aggregate keep state under their names."""
    stage = Stage(spark, tmp_path)
    stage.paths["T"] = stage.paths["S"]
    before = {"q": (THREE, "q"), "n": (TOTAL, "n")}
    straight = Stage(spark, tmp_path / "straight")
    straight.paths["T"] = straight.paths["S"]
    ran(straight, before, 2)
    ran(straight, before, 2)
    ran(stage, before, 2)
    changes = ran(stage, {"a_query": (THREE, "q"), "zn": (TOTAL, "n")}, 2)
    assert [line.split(" now")[0] for line in changes] == ["query 'q' is called 'a_query'", "query 'n' is called 'zn'"]

    def table(one: Stage, name: str) -> Counter[Any]:
        files = sorted(Path(one.out(name)).glob("part-*.parquet"))
        return Counter(str(row) for row in pa.concat_tables([pq.read_table(f) for f in files]).to_pylist())

    assert table(stage, "q") == table(straight, "q") != Counter()
    assert table(stage, "n") == table(straight, "n") != Counter()
