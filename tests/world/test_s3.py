"""Checkpoints and results in a real S3 server: what tests/state tells of a store in memory, and flows on Spark.

A server that is killed and started again, and a bucket that may not be written, are met as users meet them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import obstore
import pyspark
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from braidstream.errors import InputError, SinkError
from braidstream.lab.testing.batch import BatchStream, batch_join
from braidstream.model.faults import VARIABLE
from braidstream.spark.sinks import make_sink
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.objects import _s3_store
from braidstream.state.whole_epochs import BEGUN, result_files
from tests.spark.child import WINDOW_SECONDS
from tests.spark.stage import in_order
from tests.spark.test_crash import SECOND, kill_group, script_of
from tests.state import object_stories as stories
from tests.world import readers
from tests.world.servers import S3, s3a_jars
from tests.world.test_deaths import CHILD, LIMIT_S, POINTS, ROOT
from tests.world.test_zombies import EXPECTED, Process

pytestmark = pytest.mark.world


@pytest.fixture
def root(s3: S3) -> str:
    return stories.new_root(s3.bucket)


def puts(bucket: str, key: str, tag: str | None) -> int:
    """How many of eight that put an object at once, on one condition, are told that they did."""
    store, start = _s3_store(bucket), threading.Barrier(8)

    def put(own: int) -> bool:
        start.wait()
        try:
            condition = "create" if tag is None else {"e_tag": tag}
            obstore.put(store, key, f"{tag} {own}".encode(), mode=condition, use_multipart=False)
        except Exception:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(put, range(8)))


def test_of_eight_that_put_on_condition_one_does(s3: S3) -> None:
    """What all else rests on, asked of the server itself, again and again."""
    for round_ in range(20):
        key = f"race/{round_}"
        assert puts(s3.bucket, key, None) == 1
        assert puts(s3.bucket, key, obstore.head(_s3_store(s3.bucket), key)["e_tag"]) == 1


@pytest.mark.parametrize("is_fast", [True, False], ids=["the other has gone on", "the other has just begun"])
def test_an_owner_that_wakes_up_after_a_takeover_changes_nothing(tmp_path: Path, root: str, is_fast: bool) -> None:
    stories.check_steps(tmp_path, root, 10, is_fast=is_fast)


def test_restarts_with_other_slots_give_the_same_results(tmp_path: Path, root: str) -> None:
    stories.check_restarts(tmp_path, root, seed=2)


@pytest.mark.parametrize(
    "check", [stories.check_one_of_many, stories.check_claims, stories.check_replaced, stories.check_leases]
)
def test_puts_are_conditional(root: str, check: object) -> None:
    assert callable(check)
    check(root)


def test_a_server_that_goes_away_and_comes_back_is_waited_for(tmp_path: Path, s3: S3, root: str) -> None:
    harness = stories.started(tmp_path, root)
    stories.catch_up(harness, 0)
    s3.kill()
    back = threading.Timer(2, s3.start)
    back.start()
    stories.catch_up(harness, 2)
    back.join()
    assert harness.manifest.epoch == Checkpoint(f"{root}/ck").latest().epoch == 2


def test_a_bucket_that_may_not_be_written_is_refused_and_named(
    s3: S3, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _s3_store.cache_clear()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    try:
        with pytest.raises(InputError) as refused, Checkpoint(f"{root}/ck").starting():
            pass
    finally:
        _s3_store.cache_clear()
    assert refused.value.exit_code == 2
    for part in (f"{root}/ck", "Permission denied", "permissions"):
        assert part in str(refused.value)


def test_who_may_only_read_a_bucket_is_refused_and_the_bucket_named(
    s3: S3, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Files(root).replace("there", b"already")
    for name, value in s3.read_only().items():
        monkeypatch.setenv(name, value)
    _s3_store.cache_clear()
    try:
        assert Files(root).read("there") == b"already"
        with pytest.raises(InputError) as refused, Checkpoint(f"{root}/ck").starting():
            pass
    finally:
        _s3_store.cache_clear()
    assert refused.value.exit_code == 2
    for part in (f"{root}/ck", "Permission denied", "permissions"):
        assert part in str(refused.value)


@pytest.mark.parametrize("format_", ["parquet", "delta"])
@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "cannot be used: Permission denied"),
        ("read only", "cannot be written"),
        ("nowhere", "cannot be used: there is no bucket nowhere"),
    ],
    ids=["a wrong key", "who may only read", "no such bucket"],
)
def test_a_sink_in_a_bucket_that_may_not_be_written_is_refused_and_named(
    s3: S3, root: str, monkeypatch: pytest.MonkeyPatch, format_: str, own: dict[str, str] | str, told: str
) -> None:
    path = "s3://nowhere/out" if own == "nowhere" else f"{root}/out"
    given = own if isinstance(own, dict) else s3.read_only() if own == "read only" else {}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    _s3_store.cache_clear()
    try:
        with pytest.raises(SinkError, match=told) as refused:
            started_sink(format_, path)
    finally:
        _s3_store.cache_clear()
    assert f"the sink path '{path}'" in refused.value.wrong
    if "used" in told:
        assert "check bucket, keys and permissions" in refused.value.fix


def started_sink(format_: str, path: str) -> None:
    sink = make_sink(format_, path, {})
    sink.check("flow")
    sink.check_rows(StructType([StructField("k", LongType())]))
    sink.claim("flow", "0000000001-owner")


def test_a_bucket_that_is_not_there_is_refused_and_named(s3: S3) -> None:
    with (
        pytest.raises(InputError, match="s3://nowhere/ck cannot be made: there is no bucket nowhere"),
        Checkpoint("s3://nowhere/ck").starting(),
    ):
        pass


def test_folders_that_other_clients_mark_are_folders(root: str) -> None:
    """Spark's client and pyarrow's put an empty object with a slash at its end for a folder."""
    base = root.removeprefix("s3://")
    for folder in ("offsets", "offsets/commits", "offsets/offsets"):
        readers.s3_client().create_dir(f"{base}/{folder}")
    files = Files(root)
    files.replace("offsets/offsets/0", b"v1")
    assert files.folders("offsets") == ["commits", "offsets"]
    assert files.names("offsets") == files.names("offsets/commits") == []
    assert files.objects is not None
    files.objects.copy_folder(files.path("offsets"), files.path("offsets-2"))
    assert files.read("offsets-2/offsets/0") == b"v1"
    files.move("offsets", files, "elsewhere")
    assert files.names("elsewhere/offsets") == ["0"]
    assert files.names("offsets/offsets") == []


def test_a_delta_table_in_s3_takes_an_epoch_once(root: str) -> None:
    declared = {"target": "delta", "path": f"{root}/delta"}
    late, now = Process(declared, "0000000001-late"), Process(declared, "0000000002-now")
    delivery = late.delivery(0)
    now.sink.deliver(now.delivery(0))
    late.sink.deliver(delivery)
    assert readers.delta_rows(f"{root}/delta") == in_order(EXPECTED)
    late.delivery(1)
    Process(declared, "0000000003-next").sink.sweep()
    own = Files(f"{root}/delta")
    assert [own.names(f"_staging/flow/{name}") for name in own.folders("_staging/flow")] == [[BEGUN]]
    now.sink.deliver(now.delivery(1))
    assert readers.delta_rows(f"{root}/delta") == in_order(EXPECTED * 2)


class Story:
    """A flow on Spark whose checkpoint, Parquet results and Delta table are in S3."""

    def __init__(self, folder: Path, s3: S3, n_epochs: int) -> None:
        self.folder, self.s3, self.n_epochs = folder, s3, n_epochs
        self.root = stories.new_root(s3.bucket)
        self.checkpoint = f"{self.root}/ck"
        self.sinks = {
            "parquet": {"target": "parquet", "path": f"{self.root}/out"},
            "computed": {"target": "parquet", "path": f"{self.root}/computed"},
            "delta": {"target": "delta", "path": f"{self.root}/delta"},
        }
        for _ in script_of(folder, {}, n_epochs).acts():
            pass

    def run(self, slots: int, **environment: str) -> subprocess.CompletedProcess[str]:
        jars = {"spark.jars": ",".join(map(str, s3a_jars()))}
        command = [sys.executable, str(CHILD), str(self.folder), "--slots", str(slots)]
        command += ["--sinks", json.dumps(self.sinks), "--checkpoint", self.checkpoint]
        command += ["--settings", json.dumps({**jars, **self.s3.spark})]
        own = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        process = subprocess.Popen(
            command,
            env={**os.environ, **own, **environment},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = process.communicate(timeout=LIMIT_S)
        kill_group(process)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    @property
    def committed(self) -> int:
        return max(Manifest.epochs(Files(self.checkpoint)), default=-1)

    def check(self) -> None:
        streams = [BatchStream(name, self.folder / name, WINDOW_SECONDS * SECOND) for name in "RS"]
        batch = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
        expected = in_order(zip(*(batch.column(name).to_pylist() for name in ("k", "rv", "sv")), strict=True))
        assert len(expected) > 100
        for name in ("out", "computed"):
            assert readers.s3_rows(result_files(f"{self.root}/{name}")) == expected, name
        assert readers.delta_rows(f"{self.root}/delta") == expected


@pytest.mark.acceptance
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("points", [("delivery-put", "before-manifest"), POINTS])
def test_a_flow_with_all_it_has_in_s3_dies_and_goes_on(tmp_path: Path, s3: S3, points: tuple[str, ...]) -> None:
    story, random = Story(tmp_path, s3, len(points) + 2), Random(7)
    for epoch, point in enumerate(points, 1):
        died = story.run(random.randint(1, 3), **{VARIABLE: f"{point}:{epoch}:kill"})
        assert died.returncode != 0
        assert story.committed == epoch - (point != "after-manifest"), died.stderr[-3000:]
    ended = story.run(2)
    assert ended.returncode == 0, ended.stderr[-3000:]
    story.check()
