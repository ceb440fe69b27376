"""Column types as Spark names them, schemas, and the type in which two join keys are compared.

A type is Spark's `simpleString`: `bigint`, `decimal(10,2)`, `array<int>`, `struct<a:int>`. Strings keep the planes
apart: the query language, the manifest (JSON) and Spark all understand them, and nothing here imports Spark.

Invariant: a schema's types are canonical, so equal types are equal strings. Names keep their declared spelling and are
found whatever their letter case, as Spark does. Cost: a schema is parsed once; a lookup is one dict access.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import Dialect, exp
from sqlglot.errors import ParseError, SqlglotError

from braidstream.errors import InputError, nearest

__all__ = [
    "Column",
    "Schema",
    "canonical_type",
    "common_type",
    "family",
    "field_names",
    "field_type",
    "is_comparable",
    "keeps_apart",
    "quote_name",
    "type_of_node",
]

_DDL_HEAD = "CREATE TABLE t ("
_EXAMPLE = "k long, v array<int>, ts timestamp"

_SIMPLE: dict[exp.DType, str] = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "tinyint",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.BINARY: "binary",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
    exp.DType.INTERVAL: "interval",
    exp.DType.VARIANT: "variant",
}
_KNOWN = (
    *sorted(set(_SIMPLE.values())),
    "decimal(p,s)",
    "array<..>",
    "map<..,..>",
    "struct<..>",
    "char(n)",
    "varchar(n)",
)

_INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}  # Spark's DecimalType.forType
_FRACTIONAL = ("float", "double")
_MAX_DIGITS = 38
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)$")
_KEYWORDS = {
    word for phrase in Dialect.get_or_raise("spark").tokenizer_class.KEYWORDS for word in phrase.upper().split()
}
_TIMES = {"date", "timestamp", "timestamp_ntz"}


@dataclass(frozen=True)
class Column:
    """A column: its name as declared and its canonical type."""

    name: str
    type: str


@dataclass(frozen=True)
class Schema:
    """The columns of a stream, in order."""

    columns: tuple[Column, ...]
    time: str | None = None
    """The column with the event time, where it is known: bounds on its differences are intervals of a join."""

    def __post_init__(self) -> None:
        if len(self._by_folded_name) < len(self.columns):
            names = [column.name.lower() for column in self.columns]
            twice = next(column.name for column in self.columns if names.count(column.name.lower()) > 1)
            raise InputError(
                f"the schema has column {twice!r} more than once",
                "names that differ in more than letter case",
                "rename one of them",
            )

    @classmethod
    def of(cls, columns: Iterable[tuple[str, str]]) -> Schema:
        """From pairs of name and type, in any spelling. For types that Spark itself gives use `Schema(columns)`."""
        return cls(tuple(Column(name, canonical_type(type_)) for name, type_ in columns))

    @classmethod
    def from_ddl(cls, ddl: str) -> Schema:
        """From Spark's DDL form, such as `k long, d decimal(10,2), `odd name` string`."""
        columns = tuple(_column(node, ddl) for node in _parsed_columns(ddl))
        if not columns:
            raise InputError(f"the schema {ddl!r} has no columns", "names and types", f"write {_EXAMPLE!r}")
        return cls(columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, as declared."""
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """The DDL text that `from_ddl` and Spark read back."""
        return ", ".join(f"{quote_name(column.name)} {column.type}" for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of that name in any letter case, or None."""
        return self._by_folded_name.get(name.lower())

    def __getitem__(self, name: str) -> Column:
        found = self.find(name)
        if found is None:
            raise InputError(f"there is no column {name!r}", "a column of the schema", nearest(name, self.names))
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def _by_folded_name(self) -> dict[str, Column]:
        return {column.name.lower(): column for column in self.columns}


def canonical_type(text: str) -> str:
    """Spark's simpleString for any spelling of a type (`long`, `dec(10, 2)`, `ARRAY<INTEGER>`)."""
    (column,) = _parsed_columns(f"c {text}") or (None,)
    if not isinstance(column, exp.ColumnDef) or column.kind is None:
        raise _unknown_type(text)
    type_ = type_of_node(column.kind)
    if type_ is None:
        raise _unknown_type(text)
    return type_


def type_of_node(node: exp.Expr | None) -> str | None:
    """The simpleString of a parsed type, or None for one that Spark does not have."""
    if not isinstance(node, exp.DataType):
        return None
    kind = node.this
    if kind == exp.DType.DECIMAL:
        return _decimal_of_node(node)
    if kind in (exp.DType.CHAR, exp.DType.VARCHAR):
        return "string"  # what a DataFrame has: Spark keeps the length in the metadata only
    if node.expressions:
        return _nested_of_node(node)
    if isinstance(kind, exp.Interval):
        return f"interval {kind.args['unit'].sql().lower()}" if kind.args.get("unit") else "interval"
    return _SIMPLE.get(kind)


def common_type(a: str, b: str) -> str | None:
    """The type in which Spark (ANSI mode) compares keys of types `a` and `b`; None where they do not compare.

    Stricter than Spark where Spark would guess: a string is not turned into a number or a date, and decimals that would
    lose digits are refused.
    """
    if a == b:
        return a if is_comparable(a) else None
    if {a, b} <= _TIMES:
        return "timestamp" if "timestamp" in (a, b) else "timestamp_ntz"
    if a in _INTEGRAL and b in _INTEGRAL:
        return max(a, b, key=_INTEGRAL.index)
    if not (_is_number(a) and _is_number(b)):
        return None
    if a in _FRACTIONAL or b in _FRACTIONAL:
        return "double"
    return _wider_decimal(_digits(a), _digits(b))


def is_comparable(type_: str) -> bool:
    """Whether values of the type can be tested for equality; maps and variants cannot, at any depth."""
    return "map<" not in type_ and "variant" not in re.split(r"[<>,:]", type_)


def family(type_: str) -> str:
    """The kind of a type: within one, values compare without a guess."""
    if _is_number(type_):
        return "number"
    return "time" if type_ in _TIMES else re.split(r"[<( ]", type_)[0]


def keeps_apart(type_: str, wider: str) -> bool:
    """Whether values that differ in `type_` still differ after a cast to the common type `wider`.

    As doubles, neighbouring large numbers become equal; as instants, local times around a change of the clocks do.
    """
    if wider == "double":
        return type_ in ("tinyint", "smallint", "int", "float", "double")
    if wider == "float":
        return type_ in ("tinyint", "smallint", "float")
    return not (wider == "timestamp" and type_ == "timestamp_ntz")


def field_type(type_: str, fields: Iterable[str]) -> str | None:
    """The type of a field inside (nested) structs, or None where there is no such field. No fields: the type itself."""
    fields = list(fields)
    if not fields:
        return type_
    node = _parsed_type(type_)
    for name in fields:
        if node is None or node.this != exp.DType.STRUCT:
            return None
        found = [f for f in node.expressions if isinstance(f, exp.ColumnDef) and f.name.lower() == name.lower()]
        node = found[0].kind if found else None
    return type_of_node(node)


def field_names(type_: str) -> tuple[str, ...]:
    """The fields of a struct type; none for any other."""
    node = _parsed_type(type_)
    is_struct = node is not None and node.this == exp.DType.STRUCT
    return tuple(part.name for part in node.expressions) if node is not None and is_struct else ()


def quote_name(name: str) -> str:
    """The name as SQL text, in backquotes where it needs them: odd letters, and keywords."""
    return f"`{name.replace('`', '``')}`" if name.upper() in _KEYWORDS else _plain_or_quoted(name)


def _parsed_type(type_: str) -> exp.DataType | None:
    try:
        columns = _parsed_columns(f"c {type_}")
    except InputError:
        return None
    return columns[0].kind if columns and isinstance(columns[0], exp.ColumnDef) else None


def _parsed_columns(ddl: str) -> list[exp.Expr]:
    try:
        statements = sqlglot.parse(f"{_DDL_HEAD}{ddl}\n)", dialect="spark")
    except SqlglotError as error:
        raise _unreadable(ddl, error) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Create) or statements[0].args.get("properties"):
        raise InputError(f"cannot read the schema {ddl!r}", "names and types", f"write {_EXAMPLE!r}")
    return list(statements[0].this.expressions)


def _unreadable(ddl: str, error: SqlglotError) -> InputError:
    """The parser stops at a type it does not know, so the word there may be a misspelt type."""
    found = error.errors if isinstance(error, ParseError) else []
    word = str(found[0].get("highlight", "") if found else "").strip(" \n)")
    hint = nearest(word, (*_KNOWN, "long", "integer", "short", "byte"))
    fix = hint if len(word) > 2 and word not in hint and hint.startswith("did") else f"write {_EXAMPLE!r}"
    return InputError(f"cannot read the schema {ddl!r}" + (f" at {word!r}" if word else ""), "names and types", fix)


def _column(node: exp.Expr, ddl: str) -> Column:
    if not isinstance(node, exp.ColumnDef) or node.kind is None:
        raise InputError(
            f"cannot read {node.sql('spark')!r} in the schema {ddl!r}", "a name and a type", f"write {_EXAMPLE!r}"
        )
    type_ = type_of_node(node.kind)
    if type_ is None:
        raise _unknown_type(node.kind.sql().lower(), node.name)
    return Column(node.name, type_)


def _decimal_of_node(node: exp.DataType) -> str | None:
    digits = [int(param.name) for param in node.expressions]
    precision, scale = (*digits, 10, 0)[:2] if not digits else (*digits, 0)[:2]
    return f"decimal({precision},{scale})" if 0 < precision <= _MAX_DIGITS and scale <= precision else None


def _nested_of_node(node: exp.DataType) -> str | None:
    kinds = {exp.DType.ARRAY: "array", exp.DType.MAP: "map", exp.DType.STRUCT: "struct"}
    parts = [_part_of_node(part) for part in node.expressions]
    if node.this not in kinds or any(part is None for part in parts):
        return None
    return f"{kinds[node.this]}<{','.join(part for part in parts if part)}>"


def _part_of_node(node: exp.Expr) -> str | None:
    if not isinstance(node, exp.ColumnDef):
        return type_of_node(node)
    type_ = type_of_node(node.kind)
    return f"{_plain_or_quoted(node.name)}:{type_}" if type_ else None


def _plain_or_quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def _unknown_type(text: str, column: str = "") -> InputError:
    of = f" of column {column!r}" if column else ""
    return InputError(f"unknown type {text!r}{of}", "a type of Spark SQL", nearest(text, _KNOWN))


def _is_number(type_: str) -> bool:
    return type_ in _INTEGRAL or type_ in _FRACTIONAL or _DECIMAL.match(type_) is not None


def _digits(type_: str) -> tuple[int, int]:
    """Digits before and after the point that hold every value of an exact number type."""
    decimal = _DECIMAL.match(type_)
    if not decimal:
        return _INTEGRAL_DIGITS[type_], 0
    precision, scale = int(decimal[1]), int(decimal[2])
    return precision - scale, scale


def _wider_decimal(a: tuple[int, int], b: tuple[int, int]) -> str | None:
    whole, scale = max(a[0], b[0]), max(a[1], b[1])
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MAX_DIGITS else None
