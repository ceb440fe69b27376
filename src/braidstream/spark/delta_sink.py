"""Delta tables by `deltalake` (delta-rs): the staged Parquet files are added by reference. No JVM package is needed.

Files are renamed into the table's folder, where nobody sees them, and then named in one commit of the table's log, with
Delta's own mark of an application: writer = flow and outlet, version = epoch. Who finds that version, or a later one,
does nothing. Two processes that deliver the same epoch at once conflict on the writer, so one of them fails, looks
again and finds the mark. Whose files are in the table then is not known: a commit that arrived, and of which the answer
was lost, is found in the same way. So files that were renamed are never deleted; those that no commit names are no part
of the table, and Delta's `vacuum` removes them.

A table that files cannot be added to by reference (it has partitions, renamed or computed columns, constraints, or
features that ask more of a writer) is written by Spark's Delta, where the session has it.

Cost: a rename and a look at the footer of each file. The log is read once, then what is new in it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from braidstream.errors import SinkError
from braidstream.model.declarations import Target
from braidstream.spark.arrow_rows import refuse_other_columns, result_schema
from braidstream.spark.causes import one_line
from braidstream.spark.delta_paths import refuse_delta_path
from braidstream.spark.extras import extra
from braidstream.spark.formats import find_sink
from braidstream.spark.names import resolved
from braidstream.spark.sink import Delivery, Mark, Reached, Sink
from braidstream.spark.staged_folder import STAGING, StagedFolder, refuse_file
from braidstream.state.staging import Staging

__all__ = ["DeltaSink"]

_ATTEMPTS = 20
_KEPT = {"delta.columnMapping.mode": ("none", ""), "delta.enableRowTracking": ("false", "")}
"""Properties with which files may be added by reference."""
_COMPUTED = ("delta.invariants", "delta.generationExpression", "delta.identity.")
"""What a column's metadata begin with where a writer has to look at values, or make them."""
_FEATURES = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"),
        *("columnMapping", "timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"),
        *("domainMetadata", "typeWidening", "variantType"),
    }
)
"""What may be asked of a writer who only adds files: nothing, if columns and properties ask for nothing."""


class DeltaSink(Sink):
    """A Delta table."""

    recognizes = True

    def __init__(self, path: str, by_spark: Sink) -> None:
        refuse_delta_path(path, SinkError)
        self.path, self._by_spark = path, by_spark
        self._delta = extra("delta")
        self._actions = extra("delta", "transaction")
        self._placed = StagedFolder(path)
        self._schema: pa.Schema | None = None
        self._opened: Any = None
        self._needs_spark, self._is_asked = False, False
        self.flow = ""
        self.description = f"Delta table {path} (each epoch once: files and their mark in one commit of the table)"

    @property
    def target(self) -> Target:
        """As Spark's Delta is written down, too."""
        return Target("delta", None, {"path": self.path})

    @property
    def folder(self) -> str:
        """That of the table."""
        return self.path

    @property
    def _uri(self) -> str:
        return resolved(self.path)

    def find(self, spark: SparkSession) -> None:
        """Leave a table that files cannot be added to for Spark's Delta; refuse it where the session has none."""
        refuse_file(self._placed.files, self.path)
        reason = self._not_by_reference()
        if reason is None:
            return
        try:
            find_sink(spark, "delta")
        except SinkError as error:
            wrong = f"files cannot be added to the Delta table {self.path!r}: {reason}"
            raise SinkError(wrong, "a plain table, or a session with Spark's Delta", error.fix) from None
        self._needs_spark = True
        self.description = f"{self._by_spark.description}, because {reason}"

    def check(self, flow: str) -> None:
        """Refuse a file, and a folder of other files."""
        del flow
        files = self._placed.files
        refuse_file(files, self.path)
        if not self._delta.DeltaTable.is_deltatable(self._uri) and (files.names("") or _strange(files.folders(""))):
            raise SinkError(
                f"the folder {self.path!r} has files in it, and is no Delta table",
                "a Delta table, or a new folder",
                "choose another path",
            )

    def check_rows(self, schema: StructType) -> None:
        """Refuse rows of other columns than the table's, and types that Delta has no form for."""
        self._schema = result_schema(schema, "Delta")
        try:
            mine = self._delta.Schema.from_arrow(self._schema)
        except Exception as error:
            raise SinkError(f"Delta has no form for these results: {one_line(error)}", "types that Delta has") from None
        if self._delta.DeltaTable.is_deltatable(self._uri) and not self._needs_spark:
            refuse_other_columns(f"the Delta table {self.path!r}", _columns(self._table().schema()), _columns(mine))

    def refuse_later(self, flow: str, outlet: str, reached: Reached) -> None:
        """Refuse a table with a later mark; it stays in the log, also where the table was restored."""
        if not self._delta.DeltaTable.is_deltatable(self._uri) or not self._is_readable:
            return
        for first in (0, -1):
            mark = Mark(flow, outlet, first)
            reached.refuse_later(
                f"the Delta table {self.path!r}",
                mark,
                _taken(self._table(), mark),
                "copy the table as it was after the last epoch of the checkpoint, and send the query to the copy",
            )

    def claim(self, flow: str, owner: str = "") -> None:
        """Make the table if it is not there, and the staging area."""
        self.flow, self._is_asked = flow, False
        self._by_spark.claim(flow, owner)
        if self._needs_spark:
            return
        try:
            self._placed.open(owner, f"{STAGING}/{flow[:12]}")
            if self._schema is not None and not self._delta.DeltaTable.is_deltatable(self._uri):
                self._delta.DeltaTable.create(self._uri, self._schema, mode="ignore")
        except (OSError, self._delta.exceptions.DeltaError) as error:
            raise SinkError(f"the sink path {self.path!r} cannot be written ({error})", "a writable folder") from None

    def sweep(self) -> None:
        """Drop what this flow staged and never moved into place."""
        if not self._needs_spark:
            self._placed.sweep()

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """In the table's folder."""
        return self._placed.staging() if finished and not self._needs_spark else super().staging(checkpoint, finished)

    def deliver(self, delivery: Delivery) -> None:
        """Add the files, unless the table has them."""
        mark = Mark(self.flow, delivery.outlet, delivery.number)
        if self._needs_spark:
            self._deliver_by_spark(delivery, mark)
            return
        if not delivery.staged:
            return
        table = self._table()
        if self._has(table, mark):
            return
        own = uuid.uuid4().hex[:12]
        names = self._placed.put(delivery, lambda i, ending: f"{mark.file_name}{i:04d}-{own}.{ending}")
        delivery.reach("delivery-put")
        self._add(table, names, mark)
        delivery.reach("delivery-done")

    def _deliver_by_spark(self, delivery: Delivery, mark: Mark) -> None:
        """The same by Spark's Delta, which does not know our marks: the first time they are looked for."""
        if not delivery.staged:
            return
        if not self._is_asked and self._is_readable and self._has(self._table(), mark):
            return
        self._is_asked = True
        self._by_spark.deliver(delivery)

    def _add(self, table: Any, names: list[str], mark: Mark) -> None:
        """Add the files, unless another one has delivered the epoch."""
        needed = [field.name for field in table.schema().fields if not field.nullable]
        actions = [action for name in names if (action := self._action(name, needed)) is not None]
        said = {"braidstream": json.dumps({"flow": mark.flow, "outlet": mark.outlet, mark.kind: mark.version})}
        done = self._delta.Transaction(mark.writer, mark.version)
        properties = self._delta.CommitProperties(custom_metadata=said, app_transactions=[done])
        for attempt in range(_ATTEMPTS):
            if self._has(table, mark):
                return
            try:
                table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
            except self._delta.exceptions.CommitFailedError:
                if attempt == _ATTEMPTS - 1:
                    raise
                table = self._table()
                continue
            return

    def _action(self, name: str, needed: Sequence[str]) -> Any:
        """A file as the log names it; None for one without rows. Nobody else sees to it that columns have no NULL."""
        with self._placed.files.open(name) as content:
            file = pq.ParquetFile(content)
            footer = file.metadata
            lacking = next((column for column in needed if _has_nulls(file, column)), None)
        if lacking is not None:
            raise SinkError(
                f"rows have NULL in column {lacking!r}, which may not be NULL in the Delta table {self.path!r}",
                "rows that have all that the table asks for",
                f"leave them out in the query ({lacking} IS NOT NULL), or let the column be NULL in the table",
            )
        size = self._placed.files.size(name)
        stats = json.dumps({"numRecords": footer.num_rows})
        return self._actions.AddAction(name, size, {}, 0, True, stats) if footer.num_rows else None

    def _table(self) -> Any:
        """The table as it is now; of its log only what is new is read."""
        if self._opened is not None:
            try:
                self._opened.update_incremental()
            except self._delta.exceptions.DeltaError:  # its log was cleaned up, or it was made anew
                self._opened = None
        if self._opened is None:
            self._opened = self._delta.DeltaTable(self._uri)
        return self._opened

    @property
    def _is_readable(self) -> bool:
        try:
            self._table()
        except Exception:
            return False
        return True

    def _has(self, table: Any, mark: Mark) -> bool:
        """Whether the epoch was taken: by this writer, or by Spark's Delta before this sink was there."""
        taken = _taken(table, mark)
        return taken is not None and taken >= mark.version

    def _not_by_reference(self) -> str | None:
        """Why files cannot simply be added to the table."""
        if not self._delta.DeltaTable.is_deltatable(self._uri):
            return None
        try:
            table = self._table()
            found = table.metadata()
        except Exception as error:
            return f"delta-rs cannot read it ({one_line(error)})"
        if found.partition_columns:
            return f"it is partitioned by {', '.join(found.partition_columns)}"
        features = table.protocol().writer_features or ()
        return _hindered(found.configuration) or _asked_of(json.loads(table.schema().to_json()), features)


def _taken(table: Any, mark: Mark) -> int | None:
    """The last number of a mark's kind that the table has; None where it has none."""
    former = mark.flow if mark.kind == "epoch" else f"{mark.flow}-clean-up"
    versions = (table.transaction_version(writer) for writer in (mark.writer, former))
    return max((version for version in versions if version is not None), default=None)


def _has_nulls(file: pq.ParquetFile, column: str) -> bool:
    """Whether a column has NULLs: by the footer, where that says it of the column itself."""
    footer = file.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
    said = [chunk.statistics for chunk in chunks if chunk.path_in_schema == column]
    if said and all(one is not None and one.has_null_count for one in said):
        return any(one.null_count for one in said)
    return bool(file.read(columns=[column])[column].null_count)


def _asked_of(schema: object, features: Iterable[str]) -> str | None:
    """What columns, or the table's protocol, ask of a writer."""
    for name, metadata in _metadata(schema):
        computed = [key for key in metadata if key.startswith(_COMPUTED)]
        if computed:
            return f"its column {name} has {computed[0]}"
    beyond = sorted(set(features) - _FEATURES)
    return f"a writer has to know {', '.join(beyond)}" if beyond else None


def _metadata(kind: object) -> Iterator[tuple[str, Iterable[str]]]:
    """The columns of a schema, inner ones too, with what is noted of each."""
    for inner in kind.values() if isinstance(kind, dict) else kind if isinstance(kind, list) else ():
        yield from _metadata(inner)
    if isinstance(kind, dict) and isinstance(kind.get("metadata"), dict):
        yield str(kind.get("name")), kind["metadata"]


def _hindered(configuration: Mapping[str, str]) -> str | None:
    for name, value in configuration.items():
        if name.startswith("delta.constraints.") or str(value).lower() not in _KEPT.get(name, (str(value).lower(),)):
            return f"it has {name} = {value}"
    return None


def _strange(folders: list[str]) -> bool:
    return any(name not in (STAGING, "_delta_log") for name in folders)


def _columns(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema.fields}
