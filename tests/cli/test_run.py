"""`braid run`, `explain` and `state` in a process that has a Spark session already, which stays as it is."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from braidstream.cli.metric_view import MetricView
from braidstream.lab.workloads import append_files
from tests.cli.workshop import Braid, Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braidstream.cli.follow import Run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_a_job_gives_the_batch_join_and_leaves_the_session_alone(
    braid: Braid, workshop: Workshop, spark: SparkSession
) -> None:
    before = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.adaptive.enabled")}
    outcome = braid("run", workshop.job())
    assert outcome.code == 0, outcome
    assert workshop.verify()
    assert outcome.out.startswith("pairs: done after 3 epochs")
    assert "1,200 (R 600, S 600)" in outcome.out
    assert outcome.err.count("epoch ") == 3
    assert {name: spark.conf.get(name) for name in before} == before
    assert spark.range(3).count() == 3


def test_json_has_a_line_for_each_epoch_and_one_for_the_end(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("run", workshop.job(), "--json")
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["event"] for line in lines] == ["epoch", "epoch", "epoch", "end"]
    assert [line["epoch"] for line in lines[:3]] == [0, 1, 2]
    end = lines[-1]
    assert end["rows"] == {"R": 600, "S": 600}
    assert end["matches"]["pairs"] == sum(line["matches"]["pairs"] for line in lines[:3]) == workshop.verify().left_rows
    assert end["interrupted"] is False
    assert outcome.err == ""


def test_quiet_prints_nothing(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("run", workshop.job(), "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_a_second_run_goes_on_with_other_slots(braid: Braid, workshop: Workshop) -> None:
    held_back = [_take_last(workshop, name) for name in "RS"]
    assert braid("run", workshop.job(), "--quiet").code == 0
    assert "no new rows" in braid("run", workshop.job()).out
    for name, table in zip("RS", held_back, strict=True):
        append_files(workshop.folder / name, [table])
    checked = braid("check", workshop.job(("slots = 2", "slots = 3")))
    assert "goes on after epoch 1" in checked.out
    outcome = braid("run", workshop.job(("slots = 2", "slots = 3")), "--json")
    assert json.loads(outcome.out.splitlines()[0])["slots"] == 3
    assert workshop.verify()


def test_logs_as_json_are_an_object_a_line_and_metrics_are_served(
    braid: Braid, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}/metrics"
    scraped = []
    ended = MetricView.end

    def scrape(view: MetricView, run: Run) -> None:
        with urllib.request.urlopen(url) as answer:
            scraped.append(answer.read().decode())
        ended(view, run)

    monkeypatch.setattr(MetricView, "end", scrape)
    outcome = braid("run", workshop.job(), "--log-format", "json", "--metrics", port)
    assert outcome.code == 0, outcome
    lines = [json.loads(line) for line in outcome.err.splitlines()]
    assert {line["flow"] for line in lines} == {"pairs"}
    assert f"metrics at {url}" in [line["message"] for line in lines]
    n_matches = workshop.verify().left_rows
    assert [line["rows"] for line in lines if line["message"].endswith("committed")] == [400, 400, 400]
    assert sum(line.get("matches", 0) for line in lines if line.get("query") == "pairs") == n_matches
    assert lines[-1]["message"] == "done"
    assert f'braidstream_matches_total{{flow="pairs",query="pairs"}} {float(n_matches)}' in scraped[0]
    refused = braid("run", workshop.job(('path = "R"', 'path = "S"')), "--log-format", "json")
    assert refused.code == 2
    assert [json.loads(line)["level"] for line in refused.err.splitlines()][-1] == "error"
    (workshop.folder / "wrong.toml").write_text("[flow]\nslots = 'two'\n")
    unread = braid("run", workshop.folder / "wrong.toml", "--log-format", "json")
    assert unread.code == 2
    told = [json.loads(line) for line in unread.err.splitlines()]
    assert [(one["level"], one["flow"]) for one in told] == [("error", str(workshop.folder / "wrong.toml"))]


@pytest.mark.slow
def test_streams_of_other_formats_and_late_tuples(braid: Braid, workshop: Workshop, spark: SparkSession) -> None:
    """The same job over JSON files, with one tuple far too old in the last epoch: it goes to the late output."""
    for name in "RS":
        for file in sorted((workshop.folder / name).glob("*.parquet")):
            _to_json(file, workshop.folder / f"{name}_json")
    _write_json(workshop.folder / "R_json/late.json", ['{"k": 1, "v": -1, "ts": "1970-01-01T00:00:00Z"}'])
    job = workshop.job(
        ('format = "parquet"\npath = "R"', 'format = "json"\npath = "R_json"'),
        ('format = "parquet"\npath = "S"', 'format = "json"\npath = "S_json"'),
        ('path = "out/pairs" }', 'path = "out/pairs" }\nlate = { format = "parquet", path = "out/late" }'),
    )
    outcome = braid("run", job, "--json")
    assert outcome.code == 0, outcome
    end = json.loads(outcome.out.splitlines()[-1])
    assert end["late"] == {"R": 1, "S": 0}
    assert [row.v for row in spark.read.parquet(str(workshop.folder / "out/late/stream=R")).collect()] == [-1]
    assert workshop.verify()


def test_explain_says_what_the_job_will_do(braid: Braid, workshop: Workshop) -> None:
    before = workshop.tree()
    outcome = braid("explain", workshop.job())
    assert outcome.code == 0
    assert "flow pairs" in outcome.out
    assert "stream R: time ts, delay as measured from its files at the start" in outcome.out
    assert "stream S: time ts, delay 0 seconds" in outcome.out
    assert "window 10 seconds" in outcome.out
    assert "starts from the beginning" in outcome.out
    assert {**before, "job.toml": ""}.keys() == workshop.tree().keys()


def test_check_with_spark_resolves_what_cannot_be_told_without(braid: Braid, workshop: Workshop) -> None:
    job = workshop.job(("R.k AS k", "their_very_own(R.k) AS k"))
    before = workshop.tree()
    assert "not checked: the function their_very_own" in braid("check", job).out
    outcome = braid("check", job, "--spark")
    assert outcome.code == 2
    assert "there is no function 'their_very_own'" in outcome.err
    assert workshop.tree() == before
    assert braid("check", workshop.job(), "--spark").code == 0


def test_state_says_what_the_checkpoint_holds(braid: Braid, finished: Workshop) -> None:
    before = finished.tree()
    plain = json.loads(braid("state", finished.folder / "ck", "--json").out)
    assert (plain["name"], plain["epoch"], plain["slots"], plain["groups"]) == ("pairs", 2, 2, 8)
    assert plain["totals"]["R.rows"] == 600
    assert sum(slot["rows"] for slot in plain["per_slot"]) == plain["rows"] > 0
    assert sum(slot["groups"] for slot in plain["per_slot"]) == 8
    assert plain["streams"]["R"]["schema"] == "struct<k:bigint,v:bigint,ts:timestamp>"
    shown = braid("state", finished.folder / "ck")
    assert shown.code == 0
    assert "3 committed, 0 to 2 kept" in shown.out
    assert f"{plain['rows']:,} rows" in shown.out
    assert finished.tree() == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('path = "S"\nschema = "k long', 'path = "S"\nschema = "k int'), "stream 'S' differs: schema"),
        (('path = "S"\nschema = "k long, v long', 'path = "S"\nschema = "k long, v int'), "stream 'S' differs: schema"),
    ],
    ids=["another type of the key", "another schema"],
)
def test_a_checkpoint_of_another_schema(braid: Braid, copied: Workshop, change: tuple[str, str], told: str) -> None:
    job = copied.job(change)
    before = copied.tree()
    for command in ("check", "run"):
        outcome = braid(command, job)
        assert outcome.code == 2
        assert "/ck belongs to another flow" in outcome.err
        assert told in outcome.err
        assert "expected: the same streams and queries" in outcome.err
        assert "hint: start with a new checkpoint folder" in outcome.err
    assert copied.tree() == before


def test_a_changed_query_is_shown_by_check_and_done_by_run(braid: Braid, tmp_path: Path) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=20)
    assert braid("run", workshop.job()).code == 0
    wider = ("R.v AS rv,", "R.v AS rv, R.ts AS at,")
    before = workshop.tree("ck")
    outcome = braid("check", workshop.job(("[queries.pairs]", "[queries.other]")))
    assert (outcome.code, "would change: query 'pairs' is called 'other' now" in outcome.out) == (0, True), outcome
    told = "query 'pairs' is another one now (R.ts was not stored)"
    outcome = braid("check", workshop.job(wider))
    assert (outcome.code, f"would change: {told}" in outcome.out) == (0, True), outcome
    assert workshop.tree("ck") == before
    outcome = braid("run", workshop.job(wider))
    shown = " ".join((outcome.out + outcome.err).split())
    assert (outcome.code, told in shown) == (0, True), outcome
    assert "would change" not in braid("check", workshop.job(wider)).out


def test_a_sink_of_a_flow_that_ran_is_refused_to_another(braid: Braid, copied: Workshop) -> None:
    other = copied.job(('checkpoint = "ck"', 'checkpoint = "other"'), name="other.toml")
    before = copied.tree()
    outcome = braid("run", other)
    assert outcome.code == 2
    assert "belongs to another flow" in outcome.err
    assert copied.tree() == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('format = "parquet"\npath = "R"', 'format = "paruqet"\npath = "R"'), "knows no format 'paruqet'"),
        (('sink = { format = "parquet"', 'sink = { format = "paruqet"'), "knows no format 'paruqet'"),
    ],
    ids=["of a stream", "of a sink"],
)
def test_a_format_that_spark_does_not_know(
    braid: Braid, workshop: Workshop, change: tuple[str, str], told: str
) -> None:
    job = workshop.job(change)
    before = workshop.tree()
    outcome = braid("run", job)
    assert outcome.code == 2
    assert told in outcome.err
    assert "did you mean 'parquet'?" in outcome.err
    assert workshop.tree() == before


def _take_last(workshop: Workshop, name: str) -> object:
    last = sorted((workshop.folder / name).glob("*.parquet"))[-1]
    table = pq.read_table(last)
    last.unlink()
    return table


def _to_json(file: Path, folder: Path) -> None:
    rows = pq.read_table(file).to_pylist()
    lines = [json.dumps({**row, "ts": row["ts"].isoformat()}) for row in rows]
    _write_json(folder / f"{file.stem}.json", lines)


def _write_json(path: Path, lines: list[str]) -> None:
    import os

    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    order = 0 if path.stem == "late" else 100 - int(path.stem)
    os.utime(path, (1_800_000_000 - order, 1_800_000_000 - order))


def test_a_copied_folder_in_the_order_of_its_copies_is_warned_of(braid: Braid, workshop: Workshop) -> None:
    """Once while it runs, in the summary and in the state; by default it is read by event time, and nothing is late."""
    for name in "RS":
        for i, file in enumerate(sorted((workshop.folder / name).glob("*.parquet"))):
            os.utime(file, (1_700_000_000 - i, 1_700_000_000 - i))
    copied = ('time = "ts"\noptions', 'time = "ts"\ndelay = "0 seconds"\norder = "modified"\noptions')
    also = ('delay = "0 seconds"\noptions', 'delay = "0 seconds"\norder = "modified"\noptions')
    outcome = braid("run", workshop.job(also, copied, ('"ck"', '"ck0"'), ("out/pairs", "out/other")))
    assert outcome.code == 0
    for name in "RS":
        assert outcome.err.count(f"warning: stream {name}: 100.0% of the rows of epoch 1 were late") == 1
        said = f"warning     stream {name}: 66.7% of the rows of this run were late, and not joined (400 of 600)"
        assert said in outcome.out
    state = braid("state", workshop.folder / "ck0")
    assert "warning      stream R: 66.7% of the rows of all epochs were late" in state.out
    assert "or more, and start with a new checkpoint" in state.out

    whole = braid("run", workshop.job(), "--json")
    end = json.loads(whole.out.splitlines()[-1])
    assert end["late"] == {"R": 0, "S": 0}
    assert end["warnings"] == []
    assert "measured from 3 files; 3 files by their event times" in end["delays"]["R"]
    assert workshop.verify()


def test_an_order_that_a_job_cannot_have_is_refused_by_check(braid: Braid, workshop: Workshop) -> None:
    for order, wrong in (("newest", "'newest'"), ("time", "a json stream")):
        text = ('delay = "0 seconds"', f'order = "{order}"')
        other = [('format = "parquet"\npath = "S"', 'format = "json"\npath = "S"')] if order == "time" else []
        outcome = braid("check", workshop.job(text, *other))
        assert outcome.code == 2
        assert wrong in outcome.err


def test_a_final_run_closes_the_checkpoint_and_the_next_one_is_refused(braid: Braid, workshop: Workshop) -> None:
    assert braid("run", workshop.job(), "--quiet", "--final").code == 0
    assert workshop.verify()
    shown = braid("state", str(workshop.folder / "ck")).out
    assert "closed       the input ended (final = true)" in shown
    assert "warning" not in shown
    assert braid("verify", str(workshop.folder / "ck")).code == 0
    assert braid("repair", str(workshop.folder / "ck")).code == 0
    for command in ("run", "check"):
        refused = braid(command, workshop.job())
        assert refused.code == 2
        assert "is closed: the flow ended for good" in refused.err
    going_on = ('epoch = "available"', 'epoch = "2 seconds"')
    assert "final with epoch '2 seconds'" in braid("run", workshop.job(going_on), "--final").err
