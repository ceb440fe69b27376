"""Starting the streaming query of a function: prepare, commit, run, as `spark.launch` starts that of joins.

`prepare_function` checks all that can be wrong: the sink and its path, the checkpoint, files that are there, the
streaming plan. It may refuse, and it changes nothing. Then the checkpoint is made and the sink claimed
(`spark.starting`), the manifest with the plan of this start is written, and it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from braidstream.epoch.recorder import Recorder
from braidstream.errors import CheckpointMismatch, InputError, SinkError
from braidstream.functions.arrays import result_schema
from braidstream.functions.function_epoch import FunctionRun
from braidstream.functions.function_plans import first_manifest, plan_of, with_plan
from braidstream.functions.function_progress import FunctionProgress
from braidstream.functions.function_runner import FunctionRunner
from braidstream.functions.node_tasks import RowReader
from braidstream.functions.nodes import Setup
from braidstream.plan.keys import quoted
from braidstream.spark.arrow_types import arrow_schema
from braidstream.spark.cluster import SparkCluster
from braidstream.spark.declared import refuse_overlaps
from braidstream.spark.file_order import arrange
from braidstream.spark.functions import FunctionQuery, explain_function
from braidstream.spark.handle import Handle
from braidstream.spark.moved import refuse_moved_streams
from braidstream.spark.outlets import SparkOutlets
from braidstream.spark.parquet import ParquetReader, is_case_sensitive
from braidstream.spark.session import own_session
from braidstream.spark.sinks import Sink, spark_schema
from braidstream.spark.sources import Stream
from braidstream.spark.starting import begin, identity_of, own_seconds, record_start
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow

__all__ = ["FunctionHandle", "PreparedFunction", "prepare_function", "refuse_for_functions", "start_function"]

_PATHS = "path string, modificationTime timestamp, length long, content binary"


def refuse_for_functions(streams: Iterable[Stream], *, final: bool) -> None:
    """A function has no watermark: neither an end nor a stream that it does not wait for."""
    said = {"final": final, "idle": any(stream.idle_us is not None for stream in streams)}
    for name in (name for name, is_said in said.items() if is_said):
        raise InputError(f"{name} for a function", f"{name} for queries", "leave it out: functions have no watermark")


class FunctionHandle(Handle[FunctionProgress]):
    """A running function: look at it, wait for it, stop it. No controller moves its state, and nodes are not pinned."""

    @property
    def plan(self) -> str:
        """The plan of the next epoch, by its short name."""
        return plan_of(self.manifest)


@dataclass(frozen=True)
class PreparedFunction:
    """A function that was checked, and what runs for it. Nothing has been changed so far."""

    query: FunctionQuery
    """Its stream with its files in order and its delay known."""
    sink: Sink
    identity: Identity
    last: Manifest | None
    """What the checkpoint ends with; None: it is made, or made anew because nothing was ever committed to it."""
    manifest: Manifest
    reader: RowReader
    frame: DataFrame


def prepare_function(
    flow: Flow, query: FunctionQuery, store: Checkpoint, trigger: Mapping[str, str | bool], shown: str
) -> PreparedFunction:
    """What a start is about to write and run, or why it is refused. Nothing is changed."""
    sink, stream = query.sink, query.source.stream
    if sink is None:
        raise SinkError(f"function {query.name!r} has no sink", "a sink", ".to('parquet', path='...') or .to('memory')")
    known, streams = store.identity(), {stream.name: stream}
    mine = identity_of(flow.name, streams, {query.name: query.fingerprint}, known)
    last, manifest = None if known is None else store.latest(), first_manifest(query.plan)
    if last is not None and known is not None and last.epoch < 0 and known != mine:
        last = None  # what never committed may still change
    if last is not None and known is not None:
        known.check(mine, shown)
        manifest = _resumed(store, last, query, shown)
        refuse_moved_streams(store, {stream.name: stream.files.path if stream.files else None}, shown)
    _check_sink(flow.spark, query, sink, mine, store)
    arranged, manifest = arrange(flow.spark, store, manifest, streams, is_finite="availableNow" in trigger)
    query = replace(query, source=replace(query.source, stream=arranged[stream.name]))
    reader = _reader(query)
    frame = _direct(flow.spark, query, store.root) if reader.files is not None else _general(query, reader)
    return PreparedFunction(query, sink, mine, last, manifest, reader, frame)


def start_function(
    flow: Flow, query: FunctionQuery, store: Checkpoint, trigger: Mapping[str, str | bool], *, warm: bool, shown: str
) -> FunctionHandle:
    """Start a function's flow, or go on where its checkpoint ends."""
    prepared = prepare_function(flow, query, store, trigger, shown)
    manifest, is_new = prepared.manifest, prepared.last is None
    begin(flow.spark, store, prepared.identity, manifest if is_new else None, [prepared.sink], warm=warm)
    if not is_new and manifest != prepared.last:
        manifest = store.commit(manifest)
    cluster = SparkCluster(flow.spark, store.root)
    runner = _runner(store, prepared, cluster)
    writer = prepared.frame.writeStream.foreachBatch(cluster.batches(runner))
    record_start(runner.recorder, store, manifest, {prepared.query.name: explain_function(flow.name, prepared.query)})
    running = writer.option("checkpointLocation", store.offsets).trigger(**trigger).start()
    runner.recorder.engine_s = partial(own_seconds, running)
    return FunctionHandle(running, runner, lambda: explain_function(flow.name, prepared.query))


def _resumed(store: Checkpoint, last: Manifest, query: FunctionQuery, shown: str) -> Manifest:
    """The last manifest, with the plan that this start asks for; or the one that a monitor has arrived at."""
    store.check_offsets(last.epoch)
    store.verify(last)
    current = last.notes.plan
    if current == query.plan.strategy or (query.monitor is not None and current in query.plans):
        return last
    changed = with_plan(last, query.plan)
    if changed is None:
        raise CheckpointMismatch(
            f"the checkpoint {shown} has windows that wait in the plan {current}; this flow has {query.plan.strategy}",
            "the plan that the checkpoint was made with, until they are through",
            f"start once more with {current}, or start with a new checkpoint folder",
        )
    return changed


def _check_sink(spark: SparkSession, query: FunctionQuery, sink: Sink, mine: Identity, store: Checkpoint) -> None:
    """Not in a folder that is read or in the checkpoint, of a format that is there, and no other flow's."""
    taken = [("the checkpoint", store.root)]
    stream = query.source.stream
    if stream.files is not None and not set(stream.files.path) & set("*?[{"):
        taken.append((f"the folder of stream {stream.name!r}", stream.files.path))
    refuse_overlaps([(query.name, sink)], taken)
    sink.find(spark)
    sink.check(mine.flow)
    time = arrow_schema(stream.schema).field(stream.time).type
    sink.check_rows(spark_schema(result_schema(query.plan.gives, stream.time, time)))


def _reader(query: FunctionQuery) -> RowReader:
    """What the first node reads; files that are there and are not what the stream declares are refused."""
    source, stream = query.source, query.source.stream
    files = None
    if query.reads_files and stream.files is not None:
        files = ParquetReader(arrow_schema(stream.schema), is_case_sensitive(stream.frame.sparkSession))
        for path in stream.files.first_files():
            files.check(stream.name, path, source.columns)
    return RowReader(source.declared, stream.time, source.columns, files, source.parts)


def _runner(store: Checkpoint, prepared: PreparedFunction, cluster: SparkCluster) -> FunctionRunner[DataFrame]:
    query, stream = prepared.query, prepared.query.source.stream
    run = FunctionRun(
        store,
        query.name,
        query.plans,
        Setup(stream.name, query.source.spec, stream.delay_us, query.plan, query.source.alignment),
        prepared.reader,
        arrow_schema(stream.schema).field(stream.time).type,
        cluster,
        SparkOutlets(lambda: cluster.session, store.root, {query.name: prepared.sink}, durable=store.durable),
        query.monitor,
        Recorder(store),
    )
    return FunctionRunner(run, prepared.manifest)


def _direct(spark: SparkSession, query: FunctionQuery, root: str) -> DataFrame:
    files = query.source.stream.files
    assert files is not None
    source = own_session(spark, root).readStream.format("binaryFile").schema(_PATHS).options(**files.options)
    return source.load(files.pattern).select("path")


def _general(query: FunctionQuery, reader: RowReader) -> DataFrame:
    return query.source.stream.frame.select(*(quoted(name) for name in reader.columns))
