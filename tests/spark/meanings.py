"""Random streams, keys, predicates and outputs over all types, and what Spark's own batch join says of them.

A `Case` is a query of two streams: equalities, filters, predicates between the streams, and outputs. `batch` asks
Spark for its answer: the same text over tables, with the windows as a predicate. A case that Spark refuses must be
refused by a flow too; one that fails while Spark runs it says nothing and is drawn again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from tests.spark.expressions import KEY_KINDS, KINDS, expression

__all__ = [
    "COLUMNS", "DDL", "Answer", "Case", "batch", "draw", "draw_expressions", "rows_of", "sound",
    "types_of", "write_streams",
]  # fmt: skip

WINDOWS_S = {"R": 20, "S": 35}
START = datetime(2024, 3, 31, 0, 59, 30, tzinfo=timezone.utc)

_INTS = [0, 1, -1, 2, 7, 100]
_LONGS = [*_INTS, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**60, 2**60 + 1, 16777217]
_FLOATS = [0.0, -0.0, 1.0, 1.5, -1.0, 2.0, 0.25, math.nan, math.inf, -math.inf, 16777216.0]
_DOUBLES = [*_FLOATS, 9007199254740992.0, 0.1, 1.0e-300]
_TEXTS = ["", "a", "A", "a ", "b", "it's", "its", "ß", "ab", "10", "a%b", "\\", "é"]
_DAYS = [date(1970, 1, 1), date(2020, 2, 29), date(2020, 3, 1), date(2024, 3, 31), date(1969, 12, 31)]
_TIMES = [datetime(2024, 3, 31, 1, 0), datetime(2024, 3, 31, 2, 30), datetime(2020, 2, 29, 0, 0, 0, 1)]  # noqa: DTZ001
_SPANS = [timedelta(0), timedelta(seconds=1), timedelta(days=-1, microseconds=1), timedelta(days=400)]
_STRUCTS = [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": None}, {"a": 2, "b": "X"}]

_FAR_TIMES = [
    datetime.fromisoformat(text)
    for text in (
        *("0001-01-01", "9999-12-31T23:59:59.999999", "1582-10-04", "1582-10-15T12:00:00"),
        *("1899-12-31T23:59:59", "1969-12-31T23:59:59.999999", "2024-10-27T01:30:00"),
    )
]
_FAR_DAYS = [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4), date(1582, 10, 15), date(1900, 1, 1)]
_RECORDS = [
    {"x": 0.0, "t": _FAR_TIMES[5], "d": Decimal("1.50")}, {"x": -0.0, "t": None, "d": Decimal("1.50")},
    {"x": math.nan, "t": _FAR_TIMES[0], "d": None}, {"x": None, "t": None, "d": None},
]  # fmt: skip
_INSTANT = pa.timestamp("us", "UTC")
_WIDEST = [
    Decimal("9" * 28 + "." + "9" * 10),
    Decimal("-" + "9" * 28 + "." + "9" * 10),
    Decimal("1e-10"),
    Decimal("0.5"),
]


def _zoned(times: Sequence[datetime]) -> list[datetime]:
    return [one.replace(tzinfo=timezone.utc) for one in times]


COLUMNS: Mapping[str, tuple[str, pa.DataType, Sequence[Any]]] = {
    "i8": ("tinyint", pa.int8(), _INTS),
    "i16": ("smallint", pa.int16(), _INTS),
    "i32": ("int", pa.int32(), [*_INTS, 16777217]),
    "i64": ("bigint", pa.int64(), _LONGS),
    "f32": ("float", pa.float32(), _FLOATS),
    "f64": ("double", pa.float64(), _DOUBLES),
    "d9": ("decimal(9,2)", pa.decimal128(9, 2), [Decimal(n) / 4 for n in (-4, 0, 4, 6, 8, 400)]),
    "d20": ("decimal(20,4)", pa.decimal128(20, 4), [Decimal(n) / 8 for n in (-8, 0, 8, 12, 16, 2**50)]),
    "d38": ("decimal(38,0)", pa.decimal128(38, 0), [Decimal(n) for n in (0, 1, 2, -1, 10**20, 10**20 + 1)]),
    "s": ("string", pa.string(), _TEXTS),
    "lc": ("string collate UTF8_LCASE", pa.string(), _TEXTS),
    "rt": ("string collate UTF8_BINARY_RTRIM", pa.string(), _TEXTS),
    "bin": ("binary", pa.binary(), [b"", b"a", b"\x00\xff", b"A"]),
    "ok": ("boolean", pa.bool_(), [True, False]),
    "day": ("date", pa.date32(), _DAYS),
    "t": ("timestamp", pa.timestamp("us", "UTC"), [one.replace(tzinfo=timezone.utc) for one in _TIMES]),
    "n": ("timestamp_ntz", pa.timestamp("us"), _TIMES),
    "iv": ("interval day to second", pa.duration("us"), _SPANS),
    "st": ("struct<a:int,b:string>", pa.struct([("a", pa.int32()), ("b", pa.string())]), _STRUCTS),
    "arr": ("array<int>", pa.list_(pa.int32()), [[], [1], [1, None], [2, 3]]),
    "ad": ("array<double>", pa.list_(pa.float64()), [[0.0], [-0.0], [math.nan], [1.5, None]]),
    "mp": ("map<string,int>", pa.map_(pa.string(), pa.int32()), [[("k", 1)], [], [("k", None), ("l", 2)]]),
    "m8": ("tinyint", pa.int8(), [-128, 127, 0, -1]),
    "m16": ("smallint", pa.int16(), [-(2**15), 2**15 - 1, 127, 0]),
    "m32": ("int", pa.int32(), [-(2**31), 2**31 - 1, 2**24 + 1, 0]),
    "m64": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, 2**63 - 2, 2**53 + 1, 0]),
    "x38": ("decimal(38,10)", pa.decimal128(38, 10), _WIDEST),
    "long": ("string", pa.string(), ["x" * 300, "ﬁ", "I", "ı", "İ", "a\u0301", "á", "\U0001f600", "\ufffd", "a\x00b"]),
    "uc": ("string collate UNICODE_CI", pa.string(), ["a", "A", "á", "a\u0301", "b", "B ", ""]),
    "far": ("date", pa.date32(), _FAR_DAYS),
    "ft": ("timestamp", _INSTANT, _zoned(_FAR_TIMES)),
    "fn": ("timestamp_ntz", pa.timestamp("us"), _FAR_TIMES),
    "at": ("array<timestamp>", pa.list_(_INSTANT), [_zoned(_FAR_TIMES[2:4]), [], [None]]),
    "sd": (
        "struct<x:double,t:timestamp,d:decimal(9,2)>",
        pa.struct([("x", pa.float64()), ("t", _INSTANT), ("d", pa.decimal128(9, 2))]),
        _RECORDS,
    ),
    "js": ("string", pa.string(), ['{"a": 1}', '{"a": 2, "b": [1]}', '{"b": "x"}', "{}"]),
}
"""The columns of both streams: Spark's type, Arrow's, and the values to draw from; any of them may be NULL."""
DDL = ", ".join([*(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items()), "ts timestamp"])

_NUMBERS = ("i8", "i16", "i32", "i64", "f32", "f64", "d9", "d20", "d38", "m8", "m16", "m32", "m64", "x38")
_KEYS: Mapping[str, Sequence[str]] = {
    **{name: ("{c}",) * 4 for name in COLUMNS if name not in ("mp", "js")},
    "whole": ("{c} + 1", "{c} % 7", "{c} * 2L", "{c} + 0.5", "round({c}, 0)", "{c} / 2", "{c} div 3", "pmod({c}, 5)",
              "abs({c})", "CAST({c} AS DOUBLE)", "-{c}", "{c} + 1S", "greatest({c}, 1)", "{c} + 1e0", "{c} | 1"),
    "limit": ("CAST({c} AS DOUBLE)", "CAST({c} AS STRING)", "try_add({c}, 1)", "sign({c})", "{c} / 2"),
    "real": ("{c} * 2", "-{c}", "CAST({c} AS FLOAT)", "nanvl({c}, 0)", "coalesce({c}, 0.5)", "{c} + 0.1D"),
    "exact": ("{c} + 1", "{c} * 1.5", "round({c}, 1)", "CAST({c} AS DOUBLE)", "-{c}", "{c} + 1.25BD"),
    "text": ("lower({c})", "trim({c})", "substring({c}, 1, 1)", "concat({c}, 'x')", "{c} || ''", "reverse({c})",
             "replace({c}, 'it''s', 'its')", "nvl({c}, \"\")", "upper({c})", "left({c}, 1)", "rtrim({c})"),
    "length": ("length({c})", "ascii({c})"),
    "bytes": ("hex({c})", "substring({c}, 1, 1)"),
    "flag": ("(NOT {c})", "({c} OR false)", "coalesce({c}, true)"),
    "day": ("date_add({c}, 1)", "unix_date({c})", "trunc({c}, 'MM')", "extract(YEAR FROM {c})", "last_day({c})",
            "{c} - DATE'2020-01-01'", "{c} + INTERVAL '1' DAY", "year({c})", "datediff({c}, DATE'2020-03-01')"),
    "time": ("date_trunc('MINUTE', {c})", "extract(SECOND FROM {c})", "CAST({c} AS DATE)", "{c} + INTERVAL 1 SECOND",
             "hour({c})", "minute({c})", "to_date({c})", "{c} - INTERVAL '1 02:03:04' DAY TO SECOND"),
    "span": ("{c} * 2", "-{c}", "{c} + INTERVAL '1' SECOND"),
    "nested": ("{c}.a", "{c}.b"),
    "list": ("size({c})", "get({c}, 0)", "{c}", "array_sort({c})", "transform({c}, x -> x + 1)"),
    "json": ("get_json_object({c}, '$.a')", "variant_get(parse_json({c}), '$.a', 'int')", "length({c})"),
}  # fmt: skip
_KINDS = {
    **dict.fromkeys(("i8", "i16", "i32", "i64"), "whole"), **dict.fromkeys(("f32", "f64"), "real"),
    **dict.fromkeys(("d9", "d20", "d38"), "exact"), **dict.fromkeys(("s", "lc", "rt"), "text"), "bin": "bytes",
    "ok": "flag", "day": "day", "t": "time", "n": "time", "iv": "span", "st": "nested", "arr": "list", "ad": "list",
    "mp": "", "js": "json", **dict.fromkeys(("m8", "m16", "m32", "m64", "x38"), "limit"), "long": "text", "uc": "text",
    **dict.fromkeys(("far", "ft", "fn", "at", "sd"), ""),
}  # fmt: skip
_PARTNERS = {
    **dict.fromkeys(_NUMBERS, _NUMBERS),
    **dict.fromkeys(("day", "t", "n", "far", "ft", "fn"), ("day", "t", "n", "far", "ft", "fn")),
}
_WHOLES = ("i8", "i16", "i32", "i64", "m8", "m16", "m32", "m64")
_DIRECT = (*_WHOLES, "f32", "f64", "s", "ok", "day", "t", "n", "long", "far", "ft", "fn")
"""Columns whose equality files are read for without passing through the JVM."""
_FILTERS = (
    "{c} IS NOT NULL", "{a}.i64 > 1L", "{a}.f64 < 1e3", "{a}.s <> 'it''s'", "{a}.s = 'it\\'s' OR {a}.ok",
    "{a}.day >= DATE'2020-01-01'", "{a}.t < TIMESTAMP'2030-01-01 00:00:00'", "{a}.lc = 'A'", "{a}.rt = 'a'",
    "{a}.s LIKE r'a\\%%'", "{a}.s RLIKE '^[a-z]'", "{a}.bin = X'61'", "{a}.d9 > 0.5BD", "log10(abs({a}.f64)) < 3",
    "{a}.iv < INTERVAL '2' DAY", "{a}.i32 BETWEEN 0 AND 50 AND {a}.i8 IN (1, 2, 7)", "NOT {a}.ok", "{a}.n IS NULL",
    "exists({a}.arr, x -> x > 1)", "{a}.st.a = 1", "{a}.s < \"b\"", "{a}.mp['k'] = 1", "unix_date({a}.day) > 0",
    "{a}.lc IN ('A', 'B')", "contains({a}.lc, 'A')", "{a}.s <=> NULL", "{a}.s = '\\u0061'", "isnan({a}.f32)",
)  # fmt: skip
_BETWEEN = (
    "R.lc = S.lc OR R.i32 = S.i32", "R.f64 < S.f64", "R.rt <> S.rt", "R.s < S.s OR R.s = 'it''s'", "R.lc < S.lc",
    "R.i64 + 0.5 > S.i64", "R.day <= S.day", "R.t = S.n OR R.ok", "R.d20 >= S.i64", "NOT (R.s = S.s)",
    "R.i8 + S.i8 = 2", "concat(R.s, S.s) LIKE '%%a%%'", "R.st = S.st OR S.st IS NULL", "array_contains(R.arr, S.i32)",
    "R.iv + S.iv > INTERVAL '0' SECOND", "R.f32 = S.f64 OR R.f64 IS NOT NULL", "R.ts <= S.ts", "R.s <=> S.s",
    "CASE WHEN R.ok THEN R.lc = S.lc ELSE true END", "R.bin < S.bin", "R.lc IN (S.lc, 'B')",
    "R.i64 = S.f64 IS NOT TRUE",
)  # fmt: skip
_OUTPUTS = (
    "unix_date(R.day)", "log10(S.f64)", "R.i64 + 0.5", "round(S.i64, 0)", "extract(SECOND FROM R.t)", "R.day - S.day",
    "variant_get(parse_json(R.js), '$.a', 'int')", "parse_json(S.js)", "'it''s'", "r'\\n'", "'a' 'b'", "\"q\"", "1L",
    "1.0BD", "1e3", "X'1F'", "DATE'2020-01-01'", "TIMESTAMP'2020-01-01 00:00:00'", "INTERVAL '1' DAY", "-1Y", "2S",
    "R.i8 + S.i8", "R.f32 * 2", "R.d9 * S.d20", "R.d9 / 3", "R.i32 / 2", "R.i32 div 2", "R.i64 %% 3", "-R.f64",
    "concat(R.lc, S.lc)", "upper(R.s)", "lower(R.lc)", "R.lc = 'a'", "collation(R.lc)", "struct(R.i8, S.s AS t)",
    "named_struct('x', R.f32, 'y', S.day)", "array(R.i32, S.i32)", "map('k', R.i32)", "R.st.b", "get(R.arr, 0)",
    "transform(R.arr, x -> x + 1)", "filter(S.ad, x -> x > 0)", "size(R.mp)", "R.mp['k']", "R.t - S.t",
    "R.t + INTERVAL '1' HOUR", "date_format(R.t, 'yyyy-MM-dd HH:mm')", "CAST(R.t AS STRING)", "CAST(R.n AS TIMESTAMP)",
    "CAST(R.f64 AS STRING)", "to_json(R.st)", "from_json(R.js, 'a int')", "if(R.ok, 'y', 'n')", "nvl(R.s, 'none')",
    "CASE WHEN R.i8 > 1 THEN R.i16 ELSE S.i64 END", "R.s LIKE 'a%%'", "substring(R.s, 1, 2)", "hash(R.s, S.i8)",
    "xxhash64(R.f64)", "sha2(R.bin, 256)", "hex(S.bin)", "least(R.i8, S.i64)", "R.ok AND S.ok", "R.iv", "R.iv + S.iv",
    "to_date('2020-02-30', 'yyyy-MM-dd') IS NULL OR true", "date_add(R.day, 3)", "months_between(R.day, S.day)", "pi()",
    "typeof(R.d9 + S.d9)", "typeof(R.i8 / S.i8)", "typeof(extract(SECOND FROM S.t))", "R.i64 << 1", "R.i32 ^ S.i32",
    "position('a' IN R.s)", "trim(BOTH 'a' FROM R.s)", "ln(R.d9 + 100)", "cbrt(R.i32)", "R.s || S.s", "R.day = S.n",
    "regexp_extract(R.s, '(a)', 1)", "regexp_extract(R.s, '(a)')", "split(R.s, '%%')", "to_timestamp('2020-01-01')",
    "R.i16 :: string", "mod(R.i32, 5)", "shiftleft(R.i8, 2)", "bround(R.f32, 1)", "current_date() IS NOT NULL",
)  # fmt: skip
_WRONG = ("roundd(R.i8)", "R.s + INTERVAL '1' DAY", "size(R.i8)", "R.mp = S.mp", "date_add(R.s)", "explode(R.i8)")
"""What Spark refuses: to compute at all, or on these types."""


@dataclass(frozen=True)
class Case:
    """A query over R and S."""

    condition: str
    outputs: tuple[str, ...]
    n_conditions: int = 1
    """How many expressions the condition has: both sides of equalities, and predicates."""

    @property
    def n_expressions(self) -> int:
        return self.n_conditions + len(self.outputs)

    @property
    def select(self) -> str:
        return ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(self.outputs))

    @property
    def cql(self) -> str:
        """For a flow."""
        entries = ", ".join(f"{name} [RANGE {length} SECONDS]" for name, length in WINDOWS_S.items())
        return f"SELECT {self.select} FROM {entries} WHERE {self.condition}"

    @property
    def sql(self) -> str:
        """For Spark's batch join over tables of the same names."""
        newest = "greatest(unix_micros(R.ts), unix_micros(S.ts))"
        near = " AND ".join(f"{newest} - unix_micros({n}.ts) <= {w}000000" for n, w in WINDOWS_S.items())
        return f"SELECT {self.select} FROM R, S WHERE ({self.condition}) AND {near}"


@dataclass(frozen=True)
class Answer:
    """What Spark says of a case: its rows, why it refuses, or that it failed while it ran."""

    rows: Counter[Any] | None = None
    types: tuple[str, ...] = ()
    refused: str = ""
    failed: str = ""


def draw(random: Random, *, direct: bool) -> Case:
    """A case; with `direct`, of keys for which files are read without Spark."""
    keys = [_equality(random, direct=direct) for _ in range(random.choice([1, 1, 1, 2]))]
    if direct and any(len({key.split(" = ")[side] for key in keys}) < len(keys) for side in (0, 1)):
        keys = keys[:1]  # two columns equal to a third are a filter on their stream, which is then read through Spark
    parts = [*keys, *([random.choice(_BETWEEN)] if random.random() < 0.35 else [])]
    if not direct and random.random() < 0.4:
        alias = random.choice("RS")
        parts.append(f"({random.choice(_FILTERS).format(a=alias, c=f'{alias}.{random.choice(list(COLUMNS))}')})")
    parts = [f"({part})" if " OR " in part and not part.startswith("(") else part for part in parts]
    plain = [f"{random.choice('RS')}.{random.choice(list(COLUMNS))}" for _ in range(random.randint(1, 3))]
    computed = [] if random.random() < 0.25 else random.sample(_OUTPUTS, random.randint(1, 3))
    outputs = [*plain, *computed]
    if random.random() < 0.03:
        outputs.append(random.choice(_WRONG))
    return Case(" AND ".join(parts).replace("%%", "%"), tuple(one.replace("%%", "%") for one in outputs))


def draw_expressions(random: Random, n_outputs: int, *, direct: bool) -> Case:
    """A case of expressions as deep as three; with `direct`, of keys as `draw` has them."""
    keys = [_equality(random, direct=True)] if direct else []
    while not keys or (not direct and len(keys) < 2 and random.random() < 0.25):
        kind = random.choice(KEY_KINDS)
        keys.append(" = ".join(f"({expression(random, kind, one, random.randint(0, 2))})" for one in "RS"))
    over = ["RS"] if direct else ["R", "S", "RS"]
    parts = [expression(random, "flag", random.choice(over), 2) for _ in range(random.randint(0, 2))]
    parts = [f"({part} OR R.ts IS NOT NULL AND S.i8 > 0)" if random.random() < 0.7 else part for part in parts]
    if direct:  # a condition on one stream is a filter, for which it is read through Spark
        parts = [part for part in parts if "R." in part and "S." in part]
    outputs = [expression(random, random.choice(KINDS), "RS", random.randint(0, 3)) for _ in range(n_outputs)]
    return Case(" AND ".join([*keys, *parts]), tuple(outputs), 2 * len(keys) + len(parts))


def _equality(random: Random, *, direct: bool) -> str:
    if direct:
        name = random.choice(_DIRECT)
        return f"R.{name} = S.{random.choice(_WHOLES) if name in _WHOLES else name}"
    left = random.choice([name for name in COLUMNS if name != "mp"])
    right = random.choice(_PARTNERS.get(left, (left,)))
    if random.random() < 0.03:  # a type that needs a guess
        right = random.choice([name for name in COLUMNS if name != "mp"])
    if random.random() < 0.5:
        template = random.choice([*_KEYS.get(left, ()), *_KEYS.get(_KINDS[left], ())])
        return f"{template.format(c=f'R.{left}')} = {template.format(c=f'S.{right}')}"
    one, other = (random.choice([*_KEYS.get(c, ()), *_KEYS.get(_KINDS[c], ())]) for c in (left, right))
    return f"{one.format(c=f'R.{left}')} = {other.format(c=f'S.{right}')}"


def write_streams(folder: Path, random: Random, *, rows: int, files: int) -> None:
    """Random rows of R and S, as Parquet files."""
    kinds = pa.schema([*((name, kind) for name, (_, kind, _) in COLUMNS.items()), ("ts", pa.timestamp("us", "UTC"))])
    for name in WINDOWS_S:
        (folder / name).mkdir(parents=True)
        for at in range(files):
            made = [_row(random) for _ in range(rows // files)]
            pq.write_table(pa.Table.from_pylist(made, kinds), folder / name / f"{at}.parquet")


def _row(random: Random) -> dict[str, Any]:
    row = {name: None if random.random() < 0.1 else random.choice(pool) for name, (_, _, pool) in COLUMNS.items()}
    return {**row, "ts": START + timedelta(seconds=random.randint(0, 60))}


def batch(spark: SparkSession, case: Case) -> Answer:
    """Spark's own answer over the temporary views R and S."""
    try:
        frame = spark.sql(case.sql)
        types = types_of(frame.schema.jsonValue())
    except (AnalysisException, ParseException) as error:
        return Answer(refused=str(error).strip().splitlines()[0])
    try:
        return Answer(rows_of(frame.toArrow()), types)
    except (PySparkException, ValueError, pa.ArrowException) as error:
        return Answer(failed=f"{type(error).__name__}: {error}"[:200])
    except Exception as error:  # the JVM's own, such as an arithmetic overflow
        return Answer(failed=f"{type(error).__name__}: {error}"[:200])


def sound(spark: SparkSession, case: Case) -> Case | None:
    """The case without the outputs that Spark refuses or that fail while it runs; None where it is its condition."""
    taken = tuple(one for one in case.outputs if _is_known(spark, one))
    return _running(spark, replace(case, outputs=taken)) if taken else None


def _is_known(spark: SparkSession, sql: str) -> bool:
    """Whether Spark's analyzer takes an expression."""
    try:
        spark.sql(f"SELECT {sql} FROM R, S")
    except (AnalysisException, ParseException):
        return False
    return True


def _running(spark: SparkSession, case: Case) -> Case | None:
    answer = batch(spark, case)
    if not answer.failed and not answer.refused:
        return case
    if answer.refused or len(case.outputs) == 1:
        return None
    half = len(case.outputs) // 2
    halves = [_running(spark, replace(case, outputs=part)) for part in (case.outputs[:half], case.outputs[half:])]
    left = tuple(one for part in halves if part is not None for one in part.outputs)
    return replace(case, outputs=left) if left else None


def types_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns' types, whether they may be NULL aside."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                key: plain(value)
                for key, value in part.items()
                if key not in ("nullable", "containsNull", "valueContainsNull")
            }
        return [plain(one) for one in part] if isinstance(part, list) else part

    return tuple(json.dumps(plain(field), sort_keys=True) for field in schema["fields"])


def rows_of(table: pa.Table | None) -> Counter[Any]:
    """Rows to compare, whatever their order: NaN equals NaN, both zeros differ, an instant has no zone of its own."""
    return Counter() if table is None else Counter(_frozen(list(row.values())) for row in _plain(table))


def _plain(table: pa.Table) -> Iterable[dict[str, Any]]:
    return table.rename_columns([f"c{i}" for i in range(table.num_columns)]).to_pylist()


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _frozen(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(inner) for inner in value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, (bool, int, Decimal, str, bytes)):
        return type(value).__name__, value
    return value
