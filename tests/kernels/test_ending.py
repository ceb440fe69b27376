"""The end of a finite flow, `final`: open windows are closed, then the checkpoint; a crash anywhere changes nothing."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.epoch.ending import is_ended, refuse_ended
from braidstream.errors import InputError
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case
from braidstream.model.faults import POINTS, InjectedFault, armed
from braidstream.state.manifest import Manifest
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_queries_engine import ONE_KEY, harness_of, query_of
from tests.kernels.test_spilled_join import SPILLS
from tests.kernels.test_streams_join import QUIET, leftovers, often_compacted
from tests.scale import examples

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
PAIRS = "SELECT A.v AS a, B.v AS b FROM A [RANGE UNBOUNDED], B [RANGE 9 SECONDS] WHERE A.k = B.k"


def rows(*values: int) -> pa.Table:
    return pa.table({"k": [1] * len(values), "v": list(values), "ts": [v * 1_000_000 for v in values]}, schema=SCHEMA)


def ended(folder: Path, slots: int = 2) -> QueryHarness:
    harness = QueryHarness(folder, dict.fromkeys("AB", SCHEMA), {"q": PAIRS}, slots=slots)
    harness.epoch({"A": rows(1, 2), "B": rows(3)})
    harness.finish(final=True)
    return harness


def test_after_the_end_there_is_no_state_and_a_start_is_refused_with_the_reason(tmp_path: Path) -> None:
    harness = ended(tmp_path)
    assert stories.found(harness, "q") == Counter([(1, 3), (2, 3)])
    assert is_ended(harness.manifest)
    assert harness.manifest.segments == ()
    assert list((tmp_path / "ck" / "segments").iterdir()) == []
    assert Manifest.epochs(harness.runner.checkpoint.files) == [harness.manifest.epoch]
    with pytest.raises(InputError, match=r"is closed: the flow ended for good after epoch 1 \(final = true\)"):
        refuse_ended(harness.manifest, "ck")


def test_without_final_nothing_is_closed(tmp_path: Path) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": PAIRS})
    harness.epoch({"A": rows(1), "B": rows(3)})
    harness.finish()
    harness.epoch({"B": rows(4)})
    assert stories.found(harness, "q") == Counter([(1, 3), (1, 4)])
    refuse_ended(harness.manifest, "ck")


def test_a_flow_that_never_read_anything_ends_too(tmp_path: Path) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": PAIRS})
    harness.finish(final=True)
    assert is_ended(harness.manifest)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=QUIET)
@given(ONE_KEY, st.integers(1, 3), st.none() | SPILLS, st.data())
def test_a_crash_at_the_end_is_ended_by_the_next_start_with_any_slots(
    case: Case, slots: int, spills: dict[str, Any] | None, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, slots=slots, **(spills or {}))
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        while not is_ended(harness.manifest):
            point = data.draw(st.sampled_from([*POINTS, "none", "none"]), label="point")
            try:
                with armed(f"{point}:{len(case.epochs)}:raise") if point != "none" else nullcontext():
                    harness.finish(final=True)
            except InjectedFault:
                harness.restart(data.draw(st.integers(1, 3), label="slots"))
        assert stories.found(harness, "q") == expected
        assert harness.manifest.segments == ()
        assert leftovers(harness) == []
