"""What `braid export` writes is enough to start anew from: keys that were never stored are in it too."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.kernels.hashing import INJECTIVE, hash_columns, unhashed_keys
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.state.exporting import export
from braidstream.state.files import Files
from tests.kernels import stories

SECOND = 1_000_000
TEXT = "SELECT A.v AS a, B.v AS b FROM A [RANGE 9 SECONDS], B [RANGE 6 SECONDS] WHERE {}"
KEYS = {
    "an integer": ("A.k = B.k", "k", False),
    "an integer, some of them heavy": ("A.k = B.k", "k", True),
    "a string, compared beyond its hash": ("A.s = B.s", "s", False),
    "two": ("A.k = B.k AND A.s = B.s", "ks", False),
}


def schema() -> pa.Schema:
    fields = [("k", pa.int32()), ("s", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
    return pa.schema(fields)


def drawn(seed: int, number: int) -> dict[str, pa.Table]:
    rng = random.Random(f"{seed} {number}")
    times = [(10 + 2 * number) * SECOND + rng.randrange(2 * SECOND) for _ in range(12)]
    made = {}
    for name in "AB":
        keys = [rng.choice([None, -1, 0, 1, 2**31 - 1, -(2**31)]) for _ in times]
        texts = [rng.choice(["", "x", "a longer one, of more than eight bytes", None]) for _ in times]
        values = [1000 * number + i for i in range(len(times))]
        made[name] = pa.table([keys, texts, values, sorted(times)], schema=schema())
    return made


@pytest.mark.parametrize("keys", KEYS)
def test_a_flow_that_starts_from_an_export_goes_on_with_what_was_missing(tmp_path: Path, keys: str) -> None:
    """As docs/runbook.md says: the export is the first epoch of the new flow, and what that gives was there before."""
    where, names, is_heavy = KEYS[keys]
    hashes = np.unique(hash_columns([pa.array([-1, 0, 1], pa.int32())])[0]).tolist()
    options: dict[str, Any] = {"slots": 3, "groups": 8}
    if is_heavy:
        options["regridder"] = RestlessGrids(hashes, seed=4)
    old = QueryHarness(tmp_path / "old", dict.fromkeys("AB", schema()), {"q": TEXT.format(where)}, **options)
    for number in range(4):
        old.epoch(drawn(7, number))
    assert bool(old.manifest.grids) == is_heavy
    before = stories.found(old, "q")
    export(Files(old._root), old.manifest, tmp_path / "state", lambda done, total: None)
    first = {}
    for name in "AB":
        (folder,) = (tmp_path / "state").glob(f"{name}[[]*")
        rows = pq.read_table(folder)
        assert {*names, "v", "__t"} <= set(rows.column_names)
        rows = rows.rename_columns({"__t": "ts"})
        absent = [field for field in schema() if field.name not in rows.column_names]
        for field in absent:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        first[name] = rows.select(schema().names).cast(schema())
    new = QueryHarness(tmp_path / "new", dict.fromkeys("AB", schema()), {"q": TEXT.format(where)}, slots=2)
    new.epoch(first)
    told_before = stories.found(new, "q")
    assert told_before <= before
    for number in range(4, 7):
        old.epoch(drawn(7, number))
        new.epoch(drawn(7, number))
    assert before
    after: Counter[Any] = stories.found(new, "q") - told_before
    assert sum(after.values()) > 20
    assert before + after == stories.found(old, "q")


@pytest.mark.parametrize("kind", sorted(INJECTIVE))
def test_a_key_of_an_injective_type_is_told_by_its_hash(kind: str) -> None:
    types = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "date": 32, "timestamp": 64, "timestamp_ntz": 64}
    bits = types.get(kind, 1)
    rng = np.random.default_rng(5)
    low, high = (0, 2) if kind == "boolean" else (-(1 << (bits - 1)), 1 << (bits - 1))
    numbers = [low, high - 1, 0, *rng.integers(low, high - 1, 200).tolist()]
    width = pa.int64() if bits == 64 else pa.int32()
    values = pa.array(numbers, width)
    hashes, _ = hash_columns([values])
    found = unhashed_keys(hashes, kind)
    assert found is not None
    back = found.cast(pa.int32()).to_pylist() if kind == "boolean" else found.cast(width).to_pylist()
    assert back == numbers
    assert unhashed_keys(hashes, "string") is None
