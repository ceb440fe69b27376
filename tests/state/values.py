"""Random values of any class that has a schema: Structs and dataclasses, by the types of their fields."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct

from braidstream.model.figures import SlotFigures
from braidstream.state.notes import KeptFigures

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 70), 1 << 70),  # prefixes of addresses have more than 64 bits
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=5),
    bool: st.booleans(),
    type(None): st.none(),
    Any: st.recursive(st.text(max_size=3), lambda side: st.lists(side, min_size=2, max_size=2), max_leaves=3),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if kind in LEAVES:
        return LEAVES[kind]
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if kind is KeptFigures:
        return st.lists(values(SlotFigures), max_size=2).map(KeptFigures)
    if isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind)):
        hints = {name: hint for name, hint in get_type_hints(kind).items() if not name.startswith("__")}
        return st.builds(kind, **{name: st.deferred(lambda own=hint: values(own)) for name, hint in hints.items()})
    return _generic(get_origin(kind), get_args(kind))


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
