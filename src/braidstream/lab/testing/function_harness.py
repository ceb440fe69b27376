"""Stream functions without Spark: nodes, manifests and sinks in one process, for tests that run by the hundred.

    harness = FunctionHarness(folder, schema, "ts", WindowSpec(256, 100), wd(2, total))
    harness.epoch(table)
    harness.restart()
    harness.results()

All but the engine is the product's own: tasks, steps, commit and sink; `LocalCluster` is in Spark's place. An epoch
that fails is lost as with Spark: `restart` and give it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.functions.arrays import infer_type
from braidstream.functions.function import StreamFunction
from braidstream.functions.function_epoch import FunctionRun
from braidstream.functions.function_plans import first_manifest
from braidstream.functions.function_runner import FunctionRunner
from braidstream.functions.node_tasks import RowReader
from braidstream.functions.nodes import Setup
from braidstream.functions.templates import FunctionPlan, Template
from braidstream.functions.windowing import WindowSpec
from braidstream.lab.testing.harness import LocalCluster, LocalOutlets
from braidstream.spark.sinks import FileSink
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest

__all__ = ["FunctionHarness"]

STREAM, NAME = "s", "f"


class FunctionHarness:
    """Epochs of a function in one process."""

    def __init__(
        self,
        folder: str | Path,
        schema: pa.Schema,
        time: str,
        spec: WindowSpec,
        function: str | StreamFunction | Template,
        *,
        delay_us: int = 0,
        root: str | None = None,
    ) -> None:
        self._out, self._root = Path(folder) / "out", root or str(Path(folder) / "ck")
        self._plan, self._time_type = FunctionPlan.of(function), schema.field(time).type
        self._setup = Setup(STREAM, spec, delay_us, self._plan)
        self._reader = RowReader(infer_type(STREAM, schema, time), time, tuple(schema.names))
        self._identity = Identity.new("harness", {}, {})
        checkpoint = Checkpoint(self._root)
        checkpoint.create(self._identity, first_manifest(self._plan))
        self.runner = self._started(checkpoint)

    @property
    def manifest(self) -> Manifest:
        """The last manifest."""
        return self.runner.manifest

    @property
    def totals(self) -> Mapping[str, int]:
        """Counters since the first epoch."""
        return self.manifest.totals

    def epoch(self, rows: pa.Table) -> None:
        """Run the next epoch."""
        self.runner(rows.to_batches(), self.manifest.epoch + 1)

    def restart(self) -> None:
        """Begin again from what is on disk, as a new process would."""
        checkpoint = Checkpoint(self._root)
        checkpoint.verify(checkpoint.latest())
        self.runner = self._started(checkpoint)

    def results(self) -> list[dict[str, Any]]:
        """All results in the order of the stream, as a reader of the sink's folder sees them."""
        return [row for path in sorted(self._out.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]

    def _started(self, checkpoint: Checkpoint) -> FunctionRunner[list[pa.RecordBatch]]:
        sink = FileSink("parquet", str(self._out), {})
        sink.claim(self._identity.flow, checkpoint.owner)
        sink.sweep()
        checkpoint.sweep()
        run: FunctionRun[list[pa.RecordBatch]] = FunctionRun(
            checkpoint,
            NAME,
            {self._plan.strategy: self._plan},
            self._setup,
            self._reader,
            self._time_type,
            LocalCluster(self._root),
            LocalOutlets(self._root, {NAME: sink}, {}),
        )
        return FunctionRunner(run, checkpoint.latest())
