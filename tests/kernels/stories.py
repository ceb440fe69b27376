"""What happens to a flow of queries, epoch by epoch: crashes, restarts, queries that come and go. For Hypothesis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case
from braidstream.model.faults import POINTS
from braidstream.query.tree import Statistics
from tests.backends import tables
from tests.kernels.test_streams_join import reorganized, with_a_fault

SECOND = 1_000_000
Residual = Callable[[oracle.Composite], bool | None]

STATISTICS = st.builds(
    Statistics, st.fixed_dictionaries({}, optional={name: st.sampled_from([0.01, 1.0, 500.0]) for name in "ABCDE"})
)
"""Random rates: they choose the tree."""


def from_clause(case: Case, windows: Mapping[str, int | None] | None = None) -> str:
    own = windows or {stream.name: stream.window_us for stream in case.streams}
    ranges = {name: "UNBOUNDED" if w is None else f"{w // SECOND} SECONDS" for name, w in own.items()}
    return ", ".join(f"{name} [RANGE {ranges[name]}]" for name in own)


def equal(equalities: Sequence[oracle.Equality]) -> str:
    return " AND ".join(f"{left} = {right}" for left, right in equalities)


def predicates(draw: Any, names: Sequence[str]) -> tuple[str, list[Residual]]:
    """None, one or two predicates: on one stream (a filter), or between two."""
    text, checks = "", []
    for _ in range(draw(st.integers(0, 2), label="predicates")):
        left, right = draw(st.tuples(st.sampled_from(names), st.sampled_from(names)), label="of")
        if left == right:
            text += f" AND {left}.v % 2 = 0"
            checks.append(lambda c, n=left: c[n]["v"] % 2 == 0)
        else:
            text += f" AND {left}.v <= {right}.v + 1"
            checks.append(lambda c, n=left, m=right: c[n]["v"] <= c[m]["v"] + 1)
    return text, checks


def live_through(harness: QueryHarness, case: Case, data: st.DataObject, *, last_words: bool = False) -> None:
    """All epochs, with crashes at any point, and restarts with other slots and groups, in between."""
    slots = st.integers(1, 4)
    epochs = [tables(case, epoch) for epoch in case.epochs]
    if last_words:
        epochs.append(words_of_all(case))
    for number, rows in enumerate(epochs):
        for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]), label="failures")):
            if harness.manifest.epoch < number:
                with_a_fault(harness, data.draw(st.sampled_from(POINTS), label="point"), number, rows)
                harness.restart(data.draw(slots, label="slots"))
        if harness.manifest.epoch < number:
            harness.epoch(rows)
        if data.draw(st.booleans(), label="moves"):
            n_slots = harness.manifest.n_slots
            harness.restart(directory=reorganized(harness.manifest.directory, n_slots, data))


def words_of_all(case: Case) -> dict[str, pa.Table]:
    """A row of each stream that joins with nothing: whoever was silent has spoken."""
    newest = max((row["ts"] for stream in case.streams for row in stream.rows), default=0)
    row = dict.fromkeys(case.schema.names) | {"v": 0, "ts": newest}
    return {stream.name: pa.Table.from_pylist([row], case.schema) for stream in case.streams}


def joined(streams: Sequence[oracle.Stream], equalities: Sequence[oracle.Equality], checks: Sequence[Residual]) -> Any:
    found = oracle.join(streams, equalities, checks)
    return Counter(oracle.project(found, [f"{stream.name}.{c}" for stream in streams for c in ("v", "k")]))


def select(case: Case) -> str:
    names = [stream.name for stream in case.streams]
    return ", ".join(f"{name}.v AS {name}v, {name}.k AS {name}k" for name in names)


def found(harness: QueryHarness, name: str) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in harness.results(name))
