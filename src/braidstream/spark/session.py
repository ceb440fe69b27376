"""Spark sessions of our own, and getting Python workers warm.

The library never stops or reconfigures a session it was given. `local_session` makes one with the settings that serve a
flow best; `warm_up` starts the Python workers and their imports before the first rows arrive.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, LongType, NumericType, StringType, StructType, TimestampType

from braidstream.control.overflow import parse_size
from braidstream.errors import RunError
from braidstream.spark.log_files import local_file_manager, sources_in
from braidstream.spark.trying import SETTINGS

__all__ = [
    "QUERY_SETTINGS",
    "cores",
    "default_memory",
    "forget_handed_over",
    "handover_folder",
    "in_session",
    "is_single_executor",
    "local_session",
    "own_session",
    "retention",
    "unweighed",
    "warm_rows",
    "warm_up",
]

_BYTES_AT_ONCE = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_BYTES, _MOST_ROWS = 256 << 20, 1_000_000
QUERY_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    _ROWS_AT_ONCE: "10000",
    _BYTES_AT_ONCE: str(_MOST_BYTES),
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
"""Slots must stay the partitions they are; what Spark writes down of each plan is short; Arrow batches may be large,
but of no more rows than Spark's own, which are weighed before each row, and where arrays are NULL each time by looking
at all rows before; envelopes of two attempts carry the same rows but the times of their own, which is no reason to fail
the job."""
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_SPARE = 2
"""Of epochs beside those that are kept: to go back to one Spark needs the offsets of the one before it, and it deletes
when it has begun the next."""
_DAEMON, _OURS = "spark.python.daemon.module", "braidstream.spark.worker_daemon"
_UNWEIGHED = str(2**31 - 1)
"""At this number of bytes, and no other, Spark does not look."""
_ROUNDS = 4
"""Jobs before the first epoch: the first one starts the workers, the others take some tenths of a second together."""
_WARM_VALUES, _WARM_JOBS = 800_000, 3
"""Of each task and stream: with more of both epochs are no shorter."""
_PASSED: set[tuple[str, tuple[str, ...]]] = set()
"""Of which applications the JVM has compiled what it does for rows of which types."""
_LONGEST = 50
"""Of a folder for sockets: their names add some fifty characters, and systems allow a hundred."""


def local_session(
    master: str | None = None, app_name: str = "braidstream", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session for flows; the active one, as it is, if there is one. Workers use this process's Python.

    On this machine they are forked from a process that has imported what they need, and the C library keeps what the
    JVM's threads free in two places instead of eight a core.
    """
    active = SparkSession.getActiveSession()
    if active is not None and not settings:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    ours = {
        "spark.ui.showConsoleProgress": "false",
        "spark.shuffle.reduceLocality.enabled": "false",  # slots follow their cached anchor row, not shuffle files
        "spark.sql.session.timeZone": "UTC",
    }
    if master is not None:
        ours["spark.master"] = master
    elif "MASTER" not in os.environ and "SPARK_ENV_LOADED" not in os.environ:
        ours["spark.master"] = "local[*]"
    chosen = {**ours, **(settings or {})}
    if chosen.get("spark.master", "").startswith("local"):  # nothing leaves the machine
        chosen = {"spark.shuffle.compress": "false", "spark.broadcast.compress": "false", _DAEMON: _OURS, **chosen}
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    if _may_use_unix_sockets(chosen.get("spark.master", "")):
        chosen.setdefault("spark.python.unix.domain.socket.enabled", "true")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _may_use_unix_sockets(master: str) -> bool:
    """Whether the JVM and Python workers may talk through sockets in the folder for temporary files.

    On TCP a small batch may wait 40 ms for an acknowledgement that the other side delays. The path must be short, and
    of the machines of a cluster we do not know it.
    """
    return master.startswith("local") and len(tempfile.gettempdir()) <= _LONGEST


def own_session(spark: SparkSession, checkpoint: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session of ours beside the user's: a copy of it, with the settings that serve a streaming query best.

    A copy, because what an expression means depends on the session: its time zone, its functions, its other settings.
    Listeners of streaming queries are not copied by Spark; those that the session has by now hear of ours too.
    """
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())  # there is no public way
    for listener in spark._jsparkSession.streams().listListeners():
        own._jsparkSession.streams().addListener(listener)
    for name, value in {**QUERY_SETTINGS, **(settings or {})}.items():
        own.conf.set(name, value)
    if "://" not in checkpoint and (manager := local_file_manager(spark)) is not None:
        own.conf.set("spark.sql.streaming.checkpointFileManagerClass", manager)
    return own


def retention(spark: SparkSession, keep: int) -> dict[str, str]:
    """Settings under which Spark's log has every epoch that a rollback may go back to; never fewer than the user's."""
    return {_RETAINED: str(max(keep + _SPARE, int(spark.conf.get(_RETAINED) or 0)))}


def unweighed(width: int) -> dict[str, str]:
    """Settings under which Arrow's batches are as large as ever, for rows of so many bytes each: by their number.

    To keep batches below a number of bytes, Spark asks its writer for their size before every row, which is half of the
    time that rows take from the JVM to Python.
    """
    return {_BYTES_AT_ONCE: _UNWEIGHED, _ROWS_AT_ONCE: str(max(min(_MOST_ROWS, _MOST_BYTES // width), 1))}


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same DataFrame in another session, which jobs and queries of it run on: its plan is analyzed already.

    What its sources were declared with stays theirs; those of files write their log as that session has it, if it has
    their session's settings otherwise.
    """
    analyzed = sources_in(frame._jdf.queryExecution().analyzed(), session, [*QUERY_SETTINGS, *SETTINGS, _RETAINED])
    datasets = session._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(datasets.ofRows(session._jsparkSession, analyzed), session)


def cores(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once."""
    return max(int(spark.sparkContext.defaultParallelism), 1)


def default_memory(spark: SparkSession) -> int:
    """The state a slot may hold if nobody says so: half of the executor's memory, shared by the tasks it runs at once.

    `spark.executor.pyspark.memory`, what Spark grants Python workers, where it is set; otherwise the JVM's heap, the
    only hint at what the machine has.
    """
    conf = spark.sparkContext.getConf()
    is_local = is_single_executor(spark)
    heap = "spark.driver.memory" if is_local else "spark.executor.memory"
    given = conf.get("spark.executor.pyspark.memory", "") or conf.get(heap, "") or "1g"
    n_tasks = cores(spark) if is_local else int(conf.get("spark.executor.cores", "") or 1)
    return max(_bytes(given) // 2 // n_tasks, 1)


def _bytes(setting: str) -> int:
    """A size in Spark's notation; without a unit it is MiB."""
    return parse_size(f"{setting}m" if setting.strip().isdecimal() else setting)


def is_single_executor(spark: SparkSession) -> bool:
    """Whether all tasks run in the driver's process, so that there is nothing to pin."""
    master = spark.sparkContext.master
    return bool(master == "local" or master.startswith("local["))


def handover_folder(spark: SparkSession, root: str, run: str) -> str | None:
    """Where routing tasks hand large envelopes over to slots (`slot/handover.py`): a folder of a run of a flow.

    It is in one of its checkpoint's in PySpark's own below `spark.local.dir`, which is deleted with the session; None
    where slots may be elsewhere.
    """
    parent = _handed_over(spark, root)
    return str(parent / run) if run and parent is not None and is_single_executor(spark) else None


def forget_handed_over(spark: SparkSession, root: str) -> None:
    """Delete what was handed over in any run of a flow, of which none goes on."""
    parent = _handed_over(spark, root)
    if parent is not None:
        shutil.rmtree(parent, ignore_errors=True)


def _handed_over(spark: SparkSession, root: str) -> Path | None:
    folder: str | None = spark.sparkContext._temp_dir
    return None if folder is None else Path(folder) / f"braidstream-{zlib.crc32(root.encode()):08x}"


def warm_up(spark: SparkSession) -> None:
    """Start the Python workers and import what tasks need, so that the first epoch does not wait for it.

    More than once, in jobs of the form of an epoch's: the JVM compiles what it has run often.
    """

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet  # noqa: F401, PLC0415

        from braidstream.kernels import loops  # noqa: PLC0415
        from braidstream.slot import allocators  # noqa: PLC0415
        from braidstream.slot import task as slot  # noqa: F401, PLC0415
        from braidstream.spark import sources  # noqa: F401, PLC0415

        loops.load()
        allocators.spare_what_stays("all")
        yield from batches

    n = cores(spark)
    sent = spark.range(2 * n).select(F.col("id").cast("int").alias("slot"), F.lit(b"").alias("blob"))
    try:
        for _ in range(_ROUNDS):
            sent.repartitionById(n, F.col("slot") % n).mapInArrow(load, sent.schema).collect()
    except PySparkException as error:
        if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
            raise RunError(
                "Spark's Python workers cannot import braidstream",
                f"an interpreter with braidstream installed, such as {sys.executable}",
                "set PYSPARK_PYTHON before the Spark session is made, and install braidstream on every executor",
            ) from None
        raise


def warm_rows(spark: SparkSession, width: int | None, sent: Sequence[StructType]) -> None:
    """Hand made rows of these types to Python, until the JVM has compiled what it does for each row on that way.

    As an epoch does that whose rows have at most `width` bytes. Cost: some tenths of a second, once for rows of the
    same types, by which the first epochs are shorter.
    """
    types = {tuple(field.dataType.simpleString() for field in schema): schema for schema in sent}
    new = [schema for kinds, schema in types.items() if (spark.sparkContext.applicationId, kinds) not in _PASSED]
    _PASSED.update((spark.sparkContext.applicationId, kinds) for kinds in types)
    if not new:
        return
    session = own_session(spark, "", None if width is None else unweighed(width))

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    n = cores(session)
    for schema in new:
        columns = [column for field in schema if (column := _made(field.dataType)) is not None]  # time and hash are
        rows = session.range(0, n * (_WARM_VALUES // len(columns)), 1, n)
        made = rows.select(*(column.alias(f"c{i}") for i, column in enumerate(columns))).mapInArrow(take, "n long")
        for _ in range(_WARM_JOBS):
            made.collect()


def _made(kind: DataType) -> Column | None:
    """Values of a type, made of a number; None where that takes more than a cast."""
    number = F.col("id")
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(number)
    if isinstance(kind, LongType):
        return F.when(number.isNotNull(), F.xxhash64(number))
    if isinstance(kind, NumericType):
        return (number % 1).cast(kind)  # fits all of them
    return number.cast(kind) if isinstance(kind, StringType) else None
