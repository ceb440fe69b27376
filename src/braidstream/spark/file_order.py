"""In which order the files of a stream are read, and the delay that this order needs.

Spark's file source reads files in the order of their modification times, which in a folder that was copied say nothing.
A row is late when it is older than the watermark, and the watermark follows the newest row; so a folder read in a
random order loses most of its rows. Three orders:

    time        by the oldest event time of each file: the default where `epoch = "available"` and epochs are limited
    name        by path
    modified    by modification time, as Spark does: the default of a flow that runs on, which reads files as they come

How: Spark's source also reads folders that its file sink has written, and there it believes the sink's log
(`_spark_metadata`), which has a modification time for each file. So a log of our own, in a scratch folder, lists the
user's files with times in the wanted order; listing limits, offsets, and the log of files seen stay Spark's, for both
ways of reading. Which files belong to an epoch is in Spark's log of files before the epoch runs: a replay never looks
at the order again, and the scratch folder is made anew at each start. The times written are not before any real one, so
that a checkpoint may go on in another order: what was seen is known by its path, and what Spark forgets because of its
age would be too old in either.

The order alone does not make a stream complete: times of files may overlap. `needed_delay` is the largest amount by
which a file reaches back behind the files before it. It is the delay of a stream that was given none: from all files
where the order is by time, else from the first `FIRST`. The manifest remembers it; a later start may raise it, never
lower it.

Cost: at a start one listing, and for order "time" one look at each file that was not read (`spark/file_times.py`), else
at `FIRST` files; nothing where both order "modified" and a delay are given. Nothing for each epoch.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from braidstream.errors import RunError, StreamError
from braidstream.model.values import changed
from braidstream.plan.footers import FileTimes
from braidstream.spark.declared import check_stream_option
from braidstream.spark.file_times import path_of_url, times_of_files
from braidstream.spark.sources import FilesSource, Stream
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = [
    "DELAYS",
    "FIRST",
    "SPARK_LOG",
    "arrange",
    "check_order",
    "logged_line",
    "needed_delay",
    "refuse_order_of_a_run",
]

FIRST = 200
"""Files that a delay is measured from, where not all of them are looked at for their order."""
SPARK_LOG = "_spark_metadata"
"""The folder of the log in a folder that Spark's file sink has written."""
DELAYS = "delays"
"""Where the manifest's notes has the delays that were measured."""
_LIMITS = ("maxfilespertrigger", "maxbytespertrigger")
_OWN_ORDER = ("latestfirst", "maxfileage", "cleansource")
"""Options that mean something only with real modification times."""
_LISTING = ("pathglobfilter", "recursivefilelookup")
_FOR_EVER = "36500d"


@dataclass(frozen=True)
class _File:
    """A file of the folder: its address as Spark's log of seen files has it."""

    url: str
    size: int
    modified_ms: int
    times: FileTimes | None = None


def check_order(name: str, order: str | None, source: FilesSource | None = None) -> None:
    """Refuse an order that there is not, or that a source cannot be read in."""
    if order is None:
        return
    check_stream_option(name, "order", order)
    if order == "modified" or source is None:
        return
    if source.is_partitioned:
        wrong, fix = "its folder has partitions, or is not local", "leave order out, and give a delay"
        raise StreamError(f"the order of stream {name!r} is {order!r}, and {wrong}", 'order "modified"', fix)
    if own := [option for option in source.options if option.lower() in _OWN_ORDER]:
        wrong = f"the order of stream {name!r} is {order!r}, and its option {own[0]} goes by modification times"
        raise StreamError(wrong, "one of the two", f"leave out {own[0]}")


def refuse_order_of_a_run(name: str, order: str | None) -> None:
    """Refuse an order for a flow that runs on."""
    if order in ("time", "name"):
        raise StreamError(
            f"the order of stream {name!r} is {order!r}, and the flow runs on",
            'epoch = "available": files that come while a flow runs are read as they come',
            "run what is there with epoch = \"available\" first, then go on with the same checkpoint without an order",
        )  # fmt: skip


def arrange(
    spark: SparkSession, store: Checkpoint, manifest: Manifest, streams: Mapping[str, Stream], *, is_finite: bool
) -> tuple[dict[str, Stream], Manifest]:
    """The streams as they are read from now on, in their order and with their delays; the manifest remembers these."""
    made: dict[str, Stream] = {}
    known = dict(manifest.notes.delays)
    are_files = all(stream.source is not None for stream in streams.values())
    for place, (name, stream) in enumerate(streams.items()):
        made[name] = stream
        if stream.source is None:
            continue
        order = _chosen(stream, stream.source, is_finite=is_finite)
        if order == "modified" and not stream.is_measured:
            continue
        seen = _seen(store, place if are_files else None)
        made[name] = _Arrangement(spark, stream, stream.source, order).made(seen, manifest, known)
    if known == manifest.notes.delays:
        return made, manifest
    return made, manifest.with_notes(changed(manifest.notes, delays=known))


def _chosen(stream: Stream, source: FilesSource, *, is_finite: bool) -> str:
    if not is_finite:
        refuse_order_of_a_run(stream.name, source.order)
    if source.order is not None:
        return source.order
    real = source.is_partitioned or any(option.lower() in _OWN_ORDER for option in source.options)
    return "time" if is_finite and _is_limited(source) and not real else "modified"


def _is_limited(source: FilesSource) -> bool:
    """Whether an epoch takes only some of the files that are there, so that their order matters."""
    return any(option.lower() in _LIMITS for option in source.options)


@dataclass(frozen=True)
class _Arrangement:
    """One stream's files on the way to their order."""

    spark: SparkSession
    stream: Stream
    source: FilesSource
    order: str

    def made(self, seen: frozenset[str], manifest: Manifest, known: dict[str, int]) -> Stream:
        """The stream in its order; a delay that was measured is put among the known ones."""
        files = _listed(self.spark, self.source)
        read = [file for file in files if file.url in seen]
        unread = self._timed(self._sorted([file for file in files if file.url not in seen]))
        stream = self.stream
        if stream.is_measured:
            stream = self._measured(unread, manifest, known)
        if self.order == "modified":
            return stream
        unread = self._sorted(unread)
        folder = _logged([*read, *unread])
        self._check_log(folder, files)
        return _read_from(self.spark, replace(stream, told=_told(self.order, len(unread), stream)), folder)

    def _sorted(self, files: Sequence[_File]) -> list[_File]:
        if self.order == "modified":
            return sorted(files, key=lambda file: file.modified_ms)
        if self.order == "name":
            return sorted(files, key=lambda file: file.url)
        return sorted(files, key=lambda f: ((f.times.oldest, f.times.newest) if f.times else _NEVER, f.url))

    def _timed(self, files: Sequence[_File]) -> list[_File]:
        """With their times: all files where they decide the order, else the first ones, if the delay needs them."""
        n = len(files) if self.order == "time" else FIRST if self.stream.is_measured else 0
        times = times_of_files(self.spark, [file.url for file in files[:n]], self.stream.time)
        return [*(replace(file, times=one) for file, one in zip(files[:n], times, strict=True)), *files[n:]]

    def _measured(self, unread: Sequence[_File], manifest: Manifest, known: dict[str, int]) -> Stream:
        timed = [file for file in unread if file.times is not None]
        if self.order == "time" or not _is_limited(self.source):  # what is there comes in one epoch, in no order
            steps = [[file] for file in sorted(timed, key=lambda f: (f.times or _NONE).oldest)]
        elif self.order == "name":
            steps = [[file] for file in self._sorted(timed)]
        else:  # files of one modification time come in whatever order the file system lists them
            steps = [list(group) for _, group in groupby(timed, lambda file: file.modified_ms)]
        times = [[file.times for file in step if file.times] for step in steps]
        name = self.stream.name
        needed = needed_delay(times, manifest.newest.get(name), manifest.watermark)
        if len(timed) > 1 or needed:
            known[name] = max(known.get(name, 0), needed)
        delay = known.get(name, 0)
        measured = f", measured from {len(timed):,} files" if name in known and timed else ""
        return replace(self.stream, delay_us=delay, told=measured)

    def _check_log(self, folder: str, files: Sequence[_File]) -> None:
        """Refuse to start where this Spark would not read the log, rather than read nothing."""
        found = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder).inputFiles()
        if set(found) != {file.url for file in files}:
            raise RunError(
                f"Spark sees {len(found):,} of the {len(files):,} files of stream {self.stream.name!r} in their order",
                "all of them",
                'leave spark.sql.streaming.fileStreamSink.* and fileSink.log.* as they are, or use order = "modified"',
            )


_NEVER = (1 << 63, 1 << 63)
"""Files without times come last."""
_NONE = FileTimes(0, 0)


def needed_delay(steps: Sequence[Sequence[FileTimes]], newest: int | None, watermark: int | None) -> int:
    """The least delay with which no row is late, where files are read step by step, those of a step in any order.

    `newest` and `watermark` are what the stream has come to before; what is older than that is late with any delay.
    """
    needed = 0
    for step in steps:
        for i, file in enumerate(step):
            others = [other.newest for j, other in enumerate(step) if j != i]
            reached = max([*others, *([] if newest is None else [newest])], default=file.oldest)
            oldest = file.oldest if watermark is None else max(file.oldest, watermark)
            needed = max(needed, reached - oldest)
        newest = max([*(file.newest for file in step), *([] if newest is None else [newest])], default=newest)
    return needed


def _told(order: str, n_files: int, stream: Stream) -> str:
    by = "by their event times" if order == "time" else "by their names"
    return f"{stream.told}; {n_files:,} files {by}"


def _listed(spark: SparkSession, source: FilesSource) -> list[_File]:
    """The files as Spark lists them: any that were left out would never be read."""
    options = {name: value for name, value in source.options.items() if name.lower() in _LISTING}
    try:
        urls = spark.read.format("binaryFile").options(**options).load(source.pattern).inputFiles()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise
    return [file for url in urls if (file := _found(url)) is not None]


def _found(url: str) -> _File | None:
    try:
        there = Path(path_of_url(url)).stat()
    except FileNotFoundError:
        return None
    return _File(url, there.st_size, there.st_mtime_ns // 1_000_000)


def _seen(store: Checkpoint, place: int | None) -> frozenset[str]:
    """The files that were read, by Spark's log of them: of one source, or where sources cannot be told apart, of all.

    It only saves looking at them again: whether a file is read is for Spark to say.
    """
    folder = f"{store.log.folder}/sources"
    places = [place] if place is not None else range(64)
    return frozenset(url for one in places for url in _logged_files(store, f"{folder}/{one}"))


def _logged_files(store: Checkpoint, folder: str) -> set[str]:
    """What is in the last compacted entry of a log of Spark's, and in those after it."""
    names = store.files.names(folder)
    compacted = max((int(n.removesuffix(".compact")) for n in names if n.endswith(".compact")), default=-1)
    wanted = [f"{compacted}.compact"] if compacted >= 0 else []
    wanted += [name for name in names if name.isdigit() and int(name) > compacted]
    lines = (line for name in wanted for line in store.files.read(f"{folder}/{name}").decode().splitlines()[1:])
    return {json.loads(line)["path"] for line in lines}


def _logged(files: Sequence[_File]) -> str:
    """A folder that Spark's file source takes for one with these files, in this order."""
    folder = _scratch() / uuid.uuid4().hex
    first_ms = max([time.time_ns() // 1_000_000, *(file.modified_ms for file in files)])
    (folder / SPARK_LOG).mkdir(parents=True)
    entries = (logged_line(file.url, file.size, first_ms + i) for i, file in enumerate(files))
    (folder / SPARK_LOG / "0").write_text("\n".join(["v1", *entries]), encoding="utf-8")
    return folder.as_uri()


def logged_line(url: str, size: int, modified_ms: int) -> str:
    """A file in a log of Spark's file sink."""
    plain = {
        "path": url,
        "size": size,
        "isDir": False,
        "modificationTime": modified_ms,
        "blockReplication": 1,
        "blockSize": max(size, 1),
        "action": "add",
    }
    return json.dumps(plain, ensure_ascii=False)


@cache
def _scratch() -> Path:
    """A folder of this process; Spark reads the logs in it when a streaming query starts."""
    made = tempfile.TemporaryDirectory(prefix="braidstream-order-")
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _read_from(spark: SparkSession, stream: Stream, folder: str) -> Stream:
    assert stream.source is not None
    others = {name: value for name, value in stream.source.options.items() if name.lower() not in _LISTING}
    options = {**others, "recursiveFileLookup": "true", "maxFileAge": _FOR_EVER}
    source = replace(stream.source, path=folder, options=options)
    frame = spark.readStream.schema(stream.schema).options(**options).parquet(folder)
    return replace(stream, frame=frame, source=source, files=source if stream.files is not None else None)
