"""Iceberg tables by `pyiceberg`: the staged Parquet files are added by reference, with their mark in the same commit.

Files are renamed into the table's `data` folder, where nobody sees them, and then added by one commit of the catalog,
which also sets a property of the table: `braidstream.FLOW.OUTLET.epoch = 12`. Who finds that number, or a later one,
does nothing. (The snapshot names flow, outlet and epoch too, for people; but snapshots expire, and properties do not.)
A commit that meets another one is not repeated blindly: the table is read anew and the mark looked for. Whose files are
in the table then is not known (the answer to a commit of ours may have been lost), so files are never deleted.

Any catalog of pyiceberg's will do: `catalog` names one of its configuration, other options are handed to it. Without
one, a SQLite catalog `catalog.db` in the folder `path` keeps the tables there.

Cost: a rename and a look at the footer of each file; the table is loaded twice an epoch, and its metadata written. They
grow by a snapshot an epoch, so tables that are made here drop old files of metadata and merge manifests, and the option
`snapshots` says how many snapshots stay.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from braidstream.errors import SinkError
from braidstream.model.declarations import Target
from braidstream.replies import ANSWER_S, answer_within
from braidstream.spark.arrow_rows import refuse_other_columns, result_schema
from braidstream.spark.causes import one_line
from braidstream.spark.extras import extra
from braidstream.spark.names import resolved
from braidstream.spark.sink import Delivery, Mark, Reached, Sink
from braidstream.spark.staged_folder import STAGING, StagedFolder, refuse_file
from braidstream.state.files import Files
from braidstream.state.staging import Staging

__all__ = ["IcebergSink", "open_catalog", "refuse_far_catalog"]

_ATTEMPTS = 20
_OWN = ("table", "catalog", "snapshots")
_MADE_WITH = {"write.metadata.delete-after-commit.enabled": "true", "commit.manifest-merge.enabled": "true"}
"""So that what an epoch writes of metadata, and what stays of it, does not grow with their number."""
_SYNTAX = re.compile(r"[#?]|%[0-9A-Fa-f]{2}")
"""What addresses end at, or have in the place of another character."""


class IcebergSink(Sink):
    """An Iceberg table."""

    recognizes = True

    def __init__(self, path: str | None, options: Mapping[str, str]) -> None:
        extra("iceberg")
        self.path, self.options = path, dict(options)
        self._name = options["table"]
        if "." not in self._name:
            wrong = f"the Iceberg table {self._name!r} has no namespace"
            raise SinkError(wrong, "a namespace and a name", f'table = "results.{self._name}"')
        if path is None and "catalog" not in options:
            fix = 'path = "lake", or options with catalog = "NAME" from .pyiceberg.yaml'
            raise SinkError("the iceberg sink has neither a path nor a catalog", "one of them", fix)
        refuse_far_catalog(path, options)
        self._n_snapshots = _number_of_snapshots(options)
        self._schema: pa.Schema | None = None
        self._opened: Any = None
        self._placed: StagedFolder | None = None
        self.flow = ""
        where = f"in {path}" if "catalog" not in options else f"of catalog {options['catalog']}"
        self.description = (
            f"Iceberg table {self._name} {where} (each epoch once: files and their mark in one commit of the catalog)"
        )

    @property
    def target(self) -> Target:
        """The table."""
        return Target("iceberg", None, {**self.options, **({"path": self.path} if self.path else {})})

    def check(self, flow: str) -> None:
        """Refuse a catalog that cannot be asked."""
        del flow
        if self.path is not None:
            refuse_file(Files(self.path), self.path)
        if self._is_there:
            self._catalog()

    def check_rows(self, schema: StructType) -> None:
        """Refuse rows of other columns than the table's, and types that Iceberg has no form for."""
        self._schema = result_schema(schema, "Iceberg")
        wanted = self._wanted()
        table = self._found() if self._is_there else None
        if table is None:
            return
        refuse_other_columns(f"the Iceberg table {self._name}", _columns(table.schema()), _columns(wanted))
        needed = [one.name for one in table.schema().fields if one.required and schema[one.name].nullable]
        if needed:
            raise SinkError(
                f"the Iceberg table {self._name} has columns that may not be NULL: {', '.join(needed)}",
                "columns that may be NULL, as those of the results may: files are added to the table as they are",
                f"ALTER TABLE {self._name} ALTER COLUMN {needed[0]} DROP NOT NULL; or choose another table",
            )
        if table.spec().fields:
            wrong = f"the Iceberg table {self._name} is partitioned: files cannot simply be added to it"
            raise SinkError(wrong, "a table without partitions", "choose another table")

    def refuse_later(self, flow: str, outlet: str, reached: Reached) -> None:
        """Refuse a table with a later mark; it stays among its properties, also where a snapshot was restored."""
        table = self._found() if self._is_there else None
        if table is None:
            return
        for first, last in ((0, reached.epoch), (-1, reached.step)):
            mark = Mark(flow, outlet, first)
            fix = f"restore its snapshot of that {mark.kind}, and set its property {_property(mark)} to {last}"
            reached.refuse_later(f"the Iceberg table {self._name}", mark, _taken(table, mark), fix)

    def claim(self, flow: str, owner: str = "") -> None:
        """Make the table if it is not there, and the staging area."""
        self.flow = flow
        if self._found() is None and self._schema is not None:
            self._make(self._wanted())
        self._placed = StagedFolder(_path_of(self._there().location()))
        try:
            self._placed.open(owner, f"{STAGING}/{flow[:12]}")
        except OSError as error:
            wrong = f"the folder of the Iceberg table {self._name} cannot be written ({error})"
            raise SinkError(wrong, "a writable folder") from None

    def _make(self, schema: Any) -> None:
        """Make the table."""
        try:
            self._catalog().create_namespace_if_not_exists(tuple(self._name.split(".")[:-1]))
            self._catalog().create_table_if_not_exists(self._name, schema, properties=_MADE_WITH)
        except Exception as error:
            wrong = f"the Iceberg table {self._name} cannot be made: {one_line(error)}"
            raise SinkError(wrong, "a catalog and a warehouse that may be written", "check their permissions") from None

    def sweep(self) -> None:
        """Drop what this flow staged and never moved into place."""
        self._folder.sweep()

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """In the table's folder."""
        return self._folder.staging() if finished else super().staging(checkpoint, finished)

    def deliver(self, delivery: Delivery) -> None:
        """Add the files, unless the table has them."""
        if not delivery.staged:
            return
        mark, table = Mark(self.flow, delivery.outlet, delivery.number), self._there()
        if _has(table, mark):
            return
        own = uuid.uuid4().hex[:12]
        self._folder.files.make("data")
        names = self._folder.put(delivery, lambda i, ending: f"data/{mark.file_name}{i:04d}-{own}.{ending}")
        delivery.reach("delivery-put")
        location = table.location()
        self._expire(self._added(table, [f"{location}/{name}" for name in names], mark))
        delivery.reach("delivery-done")

    def _added(self, table: Any, paths: list[str], mark: Mark) -> Any:
        """The table with the files, unless another one has delivered the epoch."""
        unknown = extra("iceberg", "exceptions").CommitStateUnknownException
        said = {
            "braidstream.flow": mark.flow,
            "braidstream.outlet": mark.outlet,
            f"braidstream.{mark.kind}": str(mark.version),
        }
        for attempt in range(_ATTEMPTS):
            if _has(table, mark):
                break
            table.metadata.properties["commit.retry.num-retries"] = "0"  # here only: it would not look for the mark
            _leave_files(table)
            try:
                with table.transaction() as transaction:
                    transaction.add_files(paths, said, check_duplicate_files=False)
                    transaction.set_properties({_property(mark): str(mark.version)})
            except unknown:
                if attempt == _ATTEMPTS - 1:
                    raise
                table = self._there()
                continue
            break
        return table

    def _expire(self, table: Any) -> None:
        """Drop the oldest snapshots where there are a tenth more than are to stay; who cannot now does it later."""
        if self._n_snapshots is None or len(table.metadata.snapshots) <= self._n_snapshots * 1.1:
            return
        held = {ref.snapshot_id for ref in table.metadata.refs.values()}
        known = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
        old = [one.snapshot_id for one in known[: -self._n_snapshots] if one.snapshot_id not in held]
        errors = extra("iceberg", "exceptions")
        with suppress(errors.CommitFailedException, errors.CommitStateUnknownException):
            table.maintenance.expire_snapshots().by_ids(old).commit()

    @property
    def _is_there(self) -> bool:
        """Whether there may be a table: asking an embedded catalog would make one."""
        return "catalog" in self.options or (Path(resolved(self.path or "")) / "catalog.db").exists()

    @property
    def _folder(self) -> StagedFolder:
        assert self._placed is not None, "it was claimed"
        return self._placed

    def _catalog(self) -> Any:
        """The catalog; asked for its table, so that one that does not answer is known."""
        if self._opened is None:
            self._opened = open_catalog(self.path, self.options)
        return self._opened

    def _found(self) -> Any:
        """The table as it is now; None where there is none."""
        try:
            return self._catalog().load_table(self._name)
        except extra("iceberg", "exceptions").NoSuchTableError:
            return None

    def _there(self) -> Any:
        """The table as it is now; refused where there is none."""
        table = self._found()
        if table is None:
            wrong = f"there is no Iceberg table {self._name}"
            raise SinkError(wrong, "the table that results were delivered to", "restore it from a copy")
        return table

    def _wanted(self) -> Any:
        """The schema of a table for the results."""
        try:
            return extra("iceberg", "io.pyarrow")._pyarrow_to_schema_without_ids(self._schema)
        except Exception as error:
            raise SinkError(
                f"Iceberg has no form for these results: {one_line(error)}", "types that Iceberg has"
            ) from None


def _has(table: Any, mark: Mark) -> bool:
    """Whether the epoch was taken."""
    taken = _taken(table, mark)
    return taken is not None and taken >= mark.version


def _taken(table: Any, mark: Mark) -> int | None:
    """The last number of a mark's kind that the table has; None where it has none."""
    found = table.properties.get(_property(mark))
    return None if found is None else int(found)


def _leave_files(table: Any) -> None:
    """Take a conflict for what it is, unknown: pyiceberg would delete the manifests of a commit that may be ours."""
    errors, commit = extra("iceberg", "exceptions"), table._do_commit

    def committed(updates: Any, requirements: Any) -> None:
        try:
            commit(updates, requirements)
        except errors.CommitFailedException as error:
            raise errors.CommitStateUnknownException(str(error)) from error

    table._do_commit = committed


def _number_of_snapshots(options: Mapping[str, str]) -> int | None:
    """How many snapshots stay; None: all."""
    given = options.get("snapshots")
    if given is None or (given.isdecimal() and int(given) > 0):
        return None if given is None else int(given)
    wrong = f"the iceberg sink has snapshots = {given!r}"
    raise SinkError(wrong, "how many snapshots stay: 1 or more", "snapshots = 100")


def refuse_far_catalog(path: str | None, options: Mapping[str, str]) -> None:
    """Refuse a path where no embedded catalog, a file, can be."""
    if path is None or "catalog" in options:
        return
    if "://" not in path or path.startswith("file:"):
        _refuse_unspeakable(path)
        return
    raise SinkError(
        f"the catalog of an Iceberg table with a path is a file in that folder, which {path!r} cannot have",
        "a folder of this machine, or a catalog by its name",
        f'options = {{ catalog = "NAME", table = "{options["table"]}", warehouse = "{path}" }}, '
        "with NAME of .pyiceberg.yaml, or its type and uri beside",
    )


def _refuse_unspeakable(path: str) -> None:
    """Refuse a folder of which pyiceberg and SQLAlchemy, which take addresses apart, would make another one."""
    if found := _SYNTAX.search(resolved(path)):
        raise SinkError(
            f"the catalog of an Iceberg table cannot be in {path!r}, because of {found[0]!r} in its path",
            "a folder without what has a meaning in addresses: #, ?, and % before two digits",
            "choose another path, or rename the folder",
        )


def open_catalog(path: str | None, options: Mapping[str, str]) -> Any:
    """The catalog that options name, or the one in a folder, with an answer to whether it has their table."""
    refuse_far_catalog(path, options)
    extra("iceberg", "catalog.rest")  # the time that its imports take is not the server's
    try:
        if "catalog" not in options:
            return _asked_catalog("braidstream", _embedded(path or ""), options)
        return answer_within(ANSWER_S, lambda: _asked_catalog(options["catalog"], {}, options))
    except Exception as error:
        silent = f"it does not answer within {ANSWER_S:g} s"  # pyiceberg would wait for it without end
        raise SinkError(
            f"the Iceberg catalog of table {options['table']} cannot be used: "
            f"{silent if isinstance(error, futures.TimeoutError) else one_line(error)}",
            "a catalog that answers" if "catalog" in options else "a folder that may be written",
            "check its name in .pyiceberg.yaml, and its options" if "catalog" in options else f"check {path}",
        ) from None


def _embedded(path: str) -> dict[str, str]:
    """The settings of the catalog in a folder, which is made."""
    home = Path(resolved(path))
    home.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}"}


def _asked_catalog(name: str, usual: Mapping[str, str], options: Mapping[str, str]) -> Any:
    given = {key: value for key, value in options.items() if key not in _OWN}
    opened = extra("iceberg", "catalog").load_catalog(name, **{**usual, **given})
    opened.table_exists(options["table"])
    return opened


def _property(mark: Mark) -> str:
    return f"braidstream.{mark.flow}.{mark.outlet.replace(' ', '-')}.{mark.kind}"


def _columns(schema: Any) -> dict[str, str]:
    """Columns with their types, without the numbers that a table gives to inner fields."""
    return {field.name: re.sub(r"-?\d+: ", "", str(field.field_type)) for field in schema.fields}


def _path_of(location: str) -> str:
    return location.removeprefix("file://") if location.startswith("file://") else location
