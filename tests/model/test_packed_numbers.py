"""A column comes back as it was, from msgpack and from JSON, and takes no more bytes than its numbers need."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.model.packed_numbers import Column, concatenated
from tests.scale import examples

SETTINGS = settings(max_examples=examples(100), deadline=None)
SIGNED = st.integers(0, 63).flatmap(lambda bits: st.lists(st.integers(-(1 << bits), (1 << bits) - 1), max_size=9))
UNSIGNED = st.integers(0, 64).flatmap(lambda bits: st.lists(st.integers(0, (1 << bits) - 1), max_size=9))
REAL = st.lists(st.floats(allow_nan=False), max_size=9)


@SETTINGS
@given(SIGNED | UNSIGNED.map(lambda own: np.array(own, dtype=np.uint64)) | REAL)
def test_numbers_come_back(numbers: Any) -> None:
    column = Column.of(numbers)
    plain = np.asarray(numbers).tolist()
    assert column.array.tolist() == plain
    assert len(column) == len(plain)
    for module in (msgspec.json, msgspec.msgpack):
        assert module.decode(module.encode(column), type=Column) == column


@pytest.mark.parametrize(
    ("numbers", "size"),
    [([0, 255], 1), ([0, 256], 2), ([-1, 127], 1), ([-1, 128], 2), ([1 << 32], 8), ([-(1 << 31)], 4), ([0.5], 8)],
)
def test_numbers_take_the_bytes_that_they_need(numbers: list[float], size: int) -> None:
    assert len(Column.of(numbers).data) == size * len(numbers)


def test_nobody_writes_to_a_column() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Column.of([1, 2]).array[0] = 3


@SETTINGS
@given(st.lists(SIGNED, max_size=4))
def test_columns_of_different_types_are_one_after_the_other(some: list[list[int]]) -> None:
    assert concatenated(map(Column.of, some)).tolist() == [number for one in some for number in one]


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'["<f2","AAAA"]', type=Column)
