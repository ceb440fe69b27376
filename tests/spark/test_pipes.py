"""Functions and queries in one job, one feeding the other, on local Spark: what DuckDB and NumPy give, whatever fails.

Faults strike by the number of an epoch, and each part counts its own: those of a first part come first, and once it has
read all its input the next ones strike the part after it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from braidstream import jobs
from braidstream.errors import DamagedState, InputError, RunError
from braidstream.functions import WindowBatch, stream_function
from braidstream.jobs import piped
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import append_files
from braidstream.model.faults import FEEDS, POINTS, InjectedFault, armed
from braidstream.state.checkpoint import Checkpoint
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECOND = 1_000_000
ONE = 'options = { maxFilesPerTrigger = "1" }'
FLOW = '[flow]\nname = "pipes"\ncheckpoint = "ck"\nepoch = "available"\nslots = 2\n'
TONE = f"""
[streams.tone]
format = "parquet"
path = "tone"
schema = "ts timestamp, v double"
time = "ts"
{ONE}

[streams.R]
format = "parquet"
path = "R"
schema = "ts timestamp, k long, w long"
time = "ts"
{ONE}

[functions.sums]
stream = "tone"
function = "pipes_sums"
size = 4
step = 2
degrees = [2]

[queries.alarms]
cql = '''
SELECT s.seq AS seq, s.bucket AS bucket, R.w AS w FROM sums AS s [RANGE 30 SECONDS], R [RANGE 20 SECONDS]
WHERE s.bucket = R.k
'''
sink = {{ format = "parquet", path = "alarms" }}
"""
PAIRS = f"""
[streams.A]
format = "parquet"
path = "A"
schema = "ts timestamp, k long, x double"
time = "ts"
delay = "0 seconds"
{ONE}

[streams.B]
format = "parquet"
path = "B"
schema = "ts timestamp, k long, y double"
time = "ts"
delay = "0 seconds"
{ONE}

[streams.R]
format = "parquet"
path = "R"
schema = "ts timestamp, k long, w long"
time = "ts"
{ONE}

[queries.pairs]
cql = "SELECT A.ts AS ts, A.k AS k, A.x * B.y AS p FROM A [RANGE 60 SECONDS], B [RANGE 60 SECONDS] WHERE A.k = B.k"
sink = {{ format = "parquet", path = "pairs" }}

[functions.runs]
stream = "pairs"
time = "ts"
delay = "200 seconds"
function = "pipes_runs"
size = 3
step = 2
degrees = [2]

[queries.found]
cql = '''
SELECT f.seq AS seq, f.total AS total, R.w AS w FROM runs AS f [RANGE 30 SECONDS], R [RANGE 30 SECONDS]
WHERE f.bucket = R.k
'''
sink = {{ format = "parquet", path = "found" }}
"""


@stream_function(gives={"bucket": "int"})
def pipes_sums(windows: WindowBatch) -> dict[str, Any]:
    """What a window's samples weigh, by their order, as one of seven buckets."""
    return {"bucket": (windows["v"] @ np.arange(1.0, 5.0)).astype(np.int64) % 7}


@stream_function(gives={"total": "float", "bucket": "int"})
def pipes_runs(windows: WindowBatch) -> dict[str, Any]:
    """The same of products."""
    total = windows["p"] @ np.arange(1.0, 4.0)
    return {"total": total, "bucket": total.astype(np.int64) % 7}


def stamps(us: Any) -> pa.Array:
    return pa.array(np.asarray(us, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))


def cut(table: pa.Table, n: int) -> list[pa.Table]:
    """In pieces as files come."""
    edges = np.linspace(0, table.num_rows, n + 1).astype(int)
    return [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]


def looked_up(rng: np.random.Generator, span_s: int, n: int = 120) -> pa.Table:
    """Rows that results of a function are joined to."""
    times = np.sort(rng.choice(span_s * 1000, n, replace=False)) * 1000
    return pa.table({"ts": stamps(times), "k": rng.integers(0, 7, n), "w": np.arange(n)})


def tone_job(folder: Path, seed: int, n: int = 160) -> tuple[list[pa.Table], list[pa.Table], pa.Table]:
    """The job file; files of its two streams; and what its query gives over all of them."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-50, 50, n).astype(float)
    times = np.arange(n) * SECOND
    tone, others = pa.table({"ts": stamps(times), "v": values}), looked_up(rng, n)
    buckets = (sliding_window_view(values, 4)[::2] @ np.arange(1.0, 5.0)).astype(np.int64) % 7
    sums = pa.table({"ts": stamps(times[: n - 3 : 2]), "seq": np.arange(len(buckets)), "bucket": buckets})
    streams = [BatchStream("s", sums, 30 * SECOND), BatchStream("R", others, 20 * SECOND)]
    right = batch_join(streams, [("s.bucket", "R.k")], {"seq": "s.seq", "bucket": "s.bucket", "w": "R.w"})
    assert right.num_rows > 50
    (folder / "job.toml").write_text(FLOW + TONE)
    return cut(tone, 4), cut(others, 8), right


def pairs_job(folder: Path, seed: int, n: int = 150) -> pa.Table:
    """Two streams of which a query makes pairs, a function of these sums, another query matches of the sums."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.choice(600_000, n, replace=False)) * 1000
    late = np.clip(times + rng.integers(-50_000, 50_000, n) * 1000, 0, None)
    there = np.flatnonzero(rng.random(n) < 0.8)
    order = there[np.argsort(late[there], kind="stable")]
    one = pa.table({"ts": stamps(times), "k": np.arange(n), "x": rng.integers(1, 9, n).astype(float)})
    other = pa.table({"ts": stamps(late[order]), "k": order, "y": rng.integers(1, 9, len(order)).astype(float)})
    others = looked_up(rng, 600)
    for name, table, n_files in (("A", one, 5), ("B", other, 5), ("R", others, 9)):
        append_files(folder / name, cut(table, n_files))
    streams = [BatchStream("A", one, 60 * SECOND), BatchStream("B", other, 60 * SECOND)]
    pairs = batch_join(streams, [("A.k", "B.k")], {"ts": "A.ts", "p": "A.x * B.y"}).sort_by("ts")
    at = pairs.column("ts").cast(pa.int64()).to_numpy()
    due = at <= at.max() - 200 * SECOND
    totals = sliding_window_view(pairs.column("p").to_numpy()[due], 3)[::2] @ np.arange(1.0, 4.0)
    sums = pa.table(
        {
            "ts": stamps(at[due][: 2 * len(totals) : 2]),
            "seq": np.arange(len(totals)),
            "total": totals,
            "bucket": totals.astype(np.int64) % 7,
        }
    )
    streams = [BatchStream("f", sums, 30 * SECOND), BatchStream("R", others, 30 * SECOND)]
    right = batch_join(streams, [("f.bucket", "R.k")], {"seq": "f.seq", "total": "f.total", "w": "R.w"})
    assert right.num_rows > 20
    (folder / "job.toml").write_text(FLOW + PAIRS)
    return right


def ran(spark: SparkSession, folder: Path, faults: Sequence[str], *, certain: bool = True) -> Any:
    """Run to the end, over other slots at each start, with a fault in each run but the last.

    Faults that are drawn may be of epochs that are over.
    """
    text = (folder / "job.toml").read_text()
    for number, fault in enumerate(faults):
        (folder / "job.toml").write_text(text.replace("slots = 2", f"slots = {1 + number % 3}"))
        strikes = pytest.raises(RunError, match="injected fault") if certain else suppress(RunError, InjectedFault)
        with armed(f"{fault}:raise"), strikes:
            jobs.start(jobs.read(folder / "job.toml"), spark).await_termination()
    job = jobs.read(folder / "job.toml")
    jobs.check(job)
    handle = jobs.start(job, spark)
    assert handle.await_termination()
    return handle


def whole(folder: Path) -> pa.Table:
    return pq.read_table(folder, ignore_prefixes=["_"])


@pytest.mark.slow
def test_a_query_reads_what_a_function_gives_each_result_once_whatever_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    tone, others, right = tone_job(tmp_path, 1)
    append_files(tmp_path / "tone", tone)
    append_files(tmp_path / "R", others)
    faults = ["after-results:0", "before-feed:1", "after-feed:2", "before-manifest:3"]  # of the function
    faults += ["epoch-start:0", "after-join:1", "after-results:2", "before-manifest:4", "after-manifest:6"]
    handle = ran(spark, tmp_path, faults)
    assert same_rows(whole(tmp_path / "alarms"), right)
    assert (handle.totals["sums.results"], handle.totals["sums.rows"]) == (79, 79)
    assert handle.totals["tone.rows"] == 160
    assert list(handle.parts) == ["0-functions-sums", "1-queries"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(2, 2 + examples(2))])
@pytest.mark.parametrize("kind", ["tone", "pairs"])
def test_random_data_and_faults(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed + 100)
    points = [*POINTS, *FEEDS]
    faults = [f"{rng.choice(points)}:{epoch}" for epoch in sorted(rng.integers(0, 7, 4))]
    if kind == "tone":
        tone, others, right = tone_job(tmp_path, seed)
        append_files(tmp_path / "tone", tone)
        append_files(tmp_path / "R", others)
    else:
        right = pairs_job(tmp_path, seed)
    ran(spark, tmp_path, faults, certain=False)
    assert same_rows(whole(tmp_path / ("alarms" if kind == "tone" else "found")), right)


@pytest.mark.slow
def test_a_function_reads_what_a_query_gives_and_another_query_what_that_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three parts. The first query has a sink of its own, whose files are read; its results are computed by Spark."""
    right = pairs_job(tmp_path, 5)
    faults = ["before-feed:0", "after-results:1", "after-feed:2", "before-manifest:3", "after-manifest:4"]
    faults += ["after-results:0", "before-feed:0", "after-join:1", "after-results:2", "before-manifest:5"]
    handle = ran(spark, tmp_path, faults)
    assert same_rows(whole(tmp_path / "found"), right)
    assert handle.totals["pairs.rows"] == whole(tmp_path / "pairs").num_rows
    assert handle.totals["pairs.late"] == 0
    assert list(handle.parts) == ["0-queries", "1-functions-runs", "2-queries"]


@pytest.mark.slow
def test_all_parts_run_though_nobody_waits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the properties of the thread that started the job, such as a pool of the scheduler's."""
    right = pairs_job(tmp_path, 7)
    pools: list[str | None] = []
    started = piped._starter

    def noted(*given: Any) -> Any:
        def start() -> Any:
            pools.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
            return started(*given)()

        return start

    monkeypatch.setattr(piped, "_starter", noted)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    handle = jobs.start(jobs.read(tmp_path / "job.toml"), spark)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    deadline = time.monotonic() + 300
    while handle.is_active:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert same_rows(whole(tmp_path / "found"), right)
    assert handle.await_termination(60)
    assert pools == ["mine"] * 3


@pytest.mark.slow
def test_a_feed_has_what_was_committed_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """Results of an epoch that was lost lie in the folder, and nobody reads them; those of one that was committed, and
    not named before the process died, are named before anything runs again."""
    tone, others, _ = tone_job(tmp_path, 6)
    append_files(tmp_path / "tone", tone)
    append_files(tmp_path / "R", others)
    folder, root = tmp_path / "ck" / "feeds" / "sums", tmp_path / "ck" / "0-functions-sums"
    setting = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
    spark.conf.set(setting, "true")
    with pytest.raises(InputError, match=f"{setting} is true, and the job has functions and queries"):
        jobs.start(jobs.read(tmp_path / "job.toml"), spark)
    spark.conf.unset(setting)
    assert not (tmp_path / "ck").exists()
    found = []
    for fault in ("before-root:1", "before-feed:1", "epoch-start:2"):
        with armed(f"{fault}:raise"), pytest.raises(RunError, match="injected fault"):
            jobs.start(jobs.read(tmp_path / "job.toml"), spark).await_termination()
        read = spark.read.option("recursiveFileLookup", "true").schema("seq long").parquet(str(folder))
        committed = Checkpoint(str(root)).latest().totals["sums.results"]
        found.append((read.count(), committed, whole(folder / "files").num_rows))
    one, two = found[0][0], found[2][0]
    assert 0 < one < two
    assert found == [(one, one, two), (one, two, two), (two, two, two)]
    shutil.rmtree(folder)
    with pytest.raises(DamagedState, match="this feed is missing"):
        jobs.check(jobs.read(tmp_path / "job.toml"))


@pytest.mark.slow
def test_parts_run_side_by_side_and_hand_on_what_comes(spark: SparkSession, tmp_path: Path) -> None:
    """Epochs in time; files come while it runs, and it is stopped and started again in between."""
    tone, others, right = tone_job(tmp_path, 3)
    job = tmp_path / "job.toml"
    job.write_text(job.read_text().replace('"available"', '"300 milliseconds"'))
    for begin in (0, 1):
        append_files(tmp_path / "tone", tone[2 * begin : 2 * begin + 1])
        append_files(tmp_path / "R", others[4 * begin : 4 * begin + 4])
        handle = jobs.start(jobs.read(job), spark)
        append_files(tmp_path / "tone", tone[2 * begin + 1 : 2 * begin + 2])
        wanted = {"tone.rows": (80, 160)[begin], "sums.rows": (39, 79)[begin], "R.rows": (60, 120)[begin]}
        deadline = time.monotonic() + 120
        while {name: handle.totals.get(name, 0) for name in wanted} != wanted:
            assert not handle.await_termination(0.2)
            assert time.monotonic() < deadline, handle.totals
        handle.stop()
        assert handle.await_termination(60)
    assert same_rows(whole(tmp_path / "alarms"), right)


def test_a_feed_of_many_epochs_is_read_as_one_and_its_old_entries_go(spark: SparkSession, tmp_path: Path) -> None:
    """Thirty-three of them: three compact entries, as Spark's own log has; also after each was written anew."""
    from braidstream.model.snapshots import Placed
    from braidstream.spark.feeds import FeedLog, make_feed

    make_feed(str(tmp_path / "feed"))
    append_files(tmp_path / "files", (pa.table({"n": [i]}) for i in range(34)))
    placed = [Placed(one.name, one.stat().st_size, 0) for one in sorted((tmp_path / "files").glob("*.parquet"))]
    log = FeedLog(str(tmp_path / "feed"), str(tmp_path / "files"))
    for epoch, one in enumerate(placed[:33]):
        log.add([one], epoch)
        log.add([one], epoch)
        if epoch % 7 == 3:
            log = FeedLog(str(tmp_path / "feed"), str(tmp_path / "files"))
            log.add([one], epoch)
    read = spark.read.option("recursiveFileLookup", "true").schema("n long").parquet(str(tmp_path / "feed"))
    assert sorted(row.n for row in read.collect()) == list(range(33))
    names = {one.name for one in (tmp_path / "feed" / "_spark_metadata").glob("[0-9]*")}
    assert names == {"19.compact", "29.compact", *map(str, [*range(10, 19), *range(20, 29), 30, 31, 32])}


MODULE = """
import numpy as np
from braidstream.functions import stream_function

@stream_function(gives={"bucket": "int"})
def sums(windows):
    return {"bucket": (windows["v"] @ np.arange(1.0, 5.0)).astype(np.int64) % 7}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epoch", "faults"),
    [
        ("available", ["before-feed:1", "after-results:4"]),
        ("300 milliseconds", ["after-results:1", "before-manifest:3", "after-manifest:5"]),
        pytest.param("available", ["after-results:2", "task-after-segment:1"], marks=pytest.mark.acceptance),
        pytest.param("available", ["after-feed:3", "before-manifest:0"], marks=pytest.mark.acceptance),
    ],
    ids=lambda value: value if isinstance(value, str) else " then ".join(value),
)
def test_a_killed_process_loses_and_repeats_nothing_in_either_part(
    tmp_path: Path, epoch: str, faults: list[str]
) -> None:
    """With epochs in time the parts run side by side, and the first that comes to the fault dies of it."""
    tone, others, right = tone_job(tmp_path, 4)
    append_files(tmp_path / "tone", tone)
    append_files(tmp_path / "R", others)
    (tmp_path / "killed_pipes.py").write_text(MODULE)
    text = (tmp_path / "job.toml").read_text().replace('"pipes_sums"', '"killed_pipes:sums"')
    for number, fault in enumerate([*faults, ""]):
        own_text = text.replace('"available"', f'"{epoch}"') if fault else text
        (tmp_path / "job.toml").write_text(own_text.replace("slots = 2", f"slots = {1 + number % 3}"))
        command = [sys.executable, "-m", "braidstream", "run", str(tmp_path / "job.toml"), "--master", "local[2]"]
        own = {"BRAIDSTREAM_FAULT": f"{fault}:kill"} if fault else {}
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (not fault), done.stderr
    assert same_rows(whole(tmp_path / "alarms"), right)


APART = f"""{FLOW}
[streams.tone]
format = "parquet"
path = "tone"
schema = "ts timestamp, v double"
time = "ts"
{ONE}

[streams.R]
format = "parquet"
path = "R"
schema = "ts timestamp, k long, w long"
time = "ts"
{ONE}

[functions.sums]
stream = "tone"
function = "pipes_sums"
size = 4
step = 2
sink = {{ format = "parquet", path = "sums" }}

[queries.same]
cql = "SELECT A.k AS k, B.w AS w FROM R AS A [RANGE 1 SECOND], R AS B [RANGE 1 SECOND] WHERE A.k = B.k"
sink = {{ format = "parquet", path = "same" }}
"""


@pytest.mark.slow
def test_functions_and_queries_that_take_nothing_of_one_another_run_too(spark: SparkSession, tmp_path: Path) -> None:
    tone, others, _ = tone_job(tmp_path, 7)
    append_files(tmp_path / "tone", tone[:1])
    append_files(tmp_path / "R", others[:1])
    (tmp_path / "job.toml").write_text(APART)
    handle = ran(spark, tmp_path, [])
    assert list(handle.parts) == ["0-functions-sums", "0-queries"]
    assert handle.totals["sums.results"] == whole(tmp_path / "sums").num_rows == 19
    assert handle.totals["same.matches"] == whole(tmp_path / "same").num_rows >= 15


TWO = f"""{FLOW}
[streams.tone]
format = "parquet"
path = "tone"
schema = "ts timestamp, v double"
time = "ts"
{ONE}

[functions.one]
stream = "tone"
function = "pipes_sums"
size = 4
step = 2

[functions.two]
stream = "tone"
function = "pipes_sums"
size = 4
step = 2

"""
OF_ONE = """
[queries.first]
cql = "SELECT a.seq AS seq FROM two AS a [RANGE 1 SECOND], two AS b [RANGE 1 SECOND] WHERE a.seq = b.seq"
sink = { format = "noop" }
"""
OF_BOTH = """
[queries.second]
cql = "SELECT a.seq AS seq FROM one AS a [RANGE 9 SECONDS], two AS b [RANGE 9 SECONDS] WHERE a.seq = b.seq"
sink = { format = "parquet", path = "second" }
"""


@pytest.mark.slow
def test_feeds_are_read_on_where_they_were_though_their_first_query_goes(spark: SparkSession, tmp_path: Path) -> None:
    """The query that is left names them in another order; Spark knows its sources by their order."""
    tone, _, _ = tone_job(tmp_path, 8)
    for queries, files in ((OF_ONE + OF_BOTH, tone[:2]), (OF_BOTH, tone[2:])):
        append_files(tmp_path / "tone", files)
        (tmp_path / "job.toml").write_text(TWO + queries)
        handle = ran(spark, tmp_path, [])
    assert sorted(whole(tmp_path / "second").column("seq").to_pylist()) == list(range(79))
    assert {name: handle.totals[f"{name}.rows"] for name in ("one", "two")} == {"one": 79, "two": 79}
