"""On one machine large envelopes pass in files: the answer is the same, and nothing is left of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream.slot.handover import clear
from braidstream.spark import cluster
from braidstream.spark.flow import Flow
from braidstream.spark.session import handover_folder

pytestmark = pytest.mark.spark

SCHEMA = "k long, v long, ts timestamp"
N = 40_000
TEXT = "SELECT R.v AS r, S.v AS s FROM R [RANGE 9 SECONDS], S [RANGE 9 SECONDS] WHERE R.k = S.k"


def _write(folder: Path, seed: int) -> pa.Table:
    """A file whose rows for a slot are more than what is sent as it is."""
    keys = np.random.default_rng(seed).permutation(N)
    rows = pa.table({"k": keys, "v": np.arange(N), "ts": pa.array(np.arange(N), pa.timestamp("us", "UTC"))})
    folder.mkdir()
    pq.write_table(rows, folder / "0.parquet")
    return rows


def test_large_envelopes_are_handed_over_in_files_and_the_answer_is_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what a task left that went on after its job had failed is gone when the flow has ended."""
    tables = [_write(tmp_path / name, seed) for seed, name in enumerate("RS")]
    flow = Flow(spark, slots=2)
    flow.files("R", tmp_path / "R", schema=SCHEMA, time="ts")
    flow.stream("S", spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "S")), time="ts")
    flow.query(TEXT, "q").to("parquet", path=str(tmp_path / "out"))
    used = list[str]()

    def cleared(folder: str | None) -> None:
        assert folder is not None
        used.extend(path.name for path in Path(folder).glob("*"))
        clear(folder)

    monkeypatch.setattr(cluster, "clear", cleared)
    stale = Path(handover_folder(spark, str(tmp_path / "ck"), "a run before") or "")
    stale.mkdir(parents=True)
    (stale / "left").write_bytes(b"rows")
    assert flow.start(tmp_path / "ck").await_termination(120)
    found = pq.read_table(tmp_path / "out").select(["r", "s"]).sort_by("r")
    of_key = np.empty(N, dtype=np.int64)
    of_key[np.asarray(tables[1]["k"])] = np.arange(N)
    assert np.array_equal(found["r"], np.arange(N))
    assert np.array_equal(found["s"], of_key[np.asarray(tables[0]["k"])])
    assert used
    assert not stale.parent.exists()


def test_slots_hand_large_intermediate_results_over_to_those_of_the_next_stage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of the exchange may then be as large in rows as they like: they carry places."""
    rng, n_keys, n = np.random.default_rng(3), 20, 1000
    columns = {name: rng.integers(0, n_keys, n) for name in "abc"}
    moments = pa.array(np.arange(n), pa.timestamp("us", "UTC"))
    for name, keys in (("A", {"k": "a"}), ("B", {"k": "b", "j": "c"}), ("C", {"j": "c"})):
        (tmp_path / name).mkdir()
        rows = {key: columns[column] for key, column in keys.items()} | {"v": np.arange(n), "ts": moments}
        rows = {key: values[: 40 if name == "C" else n] for key, values in rows.items()}
        pq.write_table(pa.table(rows), tmp_path / name / "0.parquet")
    flow = Flow(spark, slots=2)
    for name, key in (("A", "k long"), ("B", "k long, j long"), ("C", "j long")):
        stream = spark.readStream.schema(f"{key}, v long, ts timestamp").parquet(str(tmp_path / name))
        flow.stream(name, stream, time="ts")
    windows = ", ".join(f"{name} [RANGE UNBOUNDED]" for name in "ABC")
    text = f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {windows} WHERE A.k = B.k AND B.j = C.j"
    flow.query(text, "q").to("parquet", path=str(tmp_path / "out"))
    handed = list[int]()

    def cleared(folder: str | None) -> None:
        handed.extend(path.stat().st_size for path in Path(folder or "").glob("*"))
        clear(folder)

    monkeypatch.setattr(cluster, "clear", cleared)
    assert flow.start(tmp_path / "ck").await_termination(120)
    matches = (columns["a"][:, None] == columns["b"]).sum(axis=0)
    expected = sum(int(matches[columns["c"] == key].sum()) for key in columns["c"][:40])
    assert pq.read_table(tmp_path / "out").num_rows == expected
    assert sum(handed) > 1 << 20, "rows of the streams are too few to be handed over; those of the first join are not"
