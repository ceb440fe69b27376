"""Joins without an equality in a plan: the columns that they sort by, and how exact their bounds are.

All rows of such a join have one key, `UNKEYED_KEY`, and are in the cells of one grid (`epoch.single_grids`). Queries
over the same stream share its store, whatever they compare.

Invariant: a band is at least as wide as what Spark computes: numbers that are no whole ones are compared with a slack
that covers how far rounding can take a value of their type. Cost: O(bands) for each query, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from braidstream.model.stores import JoinBand
from braidstream.plan.retention import Compared, compared
from braidstream.query import Band, Query

__all__ = ["band_columns", "join_bands"]

_FLOAT = 2.0**-20
"""What rounding takes of a number of Spark's type float, in a few steps; its own share is 2^-24."""
_DOUBLE = 2.0**-46
_DECIMAL = 1e-5
"""How far decimals of 38 digits may be rounded: Spark keeps at least 6 behind the point."""


def band_columns(query: Query, alias: str, schema: pa.Schema) -> Iterator[Compared]:
    """The columns of an input that bands are about."""
    for band in query.bands:
        if alias == query.aliases[0]:
            yield compared(band.left, band.left_type, schema)
        if alias == query.aliases[1]:
            yield compared(band.right, band.right_type, schema)


def join_bands(query: Query, schemas: Mapping[str, pa.Schema]) -> tuple[JoinBand, ...]:
    """The bands over stored columns."""
    return tuple(_band(band, query, schemas) for band in query.bands)


def _band(band: Band, query: Query, schemas: Mapping[str, pa.Schema]) -> JoinBand:
    left = compared(band.left, band.left_type, schemas[query.aliases[0]]).name
    right = compared(band.right, band.right_type, schemas[query.aliases[1]]).name
    if band.is_whole:
        return JoinBand(left, right, band.low, band.high, band.is_sum)
    types = (band.left_type, band.right_type)
    beyond = _DECIMAL if any(type_.startswith("decimal(") for type_ in types) else 0.0
    low = None if band.low is None else band.low - beyond
    high = None if band.high is None else band.high + beyond
    slack = _FLOAT if "float" in types else _DOUBLE
    return JoinBand(left, right, low, high, band.is_sum, is_whole=False, slack=slack)
