"""A table that has results of epochs which the checkpoint knows nothing of any more is refused, whoever is in between.

Real tables are in tests/world/test_rolled_back_tables.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from braidstream.errors import SinkError
from braidstream.spark.bad_rows import BadRows, FailedRows, GoodRows
from braidstream.spark.delta_sink import DeltaSink
from braidstream.spark.iceberg_sink import IcebergSink
from braidstream.spark.late import SeveralSinks
from braidstream.spark.sink import Delivery, Mark, Reached, Sink
from braidstream.spark.starting import refuse_later
from braidstream.state.checkpoint import Checkpoint
from tests.state.damage import BEFORE, flow_in, spark_logs

FLOW = "0f"


class Table(Sink):
    """Knows the last number of some marks."""

    description = "a table"

    def __init__(self, **taken: int) -> None:
        self.taken = taken

    def refuse_later(self, flow: str, outlet: str, reached: Reached) -> None:
        for first in (0, -1):
            mark = Mark(flow, outlet, first)
            reached.refuse_later("the table", mark, self.taken.get(f"{outlet} {mark.kind}".replace(" ", "_")), "fix")

    def deliver(self, delivery: Delivery) -> None:
        raise AssertionError


def test_an_epoch_that_was_begun_may_be_there_and_no_later_one(tmp_path: Path) -> None:
    flow = flow_in(tmp_path)
    checkpoint, last = Checkpoint(flow._root), flow.manifest
    assert last.epoch == BEFORE - 1
    refuse_later(FLOW, checkpoint, last, [("q", Table(q_epoch=last.epoch, q_step=1))])
    with pytest.raises(SinkError, match=f"up to epoch {BEFORE}, the checkpoint is at epoch {BEFORE - 1}"):
        refuse_later(FLOW, checkpoint, last, [("q", Table(q_epoch=BEFORE))])
    with pytest.raises(SinkError, match="up to step 2, the checkpoint is at step 1"):
        refuse_later(FLOW, checkpoint, last, [("q", Table(q_step=2))])
    spark_logs(tmp_path / "ck" / "offsets", BEFORE)
    refuse_later(FLOW, checkpoint, last, [("q", Table(q_epoch=BEFORE))])
    with pytest.raises(SinkError, match=f"up to epoch {BEFORE + 1}"):
        refuse_later(FLOW, checkpoint, last, [("p", Table()), ("q", Table(q_epoch=BEFORE + 1))])


@pytest.mark.parametrize(
    ("wrapped", "outlet", "known"),
    [
        (lambda one: one, "q", "q_epoch"),
        (GoodRows, "late R", "late_R_epoch"),
        (lambda one: BadRows(one, "R"), "late R'", "late_R_epoch"),
        (lambda one: FailedRows(one, "q"), "late R", "late_R_of_q_epoch"),
        (lambda one: SeveralSinks([Table(), FailedRows(one, "q")]), "late R", "late_R_of_q_epoch"),
    ],
    ids=["itself", "good rows", "rows that cannot be read", "rows that fail", "one of several"],
)
def test_a_table_is_asked_by_the_names_that_it_knows(wrapped: Any, outlet: str, known: str) -> None:
    with pytest.raises(SinkError, match="up to epoch 3"):
        wrapped(Table(**{known: 3})).refuse_later(FLOW, outlet, Reached(2, 0))
    wrapped(Table(**{known: 3})).refuse_later(FLOW, outlet, Reached(3, 0))


def test_delta_is_asked_for_its_own_mark_and_for_that_of_sparks_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink.__new__(DeltaSink)
    versions = dict[str, int]()
    sink.path = "/pairs"
    sink._delta = SimpleNamespace(DeltaTable=SimpleNamespace(is_deltatable=lambda _: True))
    monkeypatch.setattr(DeltaSink, "_table", lambda _: SimpleNamespace(transaction_version=versions.get))
    sink.refuse_later(FLOW, "q", Reached(4, 1))
    for writer, kind in ((f"{FLOW}/q", "epoch"), (FLOW, "epoch"), (f"{FLOW}/q/clean-up", "step")):
        versions[writer] = 5
        with pytest.raises(SinkError, match=f"the Delta table '/pairs' has results of 'q' up to {kind} 5") as refused:
            sink.refuse_later(FLOW, "q", Reached(4, 1))
        assert "send the query to the copy" in refused.value.fix
        sink.refuse_later(FLOW, "q", Reached(5, 5))
        versions.clear()


def test_iceberg_is_asked_for_its_property_and_says_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = IcebergSink.__new__(IcebergSink)
    sink._name, sink.options = "results.pairs", {"catalog": "c"}
    table = SimpleNamespace(properties={f"braidstream.{FLOW}.q.epoch": "5"})
    monkeypatch.setattr(IcebergSink, "_found", lambda _: table)
    sink.refuse_later(FLOW, "q", Reached(5, 0))
    sink.refuse_later(FLOW, "p", Reached(4, 0))
    with pytest.raises(SinkError, match=r"Iceberg table results\.pairs has results of 'q' up to epoch 5") as refused:
        sink.refuse_later(FLOW, "q", Reached(4, 0))
    assert f"set its property braidstream.{FLOW}.q.epoch to 4" in refused.value.fix
