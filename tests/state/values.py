"""Random values of any class that has a schema: Structs and dataclasses, by the types of their fields."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import strategies as st
from msgspec import Struct

from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.packed_numbers import Column
from braidstream.model.reports import GroupCount, GroupCounts
from braidstream.state.notes import KeptFigures

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 70), 1 << 70),  # prefixes of addresses have more than 64 bits
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=5),
    bool: st.booleans(),
    bytes: st.binary(max_size=5),
    type(None): st.none(),
    Any: st.recursive(st.text(max_size=3), lambda side: st.lists(side, min_size=2, max_size=2), max_leaves=3),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if kind in LEAVES:
        return LEAVES[kind]
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if kind in _SPECIAL:
        return _SPECIAL[kind]()
    if isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind)):
        hints = {name: hint for name, hint in get_type_hints(kind).items() if not name.startswith("__")}
        return st.builds(kind, **{name: st.deferred(lambda own=hint: values(own)) for name, hint in hints.items()})
    return _generic(get_origin(kind), get_args(kind))


def _slot_figures() -> st.SearchStrategy[SlotFigures]:
    """Of slots and groups that are few."""
    counts, seconds = st.integers(0, 1 << 40), st.floats(0, 1e9)
    groups = st.dictionaries(st.integers(0, 9), st.tuples(counts, counts, seconds), max_size=2).map(
        lambda own: tuple(GroupFigures(group, rows, found, 0, 0, s) for group, (rows, found, s) in sorted(own.items()))
    )
    slots, epochs = st.integers(0, 3), st.integers(0, 9)
    return st.builds(
        SlotFigures, slots, epochs, counts, counts, st.just(0), seconds, groups, work_s=st.none() | seconds
    )


def _generic(origin: Any, of: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin in (Union, types.UnionType):
        return st.one_of([values(one) for one in of])
    if origin is Mapping:
        return st.dictionaries(values(of[0]), values(of[1]), max_size=2)
    if origin is frozenset:
        return st.frozensets(values(of[0]), max_size=2)
    assert origin is tuple
    if len(of) == 2 and of[1] is Ellipsis:
        return st.lists(values(of[0]), max_size=2).map(tuple)
    return st.tuples(*(values(one) for one in of))


def _columns() -> st.SearchStrategy[Column]:
    unsigned = st.lists(st.integers(0, (1 << 64) - 1), max_size=3).map(lambda own: np.array(own, dtype=np.uint64))
    signed = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3)
    return st.one_of(signed, unsigned, st.lists(LEAVES[float], max_size=3)).map(Column.of)


def _group_counts() -> st.SearchStrategy[GroupCounts]:
    counts = st.builds(GroupCount, *[st.integers(0, 1 << 40)] * 3)
    return st.lists(counts, max_size=3).map(GroupCounts.of_counts)


_SPECIAL = {
    KeptFigures: lambda: st.lists(_slot_figures(), max_size=2).map(KeptFigures),
    Column: _columns,
    GroupCounts: _group_counts,
}
"""Classes whose fields go together."""
