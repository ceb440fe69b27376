"""Schemas, and the type in which two keys are compared."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.query import Column, Schema, common_type
from braidstream.query.types import canonical_type, family, field_type, keeps_apart

ALIASES = [
    ("long", "bigint"),
    ("INTEGER", "int"),
    ("short", "smallint"),
    ("byte", "tinyint"),
    ("real", "float"),
    ("dec", "decimal(10,0)"),
    ("numeric(5)", "decimal(5,0)"),
    ("decimal(10, 2)", "decimal(10,2)"),
    ("bool", "boolean"),
    ("timestamp_ltz", "timestamp"),
    ("timestamp_ntz", "timestamp_ntz"),
    ("varchar(4)", "string"),
    ("char(3)", "string"),
    ("binary", "binary"),
    ("date", "date"),
    ("double", "double"),
    ("array < integer >", "array<int>"),
    ("map<string, array<long>>", "map<string,array<bigint>>"),
    ("struct<a: int, b: struct<c string>>", "struct<a:int,b:struct<c:string>>"),
    ("struct<`odd one`:long>", "struct<`odd one`:bigint>"),
    ("interval day to second", "interval day to second"),
]

COMMON = [
    ("int", "int", "int"),
    ("int", "bigint", "bigint"),
    ("tinyint", "smallint", "smallint"),
    ("bigint", "double", "double"),
    ("int", "float", "double"),
    ("float", "double", "double"),
    ("int", "decimal(10,2)", "decimal(12,2)"),
    ("bigint", "decimal(10,2)", "decimal(22,2)"),
    ("decimal(10,2)", "decimal(5,4)", "decimal(12,4)"),
    ("decimal(38,0)", "decimal(38,10)", None),
    ("decimal(38,0)", "double", "double"),
    ("date", "timestamp", "timestamp"),
    ("date", "timestamp_ntz", "timestamp_ntz"),
    ("timestamp", "timestamp_ntz", "timestamp"),
    ("string", "string", "string"),
    ("string", "int", None),
    ("string", "date", None),
    ("string", "binary", None),
    ("boolean", "int", None),
    ("array<int>", "array<int>", "array<int>"),
    ("array<int>", "array<bigint>", None),
    ("struct<a:int>", "struct<a:int>", "struct<a:int>"),
    ("struct<a:int>", "struct<b:int>", None),
    ("map<string,int>", "map<string,int>", None),
    ("array<map<string,int>>", "array<map<string,int>>", None),
    ("variant", "variant", None),
]

WRONG_DDL = [
    ("", "no columns", "k long"),
    ("k", "cannot read 'k'", "k long"),
    ("k long v long", "at 'v'", "k long"),
    ("k lnog", "at 'lnog'", "did you mean 'long'?"),
    ("k datetime", "unknown type", "did you mean 'date'?"),
    ("k decimal(50,2)", "unknown type", "decimal(p,s)"),
    ("k long, K int", "more than once", "rename"),
    ("k long) x (y int", "cannot read the schema", "k long"),
    ("k long, PRIMARY KEY (k)", "cannot read", "k long"),
]


@pytest.mark.parametrize(("written", "canonical"), ALIASES)
def test_a_type_has_one_spelling(written: str, canonical: str) -> None:
    assert canonical_type(written) == canonical
    assert canonical_type(canonical) == canonical


@pytest.mark.parametrize(("one", "other", "expected"), COMMON)
def test_keys_are_compared_in_their_common_type(one: str, other: str, expected: str | None) -> None:
    assert common_type(one, other) == expected
    assert common_type(other, one) == expected


@settings(deadline=None)
@given(st.tuples(st.integers(1, 38), st.integers(0, 38)), st.tuples(st.integers(1, 38), st.integers(0, 38)))
def test_a_common_decimal_holds_every_digit_of_both(one: tuple[int, int], other: tuple[int, int]) -> None:
    (p, s), (q, t) = (one[0], min(one)), (other[0], min(other))
    found = common_type(f"decimal({p},{s})", f"decimal({q},{t})")
    whole, scale = max(p - s, q - t), max(s, t)
    assert found == (f"decimal({whole + scale},{scale})" if whole + scale <= 38 else None)


def test_only_some_casts_make_different_values_equal() -> None:
    assert keeps_apart("int", "double")
    assert not keeps_apart("bigint", "double")
    assert not keeps_apart("decimal(10,2)", "double")
    assert keeps_apart("int", "bigint")
    assert keeps_apart("date", "timestamp")
    assert not keeps_apart("timestamp_ntz", "timestamp")
    assert keeps_apart("smallint", "float")
    assert not keeps_apart("int", "float")


def test_only_types_of_one_family_compare_without_a_guess() -> None:
    assert family("tinyint") == family("decimal(10,2)") == family("double")
    assert family("date") == family("timestamp") == family("timestamp_ntz")
    assert family("string") == family("string collate UTF8_LCASE")
    assert family("interval day") == family("interval day to second")
    assert (
        len({family(one) for one in ("string", "int", "boolean", "binary", "date", "array<int>", "struct<a:int>")}) == 7
    )


def test_a_schema_keeps_spelling_and_finds_in_any_case() -> None:
    schema = Schema.from_ddl("Key long NOT NULL COMMENT 'a, b', `odd name` string, d decimal(10,2)")
    assert schema.columns == (Column("Key", "bigint"), Column("odd name", "string"), Column("d", "decimal(10,2)"))
    assert schema.names == ("Key", "odd name", "d")
    assert schema["KEY"] == schema.find("key") == Column("Key", "bigint")
    assert "ODD NAME" in schema
    assert schema.find("nope") is None
    assert Schema.from_ddl(schema.ddl) == schema
    assert Schema.of([("Key", "long"), ("odd name", "text"), ("d", "dec(10,2)")]) == schema


def test_a_missing_column_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'price'"):
        Schema.from_ddl("k long, price double")["prise"]


@pytest.mark.parametrize(("ddl", "wrong", "fix"), WRONG_DDL, ids=str)
def test_a_wrong_schema_is_refused_with_a_hint(ddl: str, wrong: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        Schema.from_ddl(ddl)
    assert wrong in caught.value.wrong
    assert caught.value.expected
    assert fix in caught.value.fix


def test_the_type_of_a_field() -> None:
    type_ = "struct<a:int,b:struct<C:string>>"
    assert field_type(type_, ["a"]) == "int"
    assert field_type(type_, ["B", "c"]) == "string"
    assert field_type(type_, ["b", "x"]) is None
    assert field_type("int", ["a"]) is None
    assert field_type("int", []) == "int"
