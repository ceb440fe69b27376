"""What is measured beside other systems: joins of made streams, as in `braid bench`, with their question in SQL.

A workload is cut to its first epochs for systems that would take minutes for all of it (`fewer`); rates are of the rows
that a system was given, and results are compared with DuckDB's on the same rows. What a system cannot do, and why, is
in `cannot`, by workload and system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from braidstream.lab.bench.cases import BRAIDSTREAM, CASES, PEER_CASES, SPARK_MEMORY, SPARK_ROCKSDB_4, Case
from braidstream.lab.bench.peers.asked import MODULUS, WEIGHTS

__all__ = [
    "BYTEWAX", "DUCKDB", "FLINK", "FLINK_SAVED", "JOINS", "PATHWAY", "POLARS", "Workload", "check_sql",
]  # fmt: skip

FLINK, FLINK_SAVED = "flink", "flink-checkpoints"
PATHWAY, BYTEWAX, DUCKDB, POLARS = "pathway", "bytewax", "duckdb-batch", "polars-batch"
_COLUMNS = {"k": "BIGINT", "v": "BIGINT", "ts": "BIGINT"}


@dataclass(frozen=True)
class Workload:
    """One question to all systems, and how much of the streams each is given."""

    name: str
    streams: Mapping[str, Mapping[str, str]]
    """The columns of each stream with their types in SQL."""
    write: Callable[[Path], None]
    """Writes the streams to folders of their names."""
    files_per_epoch: int
    rows_per_epoch: int
    """Over all streams that the question reads."""
    warm: int
    measured: int
    child: tuple[str, ...]
    """The module that asks Spark and Braidstream, and its first arguments."""
    duckdb: str
    """The question in DuckDB's SQL: what every other answer is compared with."""
    flink: str
    check: str
    """A number of each result, in SQL that all of them understand."""
    systems: tuple[str, ...]
    fewer: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Warm and measured epochs of systems that are given a part only."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    how: str = "inner"
    window_us: int = 0
    only_decided: tuple[str, ...] = ()
    """Systems that put out the last results later than a finite run lasts: only those before are compared, of a left
    join the matches, of groups in windows those that were closed."""
    decided: str = ""
    """The question without these, in DuckDB's SQL."""
    note: str = ""
    data: str = ""
    """The folder of its streams, where several workloads read the same; its name otherwise."""

    @property
    def folder(self) -> str:
        """The name of the folder of its streams."""
        return self.data or self.name

    def epochs(self, system: str) -> tuple[int, int]:
        """How many epochs a system warms up in, and how many are measured then."""
        return self.fewer.get(system, (self.warm, self.measured))


def check_sql(*columns: str) -> str:
    """The number of a result, of its columns of whole numbers; those that are missing are -1."""
    terms = (f"{weight} * (COALESCE({column}, -1) + 2)" for weight, column in zip(WEIGHTS, columns, strict=False))
    return f"CAST(MOD({' + '.join(terms)}, {MODULUS}) AS BIGINT)"


def _batch(case: Case, *, is_inner: bool = False) -> str:
    """In DuckDB's SQL. Where keys are skewed, rows meet only those of the stretches of time beside their own."""
    window, (first, *others) = round(case.window_s * 1_000_000), list(case.streams)
    selected = ", ".join(f"{name}.v AS {name.lower()}v" for name in case.streams)
    kind = "LEFT JOIN" if case.how == "left" and not is_inner else "JOIN"
    text, before = f"SELECT {selected} FROM {_cut(first, window, '') if case.is_skewed else first}", [first]
    for name in others:
        stored = _cut(name, window, ", (VALUES (-1), (0), (1)) AS shift(d)") if case.is_skewed else name
        beside = f" AND {first}.stretch = {name}.stretch" if case.is_skewed else ""
        apart = " AND ".join(f"ABS({one}.ts - {name}.ts) <= {window}" for one in before)
        text += f" {kind} {stored} ON {first}.k = {name}.k{beside} AND {apart}"
        before.append(name)
    return text


def _cut(name: str, window: int, shifts: str) -> str:
    shift = " + d" if shifts else ""
    return f"(SELECT k, v, ts, ts // {window}{shift} AS stretch FROM {name}{shifts}) AS {name}"


def _flink(case: Case) -> str:
    """Flink's interval joins, in a cascade; its times are of milliseconds, so microseconds are compared beside."""
    window, (first, *others) = round(case.window_s * 1_000_000), list(case.streams)
    length = f"INTERVAL '{case.window_s:g}' SECOND"
    selected = ", ".join(f"{name}.v AS {name.lower()}v" for name in case.streams)
    text, before = f"SELECT {selected} FROM {first}", [first]
    for name in others:
        apart = " AND ".join(f"{name}.ts - {one}.ts BETWEEN -{window} AND {window}" for one in before)
        near = f"{name}.t BETWEEN {first}.t - {length} AND {first}.t + {length}"
        kind = "LEFT JOIN" if case.how == "left" else "JOIN"
        text += f" {kind} {name} ON {first}.k = {name}.k AND {near} AND {apart}"
        before.append(name)
    return text


_ALL = (SPARK_MEMORY, SPARK_ROCKSDB_4, FLINK, FLINK_SAVED, PATHWAY, BYTEWAX, BRAIDSTREAM, DUCKDB, POLARS)
_NO_OUTER = "has no join that puts out a row when no partner can come any more; its timers are of the wall clock"


def _join(
    name: str,
    fewer: Mapping[str, tuple[int, int]] = {},
    systems: tuple[str, ...] = _ALL,
    cannot: Mapping[str, str] = {},
) -> Workload:
    case = {**CASES, **PEER_CASES}[name]
    return Workload(
        name,
        dict.fromkeys(case.streams, _COLUMNS),
        case.generate,
        case.files_per_epoch,
        case.rows_per_epoch,
        case.warm_epochs,
        case.measured_epochs,
        ("braidstream.lab.bench.child", case.name),
        _batch(case),
        _flink(case),
        check_sql(*(f"{stream.lower()}v" for stream in case.streams)),
        systems,
        fewer,
        cannot,
        case.how,
        round(case.window_s * 1_000_000),
        (SPARK_MEMORY, SPARK_ROCKSDB_4) if case.how == "left" else (),
        _batch(case, is_inner=True),
    )


_PYTHON = {PATHWAY: (0, 1), BYTEWAX: (0, 1)}
"""Those with a step of Python for each row get one epoch."""


def _parts(spark: tuple[int, int], flink: int) -> dict[str, tuple[int, int]]:
    """What the slower systems are given: so much as they do in ten to thirty seconds on two cores."""
    return {
        SPARK_MEMORY: spark,
        SPARK_ROCKSDB_4: (0, 1),
        FLINK: (0, flink),
        FLINK_SAVED: (0, flink),
        **_PYTHON,
    }


JOINS = {
    workload.name: workload
    for workload in (
        _join("uniform-1m", _parts((1, 2), 2)),
        _join("uniform-2m", systems=(BRAIDSTREAM, DUCKDB, POLARS)),
        _join("zipf", _parts((0, 1), 1)),
        _join("hot", _parts((1, 1), 2)),
        _join("left-outer", _parts((1, 2), 2), cannot={BYTEWAX: _NO_OUTER}),
        _join("three-way", _parts((1, 2), 2)),
    )
}
