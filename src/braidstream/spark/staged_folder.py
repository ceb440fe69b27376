"""Where slots stage files beside those of a folder, and how they get out of it: by a rename each.

    FOLDER/_staging/OWNER/     the gate of who holds the lease of the checkpoint (`state.lease`)

A process that has lost its checkpoint to another may not touch results either. So whatever changes in the folder
passes, by one rename, through the gate; who takes over removes the gates of others before it delivers. In a folder that
several flows share, each has a staging folder of its own. Object stores have no rename, and no gate: there an owner's
folder is only his own, and who starts drops those of earlier terms; an owner sees by them that a later one has begun.

Results that Spark has to finish are written by it beside, and then take the same way. Cost: a rename a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import SinkError
from braidstream.spark.sink import Delivery
from braidstream.state import syncing
from braidstream.state.files import Files
from braidstream.state.staging import Staging
from braidstream.state.whole_epochs import BEGUN, STAGING, begin_owner, refuse_later_owner

__all__ = ["STAGING", "StagedFolder", "refuse_file"]


class StagedFolder:
    """A folder of results with a staging area in it."""

    def __init__(self, path: str, format_: str = "parquet", options: Mapping[str, str] | None = None) -> None:
        self.files = Files(path)
        self._format, self._options, self._base = format_, dict(options or {}), STAGING
        self.owner = ""

    @property
    def is_native(self) -> bool:
        """Whether slots write files as they are wanted."""
        return self._format == "parquet" and set(self._options) <= {"compression"}

    @property
    def _compression(self) -> str:
        return self._options.get("compression", "snappy")

    def open(self, owner: str, base: str = STAGING) -> None:
        """Make the staging area of an owner; `base` is that of the flow."""
        self._base, self.owner = base, owner or uuid.uuid4().hex
        self.files.gate = f"{base}/{owner}" if owner and self.files.has_renames else None
        self.files.make(self.place)
        if self.files.objects is not None and owner:
            begin_owner(self.files, self.place)
            self.files.check = partial(refuse_later_owner, self.files, base, owner)

    @property
    def place(self) -> str:
        """The folder that slots write to, and that changes pass through."""
        return f"{self._base}/{self.owner}" if self.files.objects is not None else self.files.gate or self._base

    def sweep(self) -> None:
        """Drop what was staged and never moved into place, with the gates of others."""
        self.files.make(self.place)
        for name in self.files.folders(self._base):
            is_later = self.files.objects is not None and name > self.owner
            if f"{self._base}/{name}" != self.place and not is_later:
                self.files.delete_folder(f"{self._base}/{name}")
        for folder in {self._base, self.place}:
            for name in self.files.names(folder):
                if name != BEGUN:
                    self.files.delete(f"{folder}/{name}")

    def staging(self) -> Staging:
        """Where slots write files that are only to be moved."""
        return Staging(self.files.root, self.place, self._compression)

    def stamps(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Sizes of files, and when they were modified, in nanoseconds, without a listing: the folder may be large."""
        found = self.files._system.get_file_info([self.files.path(name) for name in names])
        return {info.base_name: (info.size, info.mtime_ns or 0) for info in found if info.is_file}

    def put(self, delivery: Delivery, name: Callable[[int, str], str]) -> list[str]:
        """Move the results into place; `name` gives a file's new name by its number and ending."""
        if delivery.finished and self.is_native:
            placed = [self._moved(own, name(i, "parquet")) for i, own in enumerate(sorted(delivery.staged))]
            return self._settled(placed, [], delivery)
        if not delivery.staged:
            return []
        own = uuid.uuid4().hex
        written, folder = f"{self._base}/{own}", f"{self.place}/{own}-written"
        self._write(delivery.frame(), self.files.address(written))
        self.files.move(written, self.files, folder)  # Spark makes any folder anew, so it must not write in the gate
        made = [n for n in self.files.names(folder) if not n.startswith(("_", "."))]
        moved = [self._moved(f"{folder}/{own}", name(i, own.split(".", 1)[-1])) for i, own in enumerate(made)]
        self.files.delete_folder(folder)
        return self._settled(moved, moved, delivery)

    def _settled(self, placed: list[str], unsynced: list[str], delivery: Delivery) -> list[str]:
        """What was placed, on the disk: what Spark wrote, and which files there are; slots have synced their own."""
        if delivery.durable and self.files.has_renames:
            syncing.sync_files(self.files.path(name) for name in unsynced)
            syncing.sync_folders([self.files.path("")])
        return placed

    def _moved(self, name: str, new_name: str) -> str:
        self.files.move(name, self.files, new_name)
        return new_name

    def _write(self, frame: DataFrame, folder: str) -> None:
        """Let Spark write; Parquet files encoded as those that slots write, whatever the session says."""
        options = dict(self._options)
        if self._format != "parquet":
            frame.write.format(self._format).options(**options).mode("overwrite").save(folder)
            return
        options["compression"] = {"lz4": "lz4_raw"}.get(self._compression, self._compression)
        with _setting(frame.sparkSession, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
            frame.write.options(**options).mode("overwrite").parquet(folder)


def refuse_file(files: Files, path: str) -> None:
    """Refuse a path that is a file, and a bucket that does not answer, is not there, or may not be listed."""
    try:
        files.ask()
        is_file = files.exists() and files.size("") is not None
    except OSError as error:
        raise SinkError(
            f"the sink path {path!r} cannot be used: {error.strerror or error}",
            "a folder that can be reached and written",
            "check bucket, keys and permissions, and AWS_ENDPOINT_URL" if files.objects is not None else "",
        ) from None
    if is_file:
        raise SinkError(f"the sink path {path!r} is a file", "a folder", "choose another path")


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting for what is written inside; Spark has no option for it."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
