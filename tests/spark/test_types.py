"""End to end on Spark: streams with keys and payloads of every kind give what the oracle says, each result once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from braidstream.spark.flow import Flow
from tests.spark.kinds import KINDS, Kind, make, multiset, write

pytestmark = pytest.mark.spark

AT_ONCE = 4
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]


def groups_of_kinds() -> list[object]:
    found = [KINDS[i : i + AT_ONCE] for i in range(0, len(KINDS), AT_ONCE)]
    return [
        pytest.param(kinds, id=" / ".join(kind.name for kind in kinds), marks=[pytest.mark.slow] if i else [])
        for i, kinds in enumerate(found)
    ]


@pytest.mark.parametrize("kinds", groups_of_kinds())
@pytest.mark.parametrize("seed", SEEDS)
def test_random_streams_give_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, kinds: tuple[Kind, ...], seed: int
) -> None:
    """Several queries over streams of their own run in one flow; files are read directly, or by Spark."""
    random = Random(f"{seed} {kinds[0].name}")
    flow = Flow(spark, slots=random.randint(1, 7), groups=random.randint(1, 64))
    cases = [make(kind, seed) for kind in kinds]
    queries = []
    for i, made in enumerate(cases):
        sides = (made.kind.r, made.kind.s)
        for name, side, path, delay in zip("RS", sides, write(tmp_path / str(i), made), made.delays_us, strict=True):
            declare(flow, f"{name}{i}", path, side.ddl, f"{delay} microseconds", directly=(seed + i) % 2 == 0)
        queries.append(flow.query(made.cql(f"R{i}", f"S{i}"), name=f"q{i}").to("memory"))
    flow.start(tmp_path / "ck", warm=False).await_termination()
    n_results = 0
    for made, query in zip(cases, queries, strict=True):
        found = query.sink.table()  # type: ignore[union-attr]
        expected = made.expected()
        assert multiset([] if found is None else found.to_pylist()) == expected, made.kind.name
        n_results += expected.total()
    assert n_results > 0


def declare(flow: Flow, name: str, path: Path, ddl: str, delay: str, *, directly: bool) -> None:
    if directly:
        flow.files(name, path, schema=ddl, time="ts", delay=delay, options={"maxFilesPerTrigger": "1"})
    else:
        frame = flow.spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(path))
        flow.stream(name, frame, time="ts", delay=delay)
