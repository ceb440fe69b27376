"""The sinks of a flow's epochs on Spark: files as they are where a sink takes them, else a DataFrame of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from braidstream.epoch.outlets import Outlet
from braidstream.model.reports import StagedFile
from braidstream.model.snapshots import Placed
from braidstream.spark.finishing import finish
from braidstream.spark.sink import Delivery, Sink
from braidstream.spark.sinks import deliver, staged_frame
from braidstream.state.files import Files
from braidstream.state.staging import Staging, check_staged

__all__ = ["SparkOutlets"]


class SparkOutlets:
    """The sinks of queries or of a function, and those of late tuples by stream."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        root: str,
        sinks: Mapping[str, Sink],
        late: Mapping[str, Sink] | None = None,
        *,
        durable: bool = False,
    ) -> None:
        self._session, self._root, self._sinks, self._late = session, root, sinks, late or {}
        self._durable = durable

    def staging(self, outlet: Outlet) -> Staging:
        """Where the outlet's sink takes files from."""
        return self._sink(outlet).staging(self._root, outlet.finished)

    def deliver(self, outlet: Outlet, number: int, files: Sequence[StagedFile]) -> Mapping[str, tuple[Placed, ...]]:
        """A sink that can takes the files as they are, others are given a DataFrame of them."""
        sink, staging, query = self._sink(outlet), self.staging(outlet), outlet.query
        names = check_staged(staging.root or self._root, files)

        def frame() -> DataFrame:
            raw = staged_frame(self._session(), staging.root or self._root, names, outlet.schema)
            return raw if outlet.finished or query is None else finish(query, raw)

        sums = {one.name: one.checksum for one in files}
        deliver(sink, Delivery(outlet.shown, number, names, frame, outlet.finished, sums, self._durable))
        if staging.root is not None:
            sink.end(Files(staging.root), names)
        return sink.placed

    def _sink(self, outlet: Outlet) -> Sink:
        return self._late[outlet.name] if outlet.is_late else self._sinks[outlet.name]
