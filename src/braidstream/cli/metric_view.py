"""`--metrics`: counters and gauges of a run, served for Prometheus while it lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from braidstream.errors import InputError
from braidstream.packages import need

if TYPE_CHECKING:
    from braidstream.cli.follow import Run
    from braidstream.epoch.progress import EpochProgress
    from braidstream.model.instructions import Decision
    from braidstream.watch.flow_metrics import FlowMetrics

__all__ = ["MetricView", "serving"]

_LOOPBACK = "127.0.0.1"


class MetricView:
    """Counts what a view is told."""

    def __init__(self, flow: str, metrics: FlowMetrics) -> None:
        self._flow, self._metrics = flow, metrics

    def phase(self, text: str) -> None:
        """Nothing to count."""

    def begin(self, run: Run) -> None:
        """The flow runs."""
        self._metrics.running(self._flow, is_running=True)

    def epoch(self, entry: EpochProgress) -> None:
        """Count the epoch."""
        from braidstream.spark.listening import measured  # noqa: PLC0415  (slow to import)

        self._metrics.epoch(self._flow, measured(entry))

    def decision(self, decision: Decision) -> None:
        """Count the decision."""
        self._metrics.decided(self._flow, decision.rule, is_refused=bool(decision.refusal))

    def note(self, text: str) -> None:
        """Nothing to count."""

    def end(self, run: Run) -> None:
        """The flow has ended."""
        self._metrics.running(self._flow, is_running=False)

    def close(self) -> None:
        """Nothing to leave."""


@contextmanager
def serving(flow: str, where: str | None, say: Callable[[str], None]) -> Iterator[Sequence[Any]]:
    """Serve metrics at a port of this machine, or at HOST:PORT; gives the view that feeds them."""
    if where is None:
        yield ()
        return
    need("metrics", "prometheus_client", "--metrics")
    from prometheus_client import start_http_server  # noqa: PLC0415

    from braidstream.watch.flow_metrics import FlowMetrics  # noqa: PLC0415

    host, port = _place(where)
    metrics = FlowMetrics()
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        wrong = f"metrics cannot be served at {host}:{port}: {error.strerror or error}"
        raise InputError(wrong, "a port that is free", "another --metrics") from None
    say(f"metrics at http://{host}:{server.server_port}/metrics")
    try:
        yield (MetricView(flow, metrics),)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _place(where: str) -> tuple[str, int]:
    host, _, port = where.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"--metrics {where}", "a port, or HOST:PORT", "--metrics 9100, or --metrics 0.0.0.0:9100")
    return host or _LOOPBACK, int(port)
