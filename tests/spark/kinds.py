"""Random streams with keys and payloads of many Spark types, for tests that go end to end.

A `Kind` says how the keys of R and S look: columns and types on both sides, the join condition, and the values to draw
from. Rows carry a payload of nested types, decimals, binary and times with and without a zone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from braidstream.lab.testing import oracle
from braidstream.lab.workloads import append_files

__all__ = ["KINDS", "PAYLOAD", "Kind", "Made", "frozen", "make", "multiset", "write"]

SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

PAYLOAD: dict[str, tuple[str, pa.DataType]] = {
    "v": ("long", pa.int64()),
    "ts": ("timestamp", pa.timestamp("us", "UTC")),
    "nested": ("struct<x:int,y:array<string>>", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    "amount": ("decimal(20,4)", pa.decimal128(20, 4)),
    "blob": ("binary", pa.binary()),
    "counts": ("map<string,int>", pa.map_(pa.string(), pa.int32())),
    "local": ("timestamp_ntz", pa.timestamp("us")),
    "seen": ("timestamp", pa.timestamp("us", "UTC")),
    "day": ("date", pa.date32()),
    "ratio": ("double", pa.float64()),
    "is_set": ("boolean", pa.bool_()),
}
"""The columns after the key: Spark's and Arrow's type of each."""


@dataclass(frozen=True)
class Side:
    """The key columns of one side: name, Spark's type, Arrow's type, and the values, None for NULL among them."""

    columns: tuple[tuple[str, str, pa.DataType, Sequence[Any]], ...]

    @property
    def schema(self) -> pa.Schema:
        keys = [(name, arrow) for name, _, arrow, _ in self.columns]
        return pa.schema([*keys, *((name, arrow) for name, (_, arrow) in PAYLOAD.items())])

    @property
    def ddl(self) -> str:
        keys = [f"{name} {kind}" for name, kind, _, _ in self.columns]
        return ", ".join([*keys, *(f"{name} {kind}" for name, (kind, _) in PAYLOAD.items())])


@dataclass(frozen=True)
class Kind:
    """How the keys of R and S look, and when they match."""

    name: str
    r: Side
    s: Side
    condition: str
    """In CQL, over R and S."""
    matches: Callable[[oracle.Row, oracle.Row], bool]
    is_direct: bool = True
    """Whether Parquet files with such keys are read without passing through the JVM."""


def same(*pairs: tuple[str, str]) -> Callable[[oracle.Row, oracle.Row], bool]:
    """Plain equality of columns, as SQL has it: NULL equals nothing, NaN equals NaN."""

    def matches(r: oracle.Row, s: oracle.Row) -> bool:
        return all(_equal(r[a], s[b]) for a, b in pairs)

    return matches


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return False
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def _one(name: str, kind: str, arrow: pa.DataType, values: Sequence[Any]) -> Side:
    return Side(((name, kind, arrow, values),))


def _decimals(*texts: str) -> list[Decimal | None]:
    return [*map(Decimal, texts), None]


_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
_STRUCTS = [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": None, "b": None}, None]
_DOUBLES = [0.0, -0.0, 1.5, math.nan, math.inf, None]
_WORDS = ["", "a", "b", "ß✓", "a longer word, of more than thirty-two bytes", None]
_MOMENTS = [EPOCH, EPOCH + timedelta(microseconds=1), datetime(2024, 3, 31, 1, 30, tzinfo=timezone.utc), None]
_BYTES = [b"", b"\x00", b"\xff" * 40, None]

KINDS = (
    Kind(
        "int with long, other names",
        _one("k", "int", pa.int32(), [0, 1, -1, 2, None]),
        _one("id", "long", pa.int64(), [0, 1, -1, 2**32, None]),
        "R.k = S.id",
        same(("k", "id")),
    ),
    Kind(
        "string",
        _one("k", "string", pa.string(), _WORDS),
        _one("k", "string", pa.string(), _WORDS),
        "R.k = S.k",
        same(("k", "k")),
    ),
    Kind(
        "composite, in another order on the other side",
        Side((("a", "long", pa.int64(), [1, 2, None]), ("b", "string", pa.string(), ["x", "y", None]))),
        Side((("y", "string", pa.string(), ["x", "y", None]), ("x", "long", pa.int64(), [1, 2, None]))),
        "R.b = S.y AND S.x = R.a",
        same(("a", "x"), ("b", "y")),
    ),
    Kind(
        "date",
        _one("k", "date", pa.date32(), [date(1970, 1, 1), date(2024, 2, 29), date(1900, 1, 1), None]),
        _one("k", "date", pa.date32(), [date(1970, 1, 1), date(2024, 2, 29), None]),
        "R.k = S.k",
        same(("k", "k")),
    ),
    Kind(
        "decimals of different scales",
        _one("k", "decimal(10,2)", pa.decimal128(10, 2), _decimals("0.00", "1.50", "-1.50", "99999999.99")),
        _one("k", "decimal(12,3)", pa.decimal128(12, 3), _decimals("0.000", "1.500", "-1.500", "1.501")),
        "R.k = S.k",
        same(("k", "k")),
        is_direct=False,
    ),
    Kind(
        "double with NaN and both zeros",
        _one("k", "double", pa.float64(), _DOUBLES),
        _one("k", "double", pa.float64(), _DOUBLES),
        "R.k = S.k",
        same(("k", "k")),
    ),
    Kind(
        "struct",
        _one("k", "struct<a:int,b:string>", _STRUCT, _STRUCTS),
        _one("k", "struct<a:int,b:string>", _STRUCT, _STRUCTS),
        "R.k = S.k",
        same(("k", "k")),
        is_direct=False,
    ),
    Kind(
        "array of doubles with both zeros",
        _one("k", "array<double>", pa.list_(pa.float64()), [[], [0.0], [-0.0], [1.0, None], [1.0, 2.0], None]),
        _one("k", "array<double>", pa.list_(pa.float64()), [[], [0.0], [1.0, None], None]),
        "R.k = S.k",
        same(("k", "k")),
        is_direct=False,
    ),
    Kind(
        "boolean and small integers together",
        Side((("k", "boolean", pa.bool_(), [True, False, None]), ("n", "tinyint", pa.int8(), [1, -1]))),
        Side((("k", "boolean", pa.bool_(), [True, False, None]), ("n", "smallint", pa.int16(), [1, -1, 1000]))),
        "R.k = S.k AND R.n = S.n",
        same(("k", "k"), ("n", "n")),
    ),
    Kind(
        "binary",
        _one("k", "binary", pa.binary(), _BYTES),
        _one("k", "binary", pa.binary(), _BYTES),
        "R.k = S.k",
        same(("k", "k")),
        is_direct=False,
    ),
    Kind(
        "instants, with a number beside them",
        Side((("k", "timestamp", pa.timestamp("us", "UTC"), _MOMENTS), ("n", "int", pa.int32(), [1, 2]))),
        Side((("k", "timestamp", pa.timestamp("us", "UTC"), _MOMENTS), ("n", "int", pa.int32(), [1, 2]))),
        "R.k = S.k AND R.n = S.n",
        same(("k", "k"), ("n", "n")),
    ),
    Kind(
        "expressions",
        _one("name", "string", pa.string(), ["Ann", "ANN", "bob", "", None]),
        _one("name", "string", pa.string(), ["ann", "BOB", "eve", "", None]),
        "lower(R.name) = lower(S.name)",
        lambda r, s: r["name"] is not None and s["name"] is not None and r["name"].lower() == s["name"].lower(),
        is_direct=False,
    ),
)


@dataclass(frozen=True)
class Made:
    """A random query over R and S of one kind, its rows cut into epochs, and what it must give."""

    kind: Kind
    windows_us: tuple[int | None, int | None]
    delays_us: tuple[int, int]
    epochs: tuple[tuple[Sequence[oracle.Row], Sequence[oracle.Row]], ...]

    def cql(self, r: str, s: str) -> str:
        """The query over streams of these names; all columns of both are put out."""
        names = [[name for name, *_ in side.columns] + list(PAYLOAD) for side in (self.kind.r, self.kind.s)]
        outputs = [f"{a}.{n} AS {a}_{n}" for a, columns in zip("RS", names, strict=True) for n in columns]
        windows = ["UNBOUNDED" if w is None else f"{w // SECOND_US} SECONDS" for w in self.windows_us]
        inputs = f"{r} [RANGE {windows[0]}] AS R, {s} [RANGE {windows[1]}] AS S"
        return f"SELECT {', '.join(outputs)} FROM {inputs} WHERE {self.kind.condition}"

    def expected(self) -> Counter[Any]:
        """What the oracle says."""
        streams = [
            oracle.Stream(name, [row for epoch in self.epochs for row in epoch[i]], window, "moment")
            for i, (name, window) in enumerate(zip("RS", self.windows_us, strict=True))
        ]
        found = oracle.join(streams, [], [lambda c: self.kind.matches(c["R"], c["S"])])
        return multiset(
            {f"{name}_{column}": value for name in "RS" for column, value in c[name].items() if column != "moment"}
            for c in found
        )


def make(kind: Kind, seed: int, *, n_epochs: int = 4, most_rows: int = 25) -> Made:
    """Skewed keys, rows out of order within the delay, duplicates, epochs of any size; some streams speak last."""
    random = Random(f"{kind.name} {seed}")
    delays = (random.choice([0, 3]), random.choice([0, 8]))
    windows = [random.choice([None, 0, 2, 5, 15]) for _ in "RS"]
    sides = []
    for side, delay in zip((kind.r, kind.s), delays, strict=True):
        rows = _rows(random, side, delay, random.choice([most_rows, most_rows // 2]))
        inner = sorted(random.randint(0, len(rows)) for _ in range(n_epochs - 1))
        if random.random() < 0.15:
            inner = [0] * (n_epochs - 1)
        ends = [0, *inner, len(rows)]
        sides.append([rows[a:b] for a, b in pairwise(ends)])
    micro = [None if w is None else w * SECOND_US for w in windows]
    return Made(
        kind, (micro[0], micro[1]), (delays[0] * SECOND_US, delays[1] * SECOND_US), tuple(zip(*sides, strict=True))
    )


def write(folder: Path, made: Made) -> tuple[Path, Path]:
    """The epochs as Parquet files, one a side and epoch."""
    paths = []
    for i, (name, side) in enumerate((("R", made.kind.r), ("S", made.kind.s))):
        tables = [pa.Table.from_pylist([_stored(row) for row in epoch[i]], side.schema) for epoch in made.epochs]
        append_files(folder / name, tables)
        paths.append(folder / name)
    return paths[0], paths[1]


def multiset(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    """Rows to compare, whatever their order."""
    return Counter(frozen(dict(row)) for row in rows)


def frozen(value: Any) -> Any:
    """A value that can be counted; NaN equals NaN, and an instant has no zone of its own."""
    if isinstance(value, dict):
        return tuple(sorted((name, frozen(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return tuple(frozen(inner) for inner in value)
    if isinstance(value, tuple):
        return tuple(frozen(inner) for inner in value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat()
    return value


def _rows(random: Random, side: Side, delay: int, most: int) -> list[dict[str, Any]]:
    arrivals = []
    for v in range(random.randint(most // 2, most)):
        time = random.randint(0, 25)
        row: dict[str, Any] = {}
        for name, _, _, values in side.columns:
            row[name] = values[0] if random.random() < 0.3 else random.choice(values)
        row |= _payload(random, v, time)
        for _ in range(2 if random.random() < 0.1 else 1):
            arrivals.append((time + random.randint(0, delay), len(arrivals), row))
    return [row for _, _, row in sorted(arrivals, key=lambda a: a[:2])]


def _payload(random: Random, v: int, time: int) -> dict[str, Any]:
    moment = EPOCH + timedelta(seconds=time)

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    return {
        "moment": time * SECOND_US,
        "v": v,
        "ts": moment,
        "nested": maybe({"x": maybe(v), "y": maybe([maybe("a"), "b"][: v % 3])}),
        "amount": maybe(Decimal(v) / 8),
        "blob": maybe(bytes([v % 256, 0, 255])),
        "counts": maybe([("a", v), ("b", maybe(2))]),
        "local": maybe(datetime(1999, 12, 31, 23, 59, 59, v)),  # noqa: DTZ001  without a zone
        "seen": maybe(moment + timedelta(microseconds=v)),
        "day": maybe(date(2000, 1, 1) + timedelta(days=v)),
        "ratio": maybe(random.choice([0.5, math.nan, math.inf])),
        "is_set": maybe(v % 2 == 0),
    }


def _stored(row: oracle.Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "moment"}
