"""Results on their way from a slot to a sink.

A slot writes the results of a query as a Parquet file in a staging folder; the driver hands the files of the tasks that
Spark accepted to the sink. So a sink sees results once they are complete, several sinks can read them without computing
the join again, and whatever a lost attempt wrote is swept.

Small batches are gathered into row groups of at least `ROWS`, or of `BYTES` where rows are wide. Cost: one pass of
Parquet encoding in the slot's task, and the memory of a row group and its encoding.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import DamagedState
from braidstream.model.reports import StagedFile
from braidstream.state.files import Files
from braidstream.state.seals import SealedFile, check_seal

__all__ = ["SPARK_FIELD", "Discard", "Stage", "Staging", "Writer", "check_staged", "renamed_field"]

SPARK_FIELD = b"spark.field"
"""Metadata of a field: the column as Spark declares it, in JSON. It may say more than Arrow's type."""
_SAYS_MORE = re.compile(rb"collat|interval|variant|__CHAR_VARCHAR", re.IGNORECASE)
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark looks for its own types in a Parquet file."""
ROWS = 1 << 17
_AT_ONCE = 8
BYTES = 1 << 22
"""What waits for a row group to be full: a constant, since it comes on top of a slot's budget."""


class Writer(Protocol):
    """Takes the result batches of one slot and query."""

    rows: int

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Take a batch."""
        ...

    def close(self) -> StagedFile | None:
        """Finish; gives the staged file, None when there is none."""
        ...


@dataclass(frozen=True)
class Staging:
    """Where results of a query are staged: a folder, or nowhere when they are to be discarded."""

    root: str | None
    folder: str = ""
    compression: str = "snappy"

    def writer(self, schema: pa.Schema, epoch: int, slot: int) -> Writer:
        """A writer for one slot and epoch."""
        if self.root is None:
            return Discard()
        return Stage(Files(self.root), f"{self.folder}/{epoch:010d}-{slot}-{uuid.uuid4().hex}.parquet", schema, self)


class Discard:
    """Counts results and drops them: the `noop` sink."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Count a batch."""
        self.rows += len(columns[0]) if columns else 0

    def close(self) -> StagedFile | None:
        """There is no file."""
        return None


class Stage:
    """Writes results to a staged Parquet file, which exists once there is a first row."""

    def __init__(self, files: Files, name: str, schema: pa.Schema, staging: Staging) -> None:
        self.rows = 0
        self._files, self._name, self._schema, self._staging = files, name, _declared(schema), staging
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = self._n_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Take a batch; it reaches the file when a row group is full."""
        narrow = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, self._schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(narrow, schema=self._schema)
        self.rows += batch.num_rows
        self._n_waiting += batch.num_rows
        self._n_bytes += batch.nbytes
        self._waiting.append(batch)
        if self._n_waiting >= ROWS or self._n_bytes >= BYTES:
            self._flush()

    def close(self) -> StagedFile | None:
        """Write what is waiting and close the file."""
        if self._n_waiting:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        self._sink.close()
        return StagedFile(self._name, self._sink.size, self._sink.checksum)

    def _flush(self) -> None:
        if self._writer is None:
            self._sink = SealedFile.create(self._files, self._name)
            text = [field.name for field in self._schema if pa.types.is_string(field.type)]
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._staging.compression,
                use_dictionary=text,
                store_decimal_as_integer=True,  # as Spark does, which writes the results that it finishes
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._n_waiting, self._n_bytes = [], 0, 0


def check_staged(root: str, staged: Sequence[StagedFile]) -> list[str]:
    """The names of files that are what slots have staged, before they go to a sink; one that is not is refused.

    Several at once: while one is counted, others are.

    On an object store only the size is looked at: the bytes would all pass through the driver, and the store has
    checksums of its own.
    """
    files = Files(root)
    files.direct = True
    with ThreadPoolExecutor(max(min(len(staged), _AT_ONCE), 1)) as pool:
        list(pool.map(lambda one: _check_staged(files, one), staged))
    return [one.name for one in staged]


def _check_staged(files: Files, one: StagedFile) -> None:
    if files.has_renames:
        check_seal(files, one.name, one.checksum, one.bytes, "staged file")
    elif files.size(one.name) != one.bytes:
        raise DamagedState(files.path(one.name), f"this staged file has not its {one.bytes} bytes")


def _declared(schema: pa.Schema) -> pa.Schema:
    """The schema with Spark's for the whole file, where Parquet's types say less; fields without metadata."""
    texts = [(field.metadata or {}).get(SPARK_FIELD) for field in schema]
    plain = pa.schema([field.remove_metadata() for field in schema])
    if None in texts or not any(_SAYS_MORE.search(text) for text in texts if text is not None):
        return plain
    own = [renamed_field(text, field.name) for text, field in zip(texts, schema, strict=True) if text is not None]
    return plain.with_metadata({_SPARK_SCHEMA: json.dumps({"type": "struct", "fields": own})})


def renamed_field(text: bytes, name: str) -> dict[str, Any]:
    """Spark's declaration of a field under another name, which the paths of its collations begin with as well."""
    field = json.loads(text)
    old, metadata = field["name"], dict(field.get("metadata") or {})
    for key, value in metadata.items():
        if isinstance(value, dict):
            metadata[key] = {_renamed(path, old, name): inner for path, inner in value.items()}
    return {**field, "name": name, "nullable": True, "metadata": metadata}


def _renamed(path: str, old: str, name: str) -> str:
    return name + path[len(old) :] if path == old or path.startswith(f"{old}.") else path
