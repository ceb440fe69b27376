"""Where a case of `braidstream.lab.testing.strategies` can be run: in this process, or on local Spark.

A backend is called with a case, a number of slots and one of groups, and gives the results as rows {"R.k": ..., ...}.
`n_examples` is how many random cases it is fast enough for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from braidstream.lab.testing import oracle
from braidstream.lab.testing.strategies import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("k", "j", "v", "ts")


class Backend(Protocol):
    """Runs cases."""

    n_examples: int

    def __call__(self, case: Case, slots: int, groups: int) -> list[dict[str, Any]]:
        """The results of the case's query."""
        ...


class InProcess:
    """`braidstream.lab.testing.harness`."""

    n_examples = 100

    def __init__(self, folder: Path) -> None:
        self._folders = (folder / str(i) for i in itertools.count())

    def __call__(self, case: Case, slots: int, groups: int) -> list[dict[str, Any]]:
        """Run a case."""
        from braidstream.lab.testing.harness import Harness

        folder = next(self._folders)
        schemas = {stream.name: case.schema for stream in case.streams}
        harness = Harness(folder, schemas, {"q": indexed(case)}, delays_us=case.delays_us, slots=slots, groups=groups)
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        return harness.results("q")


class LocalSpark:
    """A `Flow` over Parquet files, one file a stream and epoch."""

    n_examples = 8

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._folders = (folder / str(i) for i in itertools.count())
        self._spark = spark

    def __call__(self, case: Case, slots: int, groups: int) -> list[dict[str, Any]]:
        """Run a case."""
        from braidstream.lab.workloads import append_files
        from braidstream.spark.flow import Flow

        folder = next(self._folders)
        flow = Flow(self._spark, slots=slots, groups=groups)
        for name, delay_us in case.delays_us.items():
            append_files(folder / name, (tables(case, epoch)[name] for epoch in case.epochs))
            flow.files(
                name,
                folder / name,
                schema=ddl(case),
                time="ts",
                delay=f"{delay_us} microseconds",
                options={"maxFilesPerTrigger": "1"},
                order="modified",
            )
        query = flow.query(cql(case)).to("memory")
        flow.start(folder / "ck", warm=False).await_termination()
        found = query.sink.table()  # type: ignore[union-attr]
        return [] if found is None else found.to_pylist()


def indexed(case: Case) -> list[Any]:
    """The inputs of the case's query, for the harness. All equalities must be on one class of attributes a position."""
    from braidstream.lab.testing.harness import Indexed

    keys = key_columns(case)
    return [Indexed(stream.name, stream.name, keys[stream.name], stream.window_us) for stream in case.streams]


def key_columns(case: Case) -> dict[str, tuple[str, ...]]:
    """The key of each stream: where streams are joined on several columns, in the order of the first one's."""
    classes: list[dict[str, str]] = []
    for left, right in case.equalities:
        one, other = left.split("."), right.split(".")
        known = next((c for c in classes if c.get(one[0]) == one[1]), None)
        if known is None:
            classes.append(known := {one[0]: one[1]})
        known[other[0]] = other[1]
    return {stream.name: tuple(c[stream.name] for c in classes) for stream in case.streams}


def tables(case: Case, epoch: oracle.Epoch) -> dict[str, pa.Table]:
    """The rows of an epoch, a table for every stream."""
    return {s.name: pa.Table.from_pylist(list(epoch.get(s.name, ())), case.schema) for s in case.streams}


def expected(case: Case) -> list[dict[str, Any]]:
    """What the oracle says, in the form of a backend's results."""
    found = oracle.join(case.streams, case.equalities)
    names = [f"{stream.name}.{column}" for stream in case.streams for column in COLUMNS]
    return [dict(zip(names, row, strict=True)) for row in oracle.project(found, names)]


def ddl(case: Case) -> str:
    """The schema of the case's streams as Spark spells it."""
    kinds = {pa.int64(): "long", pa.string(): "string"}
    return f"k {kinds[case.schema.field('k').type]}, j {kinds[case.schema.field('j').type]}, v long, ts timestamp"


def cql(case: Case) -> str:
    """The case's query."""
    outputs = ", ".join(f"{s.name}.{c} AS `{s.name}.{c}`" for s in case.streams for c in COLUMNS)
    windows = ", ".join(
        f"{s.name} [RANGE {'UNBOUNDED' if s.window_us is None else f'{s.window_us} MICROSECONDS'}]"
        for s in case.streams
    )
    return f"SELECT {outputs} FROM {windows} WHERE {' AND '.join(f'{a} = {b}' for a, b in case.equalities)}"


def multiset(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    """Rows to compare, however they are ordered and however times are spelled."""
    return Counter(tuple(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return "NaN" if value != value else value  # noqa: PLR0124  only NaN differs from itself
