"""The sinks of a flow's epochs on Spark: files as they are where a sink takes them, else a DataFrame of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from braidstream.epoch.outlets import Outlet
from braidstream.model.reports import StagedFile
from braidstream.model.snapshots import Placed
from braidstream.query import Query
from braidstream.spark.finishing import composite_rows_apart, finish, finish_apart, whole_name
from braidstream.spark.sink import Delivery, Sink
from braidstream.spark.sinks import deliver, staged_frame
from braidstream.state.files import Files
from braidstream.state.foreign_changes import sealed
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
        bad: Mapping[str, Sink] | None = None,
    ) -> None:
        self._bad, self._failed = bad or {}, dict[str, int]()
        self._session, self._root, self._sinks, self._late = session, root, sinks, late or {}
        self._durable = durable

    def staging(self, outlet: Outlet) -> Staging:
        """Where the outlet's sink takes files from."""
        return self._sink(outlet).staging(self._root, outlet.finished)

    def deliver(self, outlet: Outlet, number: int, files: Sequence[StagedFile]) -> Mapping[str, tuple[Placed, ...]]:
        """A sink that can takes the files as they are, others are given a DataFrame of them."""
        sink, staging, query = self._sink(outlet), self.staging(outlet), outlet.query
        names = check_staged(staging.root or self._root, files)

        sums = {one.name: one.checksum for one in files}
        is_apart = query is not None and outlet.name in self._bad and not outlet.finished
        beside: Mapping[str, tuple[Placed, ...]] = {}
        if query is not None and outlet.name in self._bad and (is_apart or outlet.composites is not None):
            beside = self._set_apart(outlet, query, number, names)

        def frame() -> DataFrame:
            raw = self._raw(outlet, names)
            if outlet.finished or query is None:
                return raw
            return finish_apart(query, raw)[0] if is_apart else finish(query, raw)

        deliver(sink, Delivery(outlet.shown, number, names, frame, outlet.finished, sums, self._durable))
        if staging.root is not None:
            sink.end(Files(staging.root), names)
        return sealed({**sink.placed, **beside})

    def failed(self) -> Mapping[str, int]:
        """Joined rows of which an expression failed, since it was last asked."""
        found, self._failed = self._failed, {}
        return found

    def _set_apart(
        self, outlet: Outlet, query: Query, number: int, names: Sequence[str]
    ) -> Mapping[str, tuple[Placed, ...]]:
        """Deliver the joined rows of which an expression fails."""
        made = outlet.composites
        staged = [*names, *([] if made is None else made.names)]

        def bad() -> DataFrame:
            found = [] if outlet.finished else [finish_apart(query, self._raw(outlet, names))[1]]
            if made is not None:
                raw = staged_frame(self._session(), self._root, made.names, made.schema)
                found.append(composite_rows_apart(query, made.plan, raw)[1])
            return reduce(DataFrame.unionByName, found)

        n_failed = bad().count() if staged else 0
        if n_failed:
            name = whole_name(query)
            self._failed[name] = self._failed.get(name, 0) + n_failed
        named = staged if n_failed else ()
        delivery = Delivery(f"bad {outlet.shown}", number, named, bad, finished=False, durable=self._durable)
        deliver(self._bad[outlet.name], delivery)
        return self._bad[outlet.name].placed

    def _raw(self, outlet: Outlet, names: Sequence[str]) -> DataFrame:
        """What slots have staged."""
        return staged_frame(self._session(), self.staging(outlet).root or self._root, names, outlet.schema)

    def _sink(self, outlet: Outlet) -> Sink:
        return self._late[outlet.name] if outlet.is_late else self._sinks[outlet.name]
