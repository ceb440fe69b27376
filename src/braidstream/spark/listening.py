"""Metrics of flows for those who have a `StreamingQueryListener`, and what is measured of an epoch.

    spark.streams.addListener(MetricsListener())          # the default registry of prometheus_client

One listener counts all flows of this process; it is added before they start, since a flow takes the listeners that its
session has then. Spark calls it after each micro-batch, in a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from braidstream.epoch.progress import EpochProgress
from braidstream.functions.function_progress import FunctionProgress
from braidstream.packages import need
from braidstream.spark.handle import Handle, running_handles

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from braidstream.watch.flow_metrics import Measured

__all__ = ["MetricsListener", "measured"]


class MetricsListener(StreamingQueryListener):  # type: ignore[misc]  # PySpark has no types here
    """Counts the epochs of all flows of this process in a registry of Prometheus."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        need("metrics", "prometheus_client", "a listener for metrics")
        from prometheus_client import REGISTRY  # noqa: PLC0415  (an extra)

        from braidstream.watch.flow_metrics import FlowMetrics  # noqa: PLC0415

        super().__init__()
        self.metrics = FlowMetrics(REGISTRY if registry is None else registry)
        self._seen: dict[int, tuple[int, int]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Nothing to count."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Some query has run a batch: count what flows have done since."""
        del event
        for handle in running_handles():
            self._count(handle)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Nothing to count."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Some query has ended: count the last epochs of its flow, of which nothing else may tell."""
        self.onQueryProgress(event)
        for handle in running_handles():
            self.metrics.running(handle.name, is_running=handle.is_running and handle.is_active)

    def _count(self, handle: Handle[Any]) -> None:
        flow, last = handle.name, self._seen.get(id(handle), (-1, 0))
        self.metrics.running(flow, is_running=handle.is_running)
        for entry in handle.progress:
            if (entry.epoch, entry.step) > last:
                self.metrics.epoch(flow, measured(entry))
                for one in (one for one in handle.decisions if one.epoch == entry.epoch and not entry.step):
                    self.metrics.decided(flow, one.rule, is_refused=bool(one.refusal))
                self._seen[id(handle)] = (entry.epoch, entry.step)


def measured(entry: EpochProgress | FunctionProgress) -> Measured:
    """What is counted of an epoch."""
    from braidstream.watch.flow_metrics import Measured  # noqa: PLC0415  (an extra)

    watermark = None if entry.watermark is None else entry.watermark / 1e6
    common = {"epoch": entry.epoch, "watermark_timestamp_seconds": watermark}
    if isinstance(entry, FunctionProgress):
        results, size = {entry.plan: entry.results}, {"all": float(entry.state_bytes)}
        return Measured(
            True, entry.seconds, entry.rows, entry.late, results, common, len(entry.warnings), state_bytes=size
        )
    bounds = {(q, name): one for q, of in entry.completeness_so_far.items() for name, one in vars(of).items()}
    return Measured(
        entry.step == 0,
        entry.seconds,
        entry.rows,
        entry.late,
        entry.matches,
        {
            **common,
            "state_rows": entry.state_rows,
            "fullest_slot_bytes": max(entry.slot_bytes, default=None),
            "slots": entry.slots,
            "groups": entry.groups,
            "pushed_groups": entry.spilled_groups,
            "heavy_keys": len(entry.heavy),
            "worker_peak_bytes": entry.peak_mb * (1 << 20),
        },
        len(entry.warnings),
        entry.exchanged_bytes,
        {"all": entry.state_bytes, "active": entry.active_bytes, "pushed": entry.inactive_bytes},
        entry.balance,
        bounds,
    )
