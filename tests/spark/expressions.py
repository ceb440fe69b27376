"""Random expressions over all types, as deep as is asked for, by a grammar of what Spark has for each kind of value.

A production has a text with holes, `{whole}` for a whole number and so on; what fills a hole is drawn again, down to
columns and literals. Most productions cannot fail while they run (`try_` where there is one), since a query that fails
says nothing about the expressions in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

__all__ = ["KEY_KINDS", "KINDS", "expression"]

_HOLE = re.compile(r"\{(\w+)\}")

_LEAVES: dict[str, tuple[str, ...]] = {
    "whole": ("i8", "i16", "i32", "i64", "m8", "m16", "m32", "m64"),
    "small": ("i8", "i16", "i32"),
    "real": ("f32", "f64"),
    "exact": ("d9", "d20", "d38", "x38"),
    "text": ("s", "js", "long"),
    "collated": ("lc", "rt", "uc"),
    "bytes": ("bin",),
    "flag": ("ok",),
    "day": ("day", "far"),
    "time": ("t", "ft"),
    "naive": ("n", "fn"),
    "span": ("iv",),
    "list": ("arr", "at"),
    "reals": ("ad",),
    "record": ("st", "sd"),
}
"""The columns of each kind."""

_LITERALS: dict[str, tuple[str, ...]] = {
    "whole": ("0", "1", "-1Y", "300S", "2147483647", "9223372036854775807L", "NULL"),
    "small": ("2", "7", "-3"),
    "real": ("0.0D", "-0.0D", "1e-300D", "1.5F", "CAST('NaN' AS DOUBLE)", "CAST('-Infinity' AS FLOAT)"),
    "exact": ("0.5", "1.25BD", "-99999.99BD", "12345678901234567890.5BD", "0BD"),
    "text": ("''", "'it''s'", "r'\\d'", "'\\u00df'", "\"q\"", "' a '", "'10'", "NULL"),
    "collated": ("'A' COLLATE UTF8_LCASE", "'a ' COLLATE UTF8_BINARY_RTRIM", "'É' COLLATE UNICODE_CI"),
    "bytes": ("X'00ff'", "X''", "CAST('a' AS BINARY)"),
    "flag": ("true", "false", "NULL"),
    "day": ("DATE'2020-02-29'", "DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-15'"),
    "time": ("TIMESTAMP'2024-03-31 02:30:00'", "TIMESTAMP'1900-01-01 00:00:00.000001'",
        "TIMESTAMP'1582-10-04 00:00:00'"),
    "naive": ("TIMESTAMP_NTZ'2024-03-31 02:30:00'", "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'"),
    "span": ("INTERVAL '1' DAY", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND", "INTERVAL '0' SECOND"),
    "list": ("array(1, NULL)", "array()", "array('a')"),
    "reals": ("array(0.0D, -0.0D)", "array(CAST('NaN' AS DOUBLE))"),
    "record": ("named_struct('a', 1, 'b', 'x')",),
}  # fmt: skip

_GROWN: dict[str, tuple[str, ...]] = {
    "whole": (
        "try_add({whole}, {whole})", "try_multiply({small}, {small})", "{whole} % 7", "pmod({small}, 5)", "-{small}",
        "try_subtract({whole}, 1)", "{small} div 3", "length({text})", "length({collated})", "octet_length({text})",
        "unix_date({day})", "year({day})", "dayofyear({day})", "hour({time})", "minute({naive})", "size({list})",
        "CAST({flag} AS INT)", "try_cast({text} AS BIGINT)", "try_cast({real} AS SMALLINT)", "bit_count({whole})",
        "datediff({day}, {day})", "extract(WEEK FROM {day})", "coalesce({whole}, {whole})", "nullif({whole}, {whole})",
        "CASE WHEN {flag} THEN {whole} ELSE {whole} END", "greatest({whole}, {whole})", "if({flag}, {small}, {whole})",
        "{small} | {small}", "{small} ^ {whole}", "shiftright({whole}, 1)", "hash({any})", "xxhash64({any})",
        "crc32({bytes})", "ascii({text})", "locate('a', {text})", "floor({exact})", "ceil({real} / 1e30)",
        "sign({small})", "unix_micros({time})", "levenshtein({text}, {text})", "CAST(get({list}, 0) IS NULL AS INT)",
        "{record}.a", "cardinality({list})", "try_divide({whole}, {small}) :: int",
        "try_cast({exact} AS INT)", "weekday({day})", "try_cast({span} AS BIGINT)",
    ),
    "small": ("{small} % 11", "abs({small} % 100)", "least({small}, 3)", "length(left({text}, 5))", "month({day})"),
    "real": (
        "{real} * 2", "-{real}", "{real} + {real}", "CAST({real} AS FLOAT)", "CAST({whole} AS DOUBLE)",
        "nanvl({real}, 0D)",
        "try_divide({real}, {real})", "round({real}, 1)", "bround({real}, 2)", "sqrt(abs({real}))",
        "CAST({exact} AS DOUBLE)",
        "try_cast({text} AS DOUBLE)", "coalesce({real}, {whole})", "greatest({real}, {real})", "least({real}, {exact})",
        "if({flag}, {real}, {small})", "{small} + {real}", "CAST({exact} AS FLOAT)", "get({reals}, 0)", "abs({real})",
        "array_max({reals})", "signum({real})", "rint({real})", "cbrt({real})", "CAST({whole} AS FLOAT)",
    ),
    "exact": (
        "{exact} + 1", "-{exact}", "round({exact}, 1)", "try_add({exact}, {exact})",
        "try_cast({real} AS DECIMAL(20,4))",
        "CAST({small} AS DECIMAL(10,2))", "try_multiply({exact}, 1.5)", "try_divide({exact}, 3)", "abs({exact})",
        "coalesce({exact}, {small})", "try_cast({text} AS DECIMAL(9,2))", "extract(SECOND FROM {time})",
        "CAST({whole} AS DECIMAL(38,0))", "if({flag}, {exact}, 0.5)", "greatest({exact}, {exact})",
        "bround({exact}, 0)",
        "try_cast({exact} AS DECIMAL(5,1))", "try_subtract({exact}, {small})",
    ),
    "text": (
        "lower({text})", "upper({text})", "trim({text})", "concat({text}, {text})", "{text} || 'x'", "reverse({text})",
        "substring({text}, 2)", "left({text}, 1)", "replace({text}, 'a', 'ß')", "lpad({text}, 4, '*')", "hex({bytes})",
        "CAST({whole} AS STRING)", "CAST({real} AS STRING)", "CAST({exact} AS STRING)", "CAST({flag} AS STRING)",
        "CAST({day} AS STRING)", "CAST({time} AS STRING)", "CAST({naive} AS STRING)",
        "date_format({time}, 'yyyy D HH')",
        "coalesce({text}, {text})", "nvl({text}, 'none')", "regexp_replace({text}, '[ab]', '-')", "initcap({text})",
        "translate({text}, 'ab', 'ba')", "split_part({text}, 'a', 1)", "to_json({record})", "base64({bytes})",
        "if({flag}, {text}, {text})", "{record}.b", "get_json_object({text}, '$.a')",
        "array_join(transform({list}, x -> CAST(x AS STRING)), ',')",
        "sha2({bytes}, 256)", "bin({whole})", "repeat({text}, 2)", "soundex({text})", "CAST({span} AS STRING)",
        "md5({bytes})",
        "concat_ws('-', {text}, {text})", "CAST({bytes} IS NULL AS STRING)", "format_number({exact}, 2)",
    ),
    "collated": (
        "lower({collated})", "trim({collated})", "{text} COLLATE UTF8_LCASE", "{text} COLLATE UTF8_BINARY_RTRIM",
        "left({collated}, 2)", "{text} COLLATE UNICODE_CI", "replace({collated}, 'a', 'b')",
        "substring({collated}, 1, 1)",
    ),
    "bytes": ("substring({bytes}, 1, 1)", "CAST({text} AS BINARY)", "unhex({text})", "concat({bytes}, {bytes})",
        "coalesce({bytes}, X'61')"),
    "flag": (
        "(NOT {flag})", "({flag} OR {flag})", "({flag} AND {flag})", "({whole} = {whole})", "({real} < {real})",
        "({exact} >= {whole})", "({text} <=> {text})", "({text} < {text})", "({day} <= {day})", "({time} = {naive})",
        "({text} LIKE '%a%')", "({whole} IN (1, 2, NULL))", "({real} = {exact})", "({any} IS NULL)", "isnan({real})",
        "({whole} BETWEEN {small} AND {whole})", "({bytes} < {bytes})", "array_contains({reals}, {real})",
        "({text} RLIKE '^[a-z]')", "startswith({text}, 'a')", "({reals} = {reals})", "({record} = {record})",
        "({span} > {span})", "contains({collated}, 'A')", "(({text} COLLATE UTF8_LCASE) = 'A')", "({flag} IS NOT TRUE)",
        "({real} <=> {real})", "({day} < {time})", "coalesce({flag}, false)", "({text} IN ('a', 'it''s'))",
    ),
    "day": (
        "date_add({dayish}, 1)", "trunc({day}, 'MM')", "last_day({dayish})", "CAST({time} AS DATE)", "to_date({naive})",
        "coalesce({day}, {day})", "date_sub({dayish}, 3)", "add_months({dayish}, 1)", "try_cast({text} AS DATE)",
        "if({flag}, {day}, {day})", "greatest({day}, {day})", "date_from_unix_date({small})",
    ),
    "dayish": ("trunc({dayish}, 'YEAR')",),
    "time": (
        "date_trunc('MINUTE', {time})", "{timeish} + INTERVAL 1 SECOND", "CAST({naiveish} AS TIMESTAMP)",
        "coalesce({time}, {time})",
        "{timeish} - {span}", "if({flag}, {time}, {time})", "CAST({dayish} AS TIMESTAMP)",
        "date_trunc('DAY', {timeish})",
        "timestamp_seconds({small})", "from_utc_timestamp({timeish}, 'Asia/Kolkata')", "date_trunc('HOUR', {timeish})",
    ),
    "naive": (
        "{naiveish} + INTERVAL '1' HOUR", "CAST({timeish} AS TIMESTAMP_NTZ)", "CAST({dayish} AS TIMESTAMP_NTZ)",
        "coalesce({naive}, {naive})",
        "if({flag}, {naive}, {naive})",
    ),
    "span": ("-{span}", "{span} + INTERVAL '1' SECOND", "{timeish} - {timeish}", "coalesce({span}, {span})",
        "{span} * 2", "{dayish} - {dayish}"),
    "list": ("array_sort({list})", "array_distinct({list})", "slice({list}, 1, 1)", "coalesce({list}, {list})",
        "reverse({list})"),
    "reals": ("array_sort({reals})", "transform({reals}, x -> x * 2)", "filter({reals}, x -> x > 0)",
        "array({real}, {real})"),
    "record": ("coalesce({record}, {record})", "if({flag}, {record}, NULL)", "named_struct('a', {small}, 'b', {text})"),
}  # fmt: skip

_LEAVES |= {"dayish": ("day",), "timeish": ("t", "ts"), "naiveish": ("n",)}
_LITERALS |= {"dayish": ("DATE'2020-02-29'",), "timeish": ("TIMESTAMP'2024-03-31 02:30:00'",)}
_LITERALS |= {"naiveish": ("TIMESTAMP_NTZ'2024-10-27 02:30:00'",)}
_GROWN |= {"timeish": ("{timeish} + INTERVAL 1 HOUR",), "naiveish": ("{naiveish} + INTERVAL 1 DAY",)}
KINDS: Sequence[str] = tuple(_LEAVES)
KEY_KINDS: Sequence[str] = (
    *("whole", "whole", "real", "exact", "text", "text", "collated", "bytes", "flag", "day", "time", "naive"),
    *("span", "list", "reals", "record"),
)
"""What a key may be; more often what users join on."""


def expression(random: Random, kind: str, aliases: str, depth: int) -> str:
    """An expression of a kind over the columns of some streams."""
    if kind == "any":
        kind = random.choice(KINDS)
    if depth <= 0 or random.random() < 0.15 or kind not in _GROWN:
        if random.random() < 0.15:
            return random.choice(_LITERALS[kind])
        return f"{random.choice(aliases)}.{random.choice(_LEAVES[kind])}"
    template = random.choice(_GROWN[kind])
    return _HOLE.sub(lambda hole: expression(random, hole[1], aliases, depth - 1), template)
