"""Aggregates over a skewed join: `python -m braidstream.lab.bench.aggregates_skew [--spark FOLDER]`.

Two streams, once with uniform keys and once with one key that is 30 % of all tuples, and the query
`SELECT COUNT(*), SUM(R.v), MIN(R.v), AVG(S.v) ... WHERE R.k = S.k` over windows of 10 s. It prints one JSON object:
CPU seconds of an epoch in each stage (in process) or Spark's own time of an epoch, the composites that the last epoch
counts, and the ratio of the skewed run to the uniform one.

The in-process run is the kernels alone: rows are sorted, summarized, aggregated and compacted in one process, over two
slots, without files and without routing. The first epochs, until the windows are full, are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.kernels.aggregates import (
    EPOCH,
    WATERMARK,
    AggregateColumn,
    AggregateInput,
    Aggregation,
    Clock,
    GroupAggregator,
    KeyAggregator,
    Measure,
    alive_from,
)
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.rows import HASH, TIME, Rows, sort_rows
from braidstream.kernels.summaries import ORDER, RUN, Summary, merge_summaries
from braidstream.lab.workloads.key_values import HotKey, Keys, UniformKeys

__all__ = ["KEYS", "in_process", "main", "on_spark"]

DOMAIN = 100_000
KEYS: Mapping[str, Keys] = {"uniform": UniformKeys(DOMAIN), "hot": HotKey(domain=DOMAIN, share=0.3)}
RATE, WINDOW_S, EPOCH_S = 25_000, 10, 2
WARM, MEASURED = 7, 8
_HALF = 1 << 63
_FAN = 4
QUERY = (
    f"SELECT COUNT(*) AS n, SUM(R.v) AS s, MIN(R.v) AS lo, AVG(S.v) AS a "
    f"FROM R [RANGE {WINDOW_S} SECONDS], S [RANGE {WINDOW_S} SECONDS] WHERE R.k = S.k"
)


def in_process(keys: Keys, epochs: int = WARM + MEASURED) -> dict[str, Any]:
    """CPU seconds of each epoch in each stage, and the last result."""
    state = _State()
    rng = np.random.default_rng(7)
    cpu: dict[str, list[float]] = defaultdict(list)
    result: dict[str, Any] = {}
    for epoch in range(epochs):
        arrived = {name: _rows(keys, epoch, rng) for name in "RS"}
        result = state.run(epoch, arrived, cpu)
    means = {stage: round(statistics.fmean(times[WARM:]), 4) for stage, times in cpu.items()}
    return {"cpu_s": means, "epoch_s": round(sum(means.values()), 4), "composites": result["n"], "result": result}


def on_spark(folder: Path) -> dict[str, Any]:
    """Spark's own time of each epoch, both workloads in one session, alternating twice to see the noise."""
    from braidstream.spark.session import local_session  # noqa: PLC0415  (the other run needs no Spark)

    spark = local_session("local[2]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "3g"})
    spark.sparkContext.setLogLevel("ERROR")
    measured: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for repetition in range(2):
        for name, keys in KEYS.items():
            _generate(folder / name, keys)
            measured[name].append(_spark_run(spark, folder / name, folder / f"checkpoint-{name}-{repetition}"))
    spark.stop()
    best = {name: min(entry["epoch_s"] for entry in entries) for name, entries in measured.items()}
    return {"how": "spark", "runs": measured, "ratio": round(best["hot"] / best["uniform"], 3)}


def _generate(folder: Path, keys: Keys) -> None:
    from braidstream.lab.workloads.stream_files import write_stream  # noqa: PLC0415

    if (folder / "S").exists():
        return
    for seed, name in enumerate("RS", start=1):
        n_rows = RATE * EPOCH_S * (WARM + MEASURED)
        write_stream(
            folder / name,
            rate=RATE,
            keys=keys,
            rows_per_file=RATE * EPOCH_S,
            seed=seed,
            n_rows=n_rows,
            arrivals="constant",
        )


def _spark_run(spark: Any, folder: Path, checkpoint: Path) -> dict[str, Any]:
    from braidstream.spark.flow import Flow  # noqa: PLC0415

    flow = Flow(spark, slots=2)
    for name in "RS":
        options = {"maxFilesPerTrigger": "1"}
        flow.files(name, folder / name, schema="k long, v long, ts timestamp", time="ts", options=options)
    query = flow.query(QUERY).to("memory")
    handle = flow.start(checkpoint)
    handle.await_termination()
    progress = handle._query.recentProgress
    times = [entry["durationMs"]["triggerExecution"] / 1000 for entry in progress if entry["numInputRows"]][WARM:]
    assert query.sink is not None
    last = query.sink.table().to_pylist()[-1]  # type: ignore[attr-defined]
    return {"epoch_s": round(statistics.median(times), 3), "epochs": len(times), "composites": last["n"]}


def _rows(keys: Keys, epoch: int, rng: np.random.Generator) -> Rows:
    n_rows = RATE * EPOCH_S
    drawn = pa.array(keys.draw(n_rows, rng))
    times = epoch * EPOCH_S * 1_000_000 + np.arange(n_rows) * 1_000_000 // RATE
    hashes, _ = hash_columns([drawn])
    columns = {
        HASH: pa.array(hashes.view(np.int64)),
        TIME: pa.array(times),
        "v": pa.array(rng.integers(0, 1000, n_rows)),
    }
    return sort_rows(pa.table(columns))


def _aggregation() -> Aggregation:
    whole = pa.int64()
    columns = (
        AggregateColumn("n", "count", None, None, whole),
        AggregateColumn("s", "sum", 0, "v", whole),
        AggregateColumn("lo", "min", 0, "v", whole),
        AggregateColumn("a", "avg", 1, "v", pa.float64()),
    )
    fields = [pa.field(column.name, column.type) for column in columns]
    schema = pa.schema([*fields, (EPOCH, whole), (WATERMARK, pa.timestamp("us", tz="UTC"))])
    window_us = WINDOW_S * 1_000_000
    inputs = (
        AggregateInput(0, window_us, None, (Measure("v", whole, summed=True, least=True),)),
        AggregateInput(1, window_us, None, (Measure("v", whole, summed=True),)),
    )
    return Aggregation("bench", inputs, 0, (), False, columns, schema)


@dataclass
class _State:
    """Two slots of keys and the slot of the only group, with their summaries in memory."""

    aggregation: Aggregation = field(default_factory=_aggregation)
    kept: dict[Any, list[Summary]] = field(default_factory=lambda: defaultdict(list))
    watermark: int | None = None

    def run(self, epoch: int, arrived: Mapping[str, Rows], cpu: dict[str, list[float]]) -> dict[str, Any]:
        """One epoch; adds its CPU seconds to `cpu`."""
        before = self.watermark
        self.watermark = min(int(rows.times.max()) for rows in arrived.values())
        clock = Clock(epoch, before, self.watermark)
        started = time.process_time()
        changes, leases = [], []
        for slot in range(2):
            new = [_half(rows, slot) for rows in arrived.values()]
            stored = [self.kept[slot, place] for place in range(2)]
            step = KeyAggregator(self.aggregation).step(new, stored, clock)
            for place, summary in enumerate(step.kept):
                self.kept[slot, place] += [summary] if summary is not None else []
            changes += [step.totals] if step.totals is not None else []
            leases += [step.leases] if step.leases is not None else []
        keyed = time.process_time()
        group = GroupAggregator(self.aggregation, emits_always=True)
        made = group.step(_sent(changes), _sent(leases), self.kept["totals"], self.kept["leases"], clock)
        for name, summary in (("totals", made.totals), ("leases", made.leases)):
            self.kept[name] += [summary] if summary is not None else []
        grouped = time.process_time()
        self._compact()
        for stage, seconds in (
            ("keys", keyed - started),
            ("groups", grouped - keyed),
            ("compaction", time.process_time() - grouped),
        ):
            cpu[stage].append(seconds)
        return dict(made.results.to_pylist()[0])

    def _compact(self) -> None:
        for store, summaries in self.kept.items():
            window_us = {"totals": None, "leases": 0}.get(store, WINDOW_S * 1_000_000)
            alive = alive_from(self.watermark, window_us)
            live = [s for s in summaries if s.numbers(TIME)[s.numbers(ORDER)[-1]] >= alive]
            for begin in range(len(live) - _FAN + 1):
                chosen = live[begin : begin + _FAN]
                if max(map(len, chosen)) <= 2 * min(map(len, chosen)):
                    merged = merge_summaries(chosen, alive)
                    live[begin : begin + _FAN] = [merged] if merged is not None else []
                    break
            self.kept[store] = live


def _half(rows: Rows, slot: int) -> Rows:
    cut = int(np.searchsorted(rows.hashes, np.uint64(_HALF)))
    return Rows(rows.table.slice(cut) if slot else rows.table.slice(0, cut))


def _sent(summaries: list[Summary]) -> list[pa.Table]:
    return [summary.table.drop_columns([RUN, ORDER]) for summary in summaries]


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", type=Path, metavar="FOLDER", help="run on local Spark, with data in this folder")
    chosen = parser.parse_args()
    if chosen.spark:
        print(json.dumps(on_spark(chosen.spark), default=str))
        return
    measured = {name: in_process(keys) for name, keys in KEYS.items()}
    ratio = round(measured["hot"]["epoch_s"] / measured["uniform"]["epoch_s"], 3)
    print(json.dumps({"how": "in process", **measured, "ratio": ratio}, default=str))


if __name__ == "__main__":
    main()
