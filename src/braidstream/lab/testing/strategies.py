"""Random streams for Hypothesis: skewed keys, NULL keys, duplicate rows, rows out of order, windows of every kind.

A `Case` is a query over m streams with their rows, cut into epochs. Its rows have a key column `k`, a second one `j`, a
number `v` and a time `ts` on a grid of `unit_us`, coarse enough that times meet the bounds of windows exactly.

Invariant: no row is late. A stream's rows arrive in the order of time + jitter with a jitter of at most the stream's
delay, so whatever came before a row is at most that delay newer, however the streams are cut into epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from braidstream.lab.testing.oracle import Epoch, Equality, Row, Stream

__all__ = ["Case", "many_streams", "two_streams"]

SECOND_US = 1_000_000

_LONG_KEYS: tuple[Any, ...] = (0, 1, 2, -1, 2**62)
_STRING_KEYS: tuple[Any, ...] = ("", "a", "b", "ab", "ß✓")
_KEYS = {"long": (pa.int64(), _LONG_KEYS), "string": (pa.string(), _STRING_KEYS)}


@dataclass(frozen=True)
class Case:
    """A query and its input. `streams` have their rows in the order of arrival; `epochs` are the same rows, cut."""

    streams: tuple[Stream, ...]
    equalities: tuple[Equality, ...]
    delays_us: dict[str, int]
    epochs: tuple[Epoch, ...]
    schema: pa.Schema

    def table(self, name: str) -> pa.Table:
        """All rows of a stream as a table."""
        rows = next(stream.rows for stream in self.streams if stream.name == name)
        return pa.Table.from_pylist(list(rows), self.schema)


@st.composite
def two_streams(draw: DrawFn, max_rows: int = 25, max_epochs: int = 6, unit_us: int = SECOND_US) -> Case:
    """Streams R and S joined on a long, a string, a composite key, or on columns of different names."""
    k, j, equalities = draw(
        st.sampled_from(
            [
                ("long", "long", (("R.k", "S.k"),)),
                ("long", "long", (("R.k", "S.j"),)),
                ("string", "long", (("R.k", "S.k"),)),
                ("long", "string", (("R.k", "S.k"), ("R.j", "S.j"))),
            ]
        )
    )
    return draw(_cases(["R", "S"], (k, j), equalities, max_rows, max_epochs, unit_us))


@st.composite
def many_streams(
    draw: DrawFn,
    min_streams: int = 2,
    max_streams: int = 5,
    max_rows: int = 8,
    max_epochs: int = 5,
    unit_us: int = SECOND_US,
) -> Case:
    """Streams A, B, ... joined on one attribute (type 1), or along a random tree on different ones (type 2)."""
    names = list("ABCDEFGH"[: draw(st.integers(min_streams, max_streams))])
    if draw(st.booleans()):
        kind = draw(st.sampled_from(sorted(_KEYS)))
        equalities = tuple((f"{left}.k", f"{right}.k") for left, right in pairwise(names))
    else:
        kind = "long"
        equalities = tuple(_tree(draw, names))
    return draw(_cases(names, (kind, kind), equalities, max_rows, max_epochs, unit_us))


@st.composite
def _cases(
    draw: DrawFn,
    names: Sequence[str],
    kinds: tuple[str, str],
    equalities: tuple[Equality, ...],
    max_rows: int,
    max_epochs: int,
    unit_us: int,
) -> Case:
    n_epochs = draw(st.integers(1, max_epochs))
    keys = [_keys(draw, kind, max_keys=6 - len(names)) for kind in kinds]
    streams, delays, cuts = [], {}, {}
    for name in names:
        delay = draw(st.integers(0, 10))
        rows = _rows(draw, keys, max_rows, delay, unit_us)
        window = draw(st.none() | st.integers(0, 25))
        streams.append(Stream(name, rows, None if window is None else window * unit_us))
        delays[name] = delay * unit_us
        cuts[name] = _cut(draw, rows, n_epochs)
    epochs = tuple({name: cuts[name][i] for name in names} for i in range(n_epochs))
    return Case(tuple(streams), equalities, delays, epochs, _schema(kinds))


def _rows(draw: DrawFn, keys: Sequence[st.SearchStrategy[Any]], max_rows: int, delay: int, unit_us: int) -> list[Row]:
    """Rows in the order of arrival; some are there twice. Few streams are empty, so that most cases have results."""
    min_rows = draw(st.sampled_from([0, max_rows // 2, max_rows // 2]))
    row = st.tuples(*keys, st.integers(0, 40), st.integers(0, delay), st.booleans())
    arrivals = [
        (time + jitter, {"k": k, "j": j, "v": v, "ts": time * unit_us})
        for v, (k, j, time, jitter, is_double) in enumerate(draw(st.lists(row, min_size=min_rows, max_size=max_rows)))
        for _ in range(1 + (is_double and v % 4 == 0))
    ]
    return [row for _, row in sorted(arrivals, key=lambda arrival: arrival[0])]


def _keys(draw: DrawFn, kind: str, max_keys: int) -> st.SearchStrategy[Any]:
    """Up to `max_keys` keys, the same for all streams: all equally, or mostly the first one; with or without NULLs."""
    keys: tuple[Any, ...] = _KEYS[kind][1][: draw(st.integers(1, max(max_keys, 2)))]
    if draw(st.booleans()):
        keys = (*keys, None)
    if draw(st.booleans()):
        keys = (*keys, *[keys[0]] * (2 * len(keys)))
    return st.sampled_from(keys)


def _cut(draw: DrawFn, rows: Sequence[Row], n_epochs: int) -> list[Sequence[Row]]:
    """The rows in `n_epochs` pieces, any of them empty; some streams say nothing until the last one."""
    inner = draw(st.lists(st.integers(0, len(rows)), min_size=n_epochs - 1, max_size=n_epochs - 1).map(sorted))
    if draw(st.integers(0, 4)) == 4:
        inner = [0] * (n_epochs - 1)
    ends = [0, *inner, len(rows)]
    return [rows[first:end] for first, end in pairwise(ends)]


def _tree(draw: DrawFn, names: Sequence[str]) -> list[Equality]:
    """Each stream is joined to one before it, on one column of each: a chain, a star, or any tree."""
    shape = draw(st.sampled_from(["chain", "star", "any"]))
    column = st.sampled_from("kj")
    equalities = []
    for i, name in enumerate(names[1:]):
        other = {"chain": names[i], "star": names[0]}.get(shape) or draw(st.sampled_from(names[: i + 1]))
        equalities.append((f"{other}.{draw(column)}", f"{name}.{draw(column)}"))
    return equalities


def _schema(kinds: tuple[str, str]) -> pa.Schema:
    k, j = (_KEYS[kind][0] for kind in kinds)
    return pa.schema([("k", k), ("j", j), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
