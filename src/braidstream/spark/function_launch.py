"""Starting the streaming query of a flow's functions: prepare, commit, run, as `spark.launch` starts that of joins.

`prepare_function` checks all that can be wrong: sinks and their paths, the checkpoint, files that are there, the
streaming plan. It may refuse, and it changes nothing. Then the checkpoint is made and the sinks claimed
(`spark.starting`), the manifest with the plans of this start is written, and it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from braidstream.epoch.recorder import Recorder
from braidstream.errors import CheckpointMismatch, InputError, SinkError
from braidstream.functions.arrays import result_schema
from braidstream.functions.chains import joined_names
from braidstream.functions.function_epoch import Applied, FunctionRun
from braidstream.functions.function_plans import first_manifest, plan_of, plans_of, with_plans
from braidstream.functions.function_progress import FunctionProgress
from braidstream.functions.function_runner import FunctionRunner
from braidstream.functions.node_tasks import RowReader
from braidstream.functions.nodes import Setup
from braidstream.plan.catalogue import with_folders
from braidstream.plan.keys import quoted
from braidstream.spark.arrow_types import arrow_schema
from braidstream.spark.cluster import SparkCluster
from braidstream.spark.declared import refuse_overlaps
from braidstream.spark.file_order import arrange
from braidstream.spark.functions import FunctionQuery, explain_function
from braidstream.spark.handle import Handle
from braidstream.spark.moved import refuse_moved_streams
from braidstream.spark.names import resolved
from braidstream.spark.outlets import SparkOutlets
from braidstream.spark.parquet import ParquetReader, is_case_sensitive
from braidstream.spark.session import in_session, own_session, retention
from braidstream.spark.sinks import FileSink, Sink, spark_schema
from braidstream.spark.sources import Stream
from braidstream.spark.starting import begin, forget_begun, identity_of, own_seconds, record_start, refuse_later
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
        """The plan of the next epoch, by its short name; of several functions those of all: WD2 then Central."""
        return plan_of(self.manifest)


@dataclass(frozen=True)
class PreparedFunction:
    """Functions that were checked, and what runs for them. Nothing has been changed so far."""

    functions: tuple[FunctionQuery, ...]
    """Each feeds the next. The stream of the first has its files in order, and its delay is known."""
    sinks: Mapping[str, Sink]
    """By function; the last one has a sink, others may have one."""
    identity: Identity
    last: Manifest | None
    """What the checkpoint ends with; None: it is made, or made anew because nothing was ever committed to it."""
    manifest: Manifest
    reader: RowReader
    frame: DataFrame

    @property
    def file_sinks(self) -> list[FileSink]:
        """Those that write to folders."""
        return [sink for sink in self.sinks.values() if isinstance(sink, FileSink)]


def prepare_function(
    flow: Flow, query: FunctionQuery, store: Checkpoint, trigger: Mapping[str, str | bool], shown: str
) -> PreparedFunction:
    """What a start with the functions up to `query` is about to write and run, or why it is refused."""
    functions, first = query.chain, query.chain[0].source
    for name in flow._bad:
        wrong, what = f"bad for stream {name!r} in a flow with a function", "streams without it"
        raise InputError(wrong, what, "leave it out: functions have no output for rows that cannot be read")
    if query.sink is None:
        raise SinkError(f"function {query.name!r} has no sink", "a sink", ".to('parquet', path='...') or .to('memory')")
    sinks = {one.name: one.sink for one in functions if one.sink is not None}
    known, streams = store.identity(), {first.stream.name: first.stream}
    mine = identity_of(flow.name, streams, {one.name: one.fingerprint for one in functions}, known)
    last, manifest = None if known is None else store.latest(), first_manifest(*(one.plan for one in functions))
    if last is not None and known is not None and last.epoch < 0 and known != mine:
        last = None  # what never committed may still change
    if last is not None and known is not None:
        known.check(mine, shown)
        manifest = _resumed(store, last, functions, shown)
        files = first.stream.files
        refuse_moved_streams(store, {first.stream.name: files.path if files else None}, shown)
    _check_sinks(flow.spark, functions, sinks, mine, store)
    refuse_later(mine.flow, store, manifest, sinks.items())
    arranged, manifest = arrange(flow.spark, store, manifest, streams, is_finite="availableNow" in trigger)
    reads = replace(functions[0], source=replace(first, stream=arranged[first.stream.name]))
    reader = _reader(reads)
    session = own_session(flow.spark, store.root, retention(flow.spark, store.keep))
    frame = _direct(session, reads) if reader.files is not None else in_session(_general(reads, reader), session)
    folders = (resolved(sink.path) for sink in sinks.values() if isinstance(sink, FileSink))
    manifest = with_folders(manifest, folders)
    return PreparedFunction((reads, *functions[1:]), sinks, mine, last, manifest, reader, frame)


def start_function(
    flow: Flow, query: FunctionQuery, store: Checkpoint, trigger: Mapping[str, str | bool], *, warm: bool, shown: str
) -> FunctionHandle:
    """Start a flow of functions, or go on where its checkpoint ends."""
    prepared = prepare_function(flow, query, store, trigger, shown)
    manifest, is_new = prepared.manifest, prepared.last is None
    begin(flow.spark, store, prepared.identity, manifest if is_new else None, [*prepared.sinks.values()], warm=warm)
    if prepared.last is not None:
        forget_begun(store, prepared.last, prepared.identity.flow, prepared.file_sinks, lambda: prepared.frame)
    if not is_new and manifest != prepared.last:
        manifest = store.commit(manifest)
    cluster = SparkCluster(flow.spark, store.root)
    runner = _runner(store, prepared, cluster)
    writer = prepared.frame.writeStream.foreachBatch(cluster.batches(runner))
    told = explain_function(flow.name, prepared.functions)
    record_start(runner.recorder, store, manifest, {joined_names(one.name for one in prepared.functions): told})
    running = writer.option("checkpointLocation", store.offsets).trigger(**trigger).start()
    runner.recorder.engine_s = partial(own_seconds, running)
    return FunctionHandle(running, runner, lambda: told)


def _resumed(store: Checkpoint, last: Manifest, functions: Sequence[FunctionQuery], shown: str) -> Manifest:
    """The last manifest, with the plans that this start asks for; or those that a monitor has arrived at."""
    store.check_offsets(last.epoch)
    store.verify(last)
    pairs = zip(functions, plans_of(last), strict=True)
    chosen = [one.plans[at] if one.monitor is not None and at in one.plans else one.plan for one, at in pairs]
    current, wanted = plan_of(last), joined_names(plan.strategy for plan in chosen)
    if current == wanted:
        return last
    changed = with_plans(last, *chosen)
    if changed is None:
        raise CheckpointMismatch(
            f"the checkpoint {shown} has windows that wait in the plan {current}; this flow has {wanted}",
            "the plan that the checkpoint was made with, until they are through",
            f"start once more with {current}, or start with a new checkpoint folder",
        )
    return changed


def _check_sinks(
    spark: SparkSession, functions: Sequence[FunctionQuery], sinks: Mapping[str, Sink], mine: Identity,
    store: Checkpoint,
) -> None:  # fmt: skip
    """Not in a folder that is read or in the checkpoint, of a format that is there, and no other flow's."""
    taken = [("the checkpoint", store.root)]
    stream = functions[0].source.stream
    if stream.files is not None and not set(stream.files.path) & set("*?[{"):
        taken.append((f"the folder of stream {stream.name!r}", stream.files.path))
    refuse_overlaps(list(sinks.items()), taken)
    time = arrow_schema(stream.schema).field(stream.time).type
    for one in functions:
        if one.sink is not None:
            one.sink.find(spark)
            one.sink.check(mine.flow)
            one.sink.check_rows(spark_schema(result_schema(one.plan.gives, stream.time, time)))


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
    stream = prepared.functions[0].source.stream
    run = FunctionRun(
        store,
        tuple(_applied(one, stream) for one in prepared.functions),
        prepared.reader,
        arrow_schema(stream.schema).field(stream.time).type,
        cluster,
        SparkOutlets(lambda: cluster.session, store.root, prepared.sinks, durable=store.durable),
        Recorder(store),
    )
    return FunctionRunner(run, prepared.manifest)


def _applied(query: FunctionQuery, stream: Stream) -> Applied:
    """A function as its epochs know it; results of another function are never late, so they need no delay."""
    source = query.source
    is_first = source.before is None
    setup = Setup(
        source.name,
        source.spec,
        stream.delay_us if is_first else 0,
        query.plan,
        source.alignment,
        None if is_first else tuple(entry.name for entry in source.declared.values),
    )
    return Applied(query.name, setup, query.plans, query.monitor, query.sink is not None)


def _direct(session: SparkSession, query: FunctionQuery) -> DataFrame:
    files = query.source.stream.files
    assert files is not None
    source = session.readStream.format("binaryFile").schema(_PATHS).options(**files.options)
    return source.load(files.pattern).select("path")


def _general(query: FunctionQuery, reader: RowReader) -> DataFrame:
    return query.source.stream.frame.select(*(quoted(name) for name in reader.columns))
