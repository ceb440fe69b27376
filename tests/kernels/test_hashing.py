"""The key hash is the same whether Spark computes it or the routing task does."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.hashing import INJECTIVE, hash_columns, hashable
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = ["", "a", "ab", "ß✓", "\x00", "naïve", *("x" * n for n in (3, 4, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 200))]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [0, 1, -1, 127, -128, None]),
    "smallint": (pa.int16(), [0, 1, -1, 2**15 - 1, -(2**15), None]),
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), None]),
    "bigint": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 2**32, None]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 1e-45, None]),
    "double": (pa.float64(), [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, None]),
    "string": (pa.string(), [*WORDS, None]),
    "binary": (pa.binary(), [*(w.encode() for w in WORDS), b"\xff\xfe", bytes(range(256)), None]),
    "date": (pa.date32(), [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, 1, -1, datetime(2024, 2, 29, 1, 2, 3, 4, timezone.utc), None]),
    "timestamp_ntz": (pa.timestamp("us"), [0, 1, -1, datetime(1900, 1, 1), None]),  # noqa: DTZ001  without a zone
}


def column(kind: str, rows: int, seed: int) -> pa.Array:
    """Every value of the kind at least once, in any order, as part of a longer array (offsets are not zero)."""
    arrow, values = VALUES[kind]
    chosen = np.random.default_rng(seed).permutation(np.resize(np.arange(len(values)), rows + 5))
    return pa.array([values[i] for i in chosen], arrow)[5:]


@pytest.mark.spark
def test_hashes_are_sparks(spark: SparkSession) -> None:
    kinds = [*VALUES, *("string",) * 3]
    table = pa.table({f"c{i}": column(kind, 300, i) for i, kind in enumerate(kinds)})
    keys = [(i,) for i in range(len(kinds))] + [
        (0, 4),
        (7, 4),
        (4, 7, 9),
        (6, 5, 8),
        (12, 13, 14),
        tuple(range(len(kinds))),
    ]
    texts = [f"xxhash64({', '.join(f'c{i}' for i in key)})" for key in keys]
    frame = spark.createDataFrame(table)
    found = frame.selectExpr(*(f"{text} AS h{n}" for n, text in enumerate(texts))).toArrow()
    for n, key in enumerate(keys):
        hashes, valid = hash_columns([table.column(i).combine_chunks() for i in key])
        assert hashes.view(np.int64).tolist() == found.column(n).to_pylist(), texts[n]
        nulls = np.logical_or.reduce([table.column(i).is_null().to_numpy() for i in key])
        assert (valid == ~nulls).all()


@pytest.mark.parametrize("kind", list(VALUES))
def test_every_covered_type_may_be_empty_or_all_null(kind: str) -> None:
    arrow, _ = VALUES[kind]
    assert hashable(arrow)
    hashes, valid = hash_columns([pa.array([], arrow)])
    assert len(hashes) == len(valid) == 0
    hashes, valid = hash_columns([pa.nulls(3, arrow)])
    assert len(hashes) == 3
    assert not valid.any()


@pytest.mark.parametrize("arrow", [pa.decimal128(10, 2), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_other_types_are_left_to_spark(arrow: pa.DataType) -> None:
    assert not hashable(arrow)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=200))
def test_one_integer_key_never_collides(values: list[int]) -> None:
    assert "bigint" in INJECTIVE
    hashes, _ = hash_columns([pa.array(values, pa.int64())])
    assert len(np.unique(hashes)) == len(values)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=70)), max_size=30), st.integers(0, 5))
def test_a_hash_does_not_depend_on_the_rows_around_it(values: list[str | None], skipped: int) -> None:
    whole, _ = hash_columns([pa.array(values, pa.string())])
    part, _ = hash_columns([pa.array(values, pa.string())[skipped:]])
    assert part.tolist() == whole[skipped:].tolist()
