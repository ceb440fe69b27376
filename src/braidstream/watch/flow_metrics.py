"""Counters and gauges of flows for Prometheus, under names that stay (docs/dashboard.md lists them).

They are fed with what `spark.listening` makes of `handle.progress`, of joins and of functions.
Counters count from when somebody began to listen, as Prometheus expects. Nothing has a label a slot or a key: there may
be thousands. Cost: O(streams + queries) an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["FlowMetrics", "Measured", "names"]

_FLOW = ("flow",)
_COUNTERS = {
    "epochs": ("Epochs that were committed", _FLOW),
    "rows": ("Rows read", ("flow", "stream")),
    "late_rows": ("Rows that came after the watermark", ("flow", "stream")),
    "matches": ("Results", ("flow", "query")),
    "exchanged_bytes": ("Bytes that reached the slots", _FLOW),
    "decisions": ("Decisions", ("flow", "rule", "outcome")),
    "warnings": ("Warnings", _FLOW),
}
_GAUGES = {
    "epoch": ("The last committed epoch", _FLOW),
    "running": ("1 while the flow runs", _FLOW),
    "phase_seconds": ("Time of a phase of the last epoch", ("flow", "phase")),
    "watermark_timestamp_seconds": ("The watermark, in seconds since 1970", _FLOW),
    "state_rows": ("Rows of the state", _FLOW),
    "state_bytes": ("Bytes of the state", ("flow", "kind")),
    "fullest_slot_bytes": ("Active bytes of the slot with the most", _FLOW),
    "slots": ("Slots", _FLOW),
    "groups": ("Groups", _FLOW),
    "pushed_groups": ("Groups with state that waits for clean-up", _FLOW),
    "heavy_keys": ("Keys that have a grid", _FLOW),
    "imbalance": ("Largest over mean of the slots", ("flow", "of")),
    "completeness": ("How complete all answers are where tuples are shed", ("flow", "query", "bound")),
    "worker_peak_bytes": ("The largest memory that a worker process has had", _FLOW),
}
_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_PREFIX = "braidstream"


@dataclass(frozen=True)
class Measured:
    """What is counted of an epoch."""

    is_epoch: bool
    """False: a step of a clean-up."""
    seconds: Mapping[str, float]
    rows: Mapping[str, int]
    late: Mapping[str, int]
    matches: Mapping[str, int]
    gauges: Mapping[str, float | None]
    """By the name of a gauge without further labels; what is not known is None."""
    warnings: int = 0
    exchanged_bytes: int = 0
    state_bytes: Mapping[str, float] = field(default_factory=dict)
    imbalance: Mapping[str, float] = field(default_factory=dict)
    completeness: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By query and bound."""


class FlowMetrics:
    """The metrics of flows in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        more: dict[str, Any] = {"namespace": _PREFIX, "registry": self.registry}
        self._counters = {name: Counter(name, told, labels, **more) for name, (told, labels) in _COUNTERS.items()}
        self._gauges = {name: Gauge(name, told, labels, **more) for name, (told, labels) in _GAUGES.items()}
        self._epochs = Histogram("epoch_seconds", "Time of an epoch", _FLOW, buckets=_BUCKETS, **more)

    def running(self, flow: str, *, is_running: bool) -> None:
        """A flow was started, or has ended."""
        self._set("running", flow, value=float(is_running))

    def epoch(self, flow: str, entry: Measured) -> None:
        """An epoch was committed."""
        self._counters["epochs"].labels(flow).inc(entry.is_epoch)
        self._epochs.labels(flow).observe(entry.seconds.get("total", 0.0))
        self._count("rows", flow, entry.rows)
        self._count("late_rows", flow, entry.late)
        self._count("matches", flow, entry.matches)
        self._counters["exchanged_bytes"].labels(flow).inc(entry.exchanged_bytes)
        self._counters["warnings"].labels(flow).inc(entry.warnings)
        for phase, seconds in entry.seconds.items():
            self._set("phase_seconds", flow, phase, value=seconds)
        for name, value in entry.gauges.items():
            if value is not None:
                self._set(name, flow, value=value)
        for name, by in (("state_bytes", entry.state_bytes), ("imbalance", entry.imbalance)):
            for label, amount in by.items():
                self._set(name, flow, label, value=amount)
        for (query, bound), share in entry.completeness.items():
            self._set("completeness", flow, query, bound, value=share)

    def decided(self, flow: str, rule: str, *, is_refused: bool) -> None:
        """A decision was made."""
        self._counters["decisions"].labels(flow, rule, "refused" if is_refused else "done").inc()

    def _set(self, name: str, *labels: str, value: float) -> None:
        self._gauges[name].labels(*labels).set(value)

    def _count(self, name: str, flow: str, counts: Mapping[str, int]) -> None:
        for of, n in counts.items():
            self._counters[name].labels(flow, of).inc(n)


def names() -> dict[str, str]:
    """Every metric as Prometheus shows it, with what it is: for the documentation and its test."""
    counters = {f"{_PREFIX}_{name}_total": told for name, (told, _) in _COUNTERS.items()}
    gauges = {f"{_PREFIX}_{name}": told for name, (told, _) in _GAUGES.items()}
    return {**counters, **gauges, f"{_PREFIX}_epoch_seconds": "Time of an epoch"}
