"""Columns of users that begin with two underscores, in stores of streams, with tables or without."""

from __future__ import annotations

import pyarrow as pa
import pytest

from braidstream.query.model import Enriched, Lookup
from braidstream.state.segments import _with_stored_names


@pytest.mark.parametrize("name", ["orders", Enriched("orders", (Lookup("customers", "customers", "x"),)).name])
def test_a_column_of_a_table_keeps_its_name(name: str) -> None:
    table = pa.table({"__h": [1], "__t": [1], "v": [1], "customers.__x": [1]})
    assert _with_stored_names(table, f"{name}[`k`]").column_names == table.column_names
