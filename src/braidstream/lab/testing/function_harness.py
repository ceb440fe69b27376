"""Stream functions without Spark: nodes, manifests and sinks in one process, for tests that run by the hundred.

    harness = FunctionHarness(folder, schema, "ts", WindowSpec(256, 100), wd(2, total), then=[(WindowSpec(4), peak)])
    harness.epoch(table)
    harness.restart()
    harness.results()

All but the engine is the product's own: tasks, steps, commit and sink; `LocalCluster` is in Spark's place. An epoch
that fails is lost as with Spark: `restart` and give it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.functions.arrays import infer_type
from braidstream.functions.function import StreamFunction
from braidstream.functions.function_epoch import Applied, FunctionRun
from braidstream.functions.function_plans import first_manifest, with_plans
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
        then: Sequence[tuple[WindowSpec, str | StreamFunction | Template]] = (),
        fields: tuple[str, ...] | None = None,
        delay_us: int = 0,
        root: str | None = None,
    ) -> None:
        """`then` has the functions after the first: the windows of results that each takes, and its template.

        `fields` are those that they see of results.
        """
        self._folder, self._root = Path(folder), root or str(Path(folder) / "ck")
        self._time_type = schema.field(time).type
        self._functions: tuple[Applied, ...] = (_applied(0, STREAM, spec, function, delay_us),)
        for number, (windows, template) in enumerate(then, 1):
            made = _applied(number, self._functions[-1].name, windows, template)
            self._functions += (replace(made, setup=replace(made.setup, fields=fields)),)
        self._reader = RowReader(infer_type(STREAM, schema, time), time, tuple(schema.names))
        self._identity = Identity.new("harness", {}, {})
        checkpoint = Checkpoint(self._root)
        checkpoint.create(self._identity, first_manifest(*(one.setup.plan for one in self._functions)))
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

    def restart(self, *templates: str | StreamFunction | Template) -> bool:
        """Begin again from what is on disk, as a new process would; with other templates, if no windows wait.

        Says whether it has the templates that were asked for.
        """
        checkpoint = Checkpoint(self._root)
        checkpoint.verify(checkpoint.latest())
        if templates:
            plans = [FunctionPlan.of(template) for template in templates]
            changed = with_plans(checkpoint.latest(), *plans)
            if changed is None:
                return False
            pairs = zip(self._functions, plans, strict=True)
            self._functions = tuple(_with_plan(one, plan) for one, plan in pairs)
            checkpoint.commit(changed)
        self.runner = self._started(checkpoint)
        return True

    def results(self, function: int = -1) -> list[dict[str, Any]]:
        """All results of a function (the last one) in the order of the stream, as a reader of its sink sees them."""
        folder = self._out(self._functions[function])
        return [row for path in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]

    def _out(self, function: Applied) -> Path:
        return self._folder / f"out-{function.name}"

    def _started(self, checkpoint: Checkpoint) -> FunctionRunner[list[pa.RecordBatch]]:
        sinks = {one.name: FileSink("parquet", str(self._out(one)), {}) for one in self._functions}
        for sink in sinks.values():
            sink.claim(self._identity.flow, checkpoint.owner)
            sink.sweep()
        checkpoint.sweep()
        run: FunctionRun[list[pa.RecordBatch]] = FunctionRun(
            checkpoint,
            self._functions,
            self._reader,
            self._time_type,
            LocalCluster(self._root),
            LocalOutlets(self._root, sinks, {}),
        )
        return FunctionRunner(run, checkpoint.latest())


def _applied(
    number: int, stream: str, spec: WindowSpec, function: str | StreamFunction | Template, delay_us: int = 0
) -> Applied:
    plan = FunctionPlan.of(function)
    name = NAME if number == 0 else f"{NAME}{number}"
    return Applied(name, Setup(stream, spec, delay_us, plan), {plan.strategy: plan})


def _with_plan(function: Applied, plan: FunctionPlan) -> Applied:
    return replace(function, setup=replace(function.setup, plan=plan), plans={plan.strategy: plan})
