"""Times beyond the years that Python knows, as keys and as values: Spark has them, and no datetime can hold them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from braidstream.kernels.rows import text_at
from braidstream.lab.testing.queries import QueryHarness
from tests.kernels import stories

INSTANT = pa.timestamp("us", tz="UTC")
FAR = {"the year 14645": 400_000_000_000_000_000, "long before year 1": -300_000_000_000_000_000}
SCHEMA = pa.schema(
    [("far", INSTANT), ("k", pa.int64()), ("in", pa.struct([("far", INSTANT)])), ("v", pa.int64()), ("ts", INSTANT)]
)


def rows(far: int, n: int) -> pa.Table:
    """Rows of one key and one time; `v` tells them apart."""
    far_times = pa.array([far] * n).cast(INSTANT)
    nested = pa.StructArray.from_arrays([pa.array([far + i for i in range(n)]).cast(INSTANT)], ["far"])
    return pa.table([far_times, [1] * n, nested, list(range(n)), pa.array([0] * n).cast(INSTANT)], schema=SCHEMA)


@pytest.mark.parametrize("far", FAR.values(), ids=FAR.keys())
def test_a_frequent_key_may_be_a_far_time(tmp_path: Path, far: int) -> None:
    text = "SELECT R.v AS r, S.v AS s FROM R [RANGE 5 SECONDS], S [RANGE 5 SECONDS] WHERE R.far = S.far"
    harness = QueryHarness(tmp_path, {"R": SCHEMA, "S": SCHEMA}, {"q": text}, slots=2)
    harness.epoch({"R": rows(far, 4), "S": rows(far, 3)})
    assert stories.found(harness, "q") == Counter((r, s) for r in range(4) for s in range(3))


@pytest.mark.parametrize("far", FAR.values(), ids=FAR.keys())
def test_ties_are_decided_by_values_with_far_times(tmp_path: Path, far: int) -> None:
    text = "SELECT R.v AS r, S.v AS s FROM R ASOF LEFT JOIN S [RANGE 5 SECONDS] ON R.k = S.k"
    harness = QueryHarness(tmp_path, {"R": SCHEMA, "S": SCHEMA}, {"q": text}, slots=2)
    harness.epoch({"R": rows(far, 2), "S": rows(far, 3)})
    later = rows(far, 1).set_column(4, "ts", pa.array([60_000_000]).cast(INSTANT))
    harness.epoch({"R": later, "S": later})
    assert set(stories.found(harness, "q")) <= {(r, s) for r in range(2) for s in range(3)}
    assert {r for r, _ in stories.found(harness, "q")} == {0, 1}


def test_text_of_far_times() -> None:
    far = pa.array([FAR["the year 14645"]]).cast(INSTANT)
    assert text_at(far, 0) == "14645-06-30 15:06:40.000000Z"
    assert "14645" in text_at(pa.StructArray.from_arrays([far], ["at"]), 0)
