"""Tables beside the streams of a flow, and the streams that they are joined to, by Spark, before rows are routed.

Which snapshot of a table the epochs see stands in the notes of the manifest before them (`TableNote`). A start takes
the newest, unless an epoch that was begun is to be done again, which sees its own; a refresh takes the newest between
two epochs, like a change of queries. So an epoch that is done again sees what it saw, where the format keeps versions.

A snapshot is cached by Spark while it is in use, so that epochs do not read it again each.

Invariant: the columns of a table that the checkpoint knows keep their types; a snapshot without them is refused.
Cost: a question for the newest snapshot at a start and a refresh; the join is Spark's, in every epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, StructField, StructType

from braidstream.errors import TableError, nearest
from braidstream.model.values import changed
from braidstream.query import Column, Schema, describe_duration
from braidstream.query.evolution import added_columns
from braidstream.query.model import Enriched, Lookup, Query
from braidstream.spark.names import column_of
from braidstream.spark.sources import Stream
from braidstream.spark.table_formats import TableSource, opened
from braidstream.state.manifest import Manifest
from braidstream.state.notes import TableNote

__all__ = ["AllStreams", "Table", "Tables", "enriched_frame", "explain_tables"]


@dataclass(frozen=True)
class Table:
    """A declared table."""

    name: str
    source: TableSource
    columns: StructType
    refresh_us: int | None = None
    """How often the newest snapshot is looked for while the flow runs; None: at its start."""

    @property
    def schema(self) -> Schema:
        """Its columns as the query language knows them."""
        return Schema(tuple(Column(field.name, field.dataType.simpleString()) for field in self.columns.fields))

    def newest(self) -> TableNote:
        """A note of the snapshot that there is now."""
        version = self.source.newest()
        frame = opened(self.name, self.source, version)
        return TableNote(self.source.location, version, frame.schema.simpleString(), time.time_ns() // 1000)


class Tables:
    """The tables of a flow, and the frames of the snapshots that are in use."""

    def __init__(self) -> None:
        self.declared: dict[str, Table] = {}
        self._frames: dict[str, tuple[TableNote, DataFrame]] = {}

    @property
    def schemas(self) -> dict[str, Schema]:
        """Their columns."""
        return {name: table.schema for name, table in self.declared.items()}

    def folders(self) -> Iterator[tuple[str, str]]:
        """The folders that they are read from."""
        for name, table in self.declared.items():
            if table.source.folder is not None:
                yield name, table.source.folder

    def frames(self, notes: Mapping[str, TableNote], needed: Sequence[str]) -> dict[str, DataFrame]:
        """The rows of the snapshots that notes name, cached; what was cached of others is given up."""
        for name in needed:
            known = self._frames.get(name)
            if known is None or known[0] != notes[name]:
                frame = opened(name, self.declared[name].source, notes[name].version)
                if not frame.is_cached:
                    frame = frame.select("*").persist()
                self._give_up(name)
                self._frames[name] = (notes[name], frame)
        return {name: self._frames[name][1] for name in needed}

    def release(self) -> None:
        """Give up all that is cached."""
        for name in list(self._frames):
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        if name in self._frames:
            self._frames.pop(name)[1].unpersist()

    def noted(self, manifest: Manifest, *, is_replay: bool) -> tuple[Manifest, tuple[str, ...]]:
        """The manifest with the snapshots that a start uses, and what is to be said of them.

        With `is_replay` an epoch was begun that is to be done again: it sees the snapshots that it saw, where they can
        be told.
        """
        before, notes, told = manifest.notes.tables, {}, []
        for name, table in self.declared.items():
            known, newest = before.get(name), table.newest()
            if known is not None:
                _refuse_other_columns(name, known.schema, newest.schema)
            if known is None or not is_replay:
                notes[name] = newest
                if known is not None and known.location != newest.location:
                    told.append(
                        f"table {name!r} is {newest.location} now, until epoch {manifest.epoch} {known.location}"
                    )
                continue
            if known.location != newest.location:
                wrong = f"table {name!r} is {newest.location}, and epoch {manifest.epoch + 1}, which was begun, saw "
                raise TableError(wrong + known.location, known.location, "start once as it was, and change it then")
            is_kept = table.source.keeps_versions
            notes[name] = known if is_kept else newest
            if not is_kept and (newest.version is None or newest.version != known.version):
                changes = "may have changed" if newest.version is None else "has changed"
                told.append(f"table {name!r} {changes} since epoch {manifest.epoch + 1} was begun, which is done again")
        if notes == before:
            return manifest, tuple(told)
        return manifest.with_notes(changed(manifest.notes, tables=notes)), tuple(told)

    def refreshed(self, notes: Mapping[str, TableNote], names: Sequence[str]) -> dict[str, TableNote]:
        """The notes with the newest snapshots of some tables; refused where they have other columns."""
        found = dict(notes)
        for name in names:
            if name not in self.declared:
                raise TableError(f"there is no table {name!r}", "a declared table", nearest(name, self.declared))
            newest = self.declared[name].newest()
            _refuse_other_columns(name, notes[name].schema, newest.schema)
            if newest.version is None or newest.version != notes[name].version:
                found[name] = newest
        return found


def _refuse_other_columns(name: str, before: str, after: str) -> None:
    if before != after and added_columns(before, after) is None:
        wrong = f"table {name!r} has other columns now: {after}"
        raise TableError(wrong, f"{before}, and perhaps more", "give it its columns back, or begin a new checkpoint")


class AllStreams(Mapping[str, Stream]):
    """Streams by name: those that are declared, and those with tables that queries have asked for."""

    def __init__(self, declared: Mapping[str, Stream], tables: Tables) -> None:
        self.declared, self.tables = declared, tables
        self._made: dict[str, Enriched] = {}

    def add(self, made: Enriched) -> None:
        """Know a stream with tables."""
        self._made[made.name] = made

    def over(self, declared: Mapping[str, Stream]) -> AllStreams:
        """The same over declared streams as a start reads them."""
        other = AllStreams(declared, self.tables)
        other._made = self._made
        return other

    def used(self, queries: Sequence[Query]) -> dict[str, Stream]:
        """The declared streams, and those with tables that queries read. One whose rows a table is joined to is
        read by Spark."""
        made = {one.name: one for query in queries for one in query.enriched}
        for one in made.values():
            self.add(one)
        hosts = {one.stream for one in made.values()}
        declared = {n: replace(s, files=None) if n in hosts else s for n, s in self.declared.items()}
        return {**declared, **{name: self[name] for name in made}}

    def __getitem__(self, name: str) -> Stream:
        if name in self.declared:
            return self.declared[name]
        made = self._made[name]
        host, fields = self.declared[made.stream], []
        for lookup in made.lookups:
            columns = self.tables.declared[lookup.table].columns.fields
            fields += [StructField(lookup.column(field.name), field.dataType) for field in columns]
            fields.append(StructField(lookup.flag, BooleanType()))
        schema = StructType([*host.schema.fields, *fields])
        frame = host.frame.sparkSession.createDataFrame([], schema)
        return replace(host, name=name, frame=frame, schema=schema, files=None, source=None, is_measured=False)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.declared, **self._made})

    def __len__(self) -> int:
        return len({**self.declared, **self._made})


def enriched_frame(frame: DataFrame, lookups: Sequence[Lookup], tables: Mapping[str, DataFrame]) -> DataFrame:
    """A stream's frame with the columns of tables beside its own: NULL where a table has no match."""
    return reduce(lambda made, lookup: _looked_up(made, lookup, tables[lookup.table]), lookups, frame)


def _looked_up(frame: DataFrame, lookup: Lookup, table: DataFrame) -> DataFrame:
    columns = [column_of(name).alias(lookup.column(name)) for name in table.columns]
    own = table.select(*columns, F.lit(True).alias(lookup.flag))
    return frame.join(own, F.expr(lookup.condition), "left")


def explain_tables(tables: Tables, queries: Sequence[Query], notes: Mapping[str, TableNote]) -> Iterator[str]:
    """The tables in words: what they are, which snapshot is in use, what a replay sees, and where they are joined."""
    for name, table in tables.declared.items():
        known = notes.get(name)
        now = "" if known is None or known.version is None else f", {table.source.version_words} {known.version}"
        often = "at each start" if table.refresh_us is None else f"every {describe_duration(table.refresh_us)}"
        yield f"  table {name}: {table.source.words}{now}, looked for anew {often}"
        yield f"    {table.source.promise}"
    for made in dict.fromkeys(one for query in queries for one in query.enriched):
        yield f"  stream {made.name} is {made.stream}, and Spark joins before its rows are routed:"
        for lookup in made.lookups:
            yield f"    {lookup.table} on {lookup.condition}"
