"""Shedding under outer, semi, anti and as-of joins: kept rows go, partners stay, so that nothing put out is wrong.

What is found is a part of what the nested loop finds, no row twice, and the flow says how large a part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.overflow import Overflow
from braidstream.control.shedding import STRATEGIES
from braidstream.epoch.shedder import completeness_of
from braidstream.lab.testing.batch import BatchStream, batch_join_of_kind
from braidstream.lab.testing.queries import QueryHarness
from braidstream.model.faults import POINTS
from braidstream.model.join_kinds import JoinKind
from braidstream.state.generations import held_groups
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_outer_joins_engine import Drawn, Told, closing, harness_of, steady
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_shed_join import is_part
from tests.kernels.test_streams_join import leftovers, often_compacted, with_a_fault
from tests.scale import examples

SECOND = stories.SECOND
KINDS = [kind for kind in JoinKind if kind is not JoinKind.INNER]
QUICK = (JoinKind.LEFT, JoinKind.SEMI)
SOME = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", SOME, ids=lambda k: k.value)
@pytest.mark.parametrize("seed", range(examples(14, least=1)))
def test_what_is_found_is_a_part_of_the_batch_join(kind: JoinKind, seed: int, tmp_path: Any) -> None:
    """After every epoch, beside moves, crashes and starts with other slots; a full join loses nothing."""
    rng = np.random.default_rng([seed, 186])
    case = steady(rng)
    told: Any = Told(case, kind, Drawn(rng))
    budget = Overflow(int(rng.choice([1, 500, 4000])), "shed", shed_by=str(rng.choice(STRATEGIES)))
    controller = restless(seed) if rng.random() < 0.5 else None
    epochs = [*case.epochs, closing(case)]
    with often_compacted():
        harness = harness_of(tmp_path, case, {"q": told.text}, slots=2, overflow=budget, controller=controller)
        for number, epoch in enumerate(epochs):
            rows = tables(case, epoch)
            while harness.manifest.epoch < number and rng.random() < 0.3:
                with_a_fault(harness, str(rng.choice(POINTS)), number, rows)
                harness.restart(int(rng.integers(1, 5)))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            whole = told.expected(epochs[: number + 1])
            assert is_part(stories.found(harness, "q"), whole), told.text
            assert kind is not JoinKind.FULL or stories.found(harness, "q") == whole, told.text
        assert leftovers(harness) == []


@pytest.mark.parametrize("by", ["oldest", *(pytest.param(by, marks=pytest.mark.slow) for by in STRATEGIES[1:])])
@pytest.mark.parametrize(
    "kind", [kind for kind in SOME if JoinKind.FULL not in getattr(kind, "values", ())], ids=lambda k: k.value
)
def test_how_large_a_part_is_said(kind: JoinKind, by: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(187)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    n_epochs, n_rows, n_keys = 8, 600, 900
    streams: dict[str, list[pa.Table]] = {"R": [], "S": []}
    for epoch in range(n_epochs):
        for own in streams.values():
            times = np.sort(rng.choice(3 * n_rows, n_rows, replace=False)) + 3 * n_rows * epoch
            own.append(pa.table([rng.integers(0, n_keys, n_rows), np.arange(n_rows), times * SECOND], schema=schema))
    window = 4000
    batch = [BatchStream(name, pa.concat_tables(own), window * SECOND) for name, own in streams.items()]
    shown = {"rv": "R.v", **({"sv": "S.v"} if len(kind.shown) == 2 else {})}
    select = ", ".join(f"{sql} AS {name}" for name, sql in shown.items())
    text = f"SELECT {select} FROM R [RANGE {window} SECONDS] {kind.words} S [RANGE {window} SECONDS] ON R.k = S.k"
    overflow = Overflow(6_000, "shed", shed_by=by)
    harness = QueryHarness(tmp_path, {"R": schema, "S": schema}, {"q": text}, slots=2, overflow=overflow)
    for number in range(n_epochs):
        harness.epoch({name: own[number] for name, own in streams.items()})
    harness.epoch({n: pa.table([[-1 - i], [-1], [10**6 * SECOND]], schema=schema) for i, n in enumerate(streams)})
    n_whole = batch_join_of_kind(kind.value, (batch[0], batch[1]), [("R.k", "S.k")], shown, []).num_rows
    truth = len(harness.results("q")) / n_whole
    told = completeness_of(harness.manifest)[1]["q"]
    assert told.low <= truth <= told.high, (told, truth)
    assert kind.is_asof or truth < 0.97, "nothing was shed that mattered"


@pytest.mark.parametrize("kind", SOME, ids=lambda k: k.value)
@pytest.mark.parametrize("n_keys", [4, pytest.param(300, marks=pytest.mark.slow)])
def test_what_was_pushed_before_a_start_that_sheds_is_made_up_for_once(
    kind: JoinKind, n_keys: int, tmp_path: Any
) -> None:
    """Nothing is left inactive by the start, not even for want of room: it would be so in some of its stores only."""
    rng = np.random.default_rng([n_keys, 188])
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    epochs = [
        {
            name: pa.table([rng.integers(0, n_keys, 40), np.arange(40), np.sort(times) * SECOND], schema=schema)
            for name, times in zip("RS", rng.integers(40 * n, 40 * n + 40, (2, 40)), strict=True)
        }
        for n in range(8)
    ]
    last = {name: pa.table([[-1 - i], [-1], [10**6 * SECOND]], schema=schema) for i, name in enumerate("RS")}
    select = "R.k AS rk, R.v AS rv" + (", S.v AS sv" if len(kind.shown) == 2 else "")
    text = f"SELECT {select} FROM R [RANGE 90 SECONDS] {kind.words} S [RANGE 90 SECONDS] ON R.k = S.k"
    budget = Overflow(3_000, "spill")
    harness = QueryHarness(tmp_path / "a", {"R": schema, "S": schema}, {"q": text}, slots=2, overflow=budget)
    plain = QueryHarness(tmp_path / "b", {"R": schema, "S": schema}, {"q": text}, slots=2)
    for epoch in epochs[:6]:
        harness.epoch(epoch)
        plain.epoch(epoch)
    assert held_groups(harness.manifest)
    harness.restart(overflow=Overflow(3_000, "shed"))
    assert not held_groups(harness.manifest)
    assert stories.found(harness, "q") == stories.found(plain, "q")
    for epoch in [*epochs[6:], last]:
        harness.epoch(epoch)
        plain.epoch(epoch)
        assert is_part(stories.found(harness, "q"), stories.found(plain, "q"))


def test_what_left_joins_on_top_lose_is_a_part_and_said(tmp_path: Any) -> None:
    """Beside the same flow without a budget: no row that it has not, and a part within the bounds that are said."""
    rng = np.random.default_rng(188)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    n_epochs, n_rows = 6, 400
    text = (
        "SELECT A.v AS av, B.v AS bv, C.v AS cv FROM A [RANGE 2000 SECONDS] JOIN B [RANGE 2000 SECONDS] ON A.k = B.k "
        "LEFT JOIN C [RANGE 2000 SECONDS] ON A.k = C.k"
    )
    budget = Overflow(4_000, "shed", shed_by="oldest")
    running = [
        QueryHarness(tmp_path / name, dict.fromkeys("ABC", schema), {"q": text}, slots=2, **options)
        for name, options in {"whole": {}, "shed": {"overflow": budget}}.items()
    ]
    for epoch in range(n_epochs):
        own = {}
        for name in "ABC":
            times = np.sort(rng.choice(3 * n_rows, n_rows, replace=False)) + 3 * n_rows * epoch
            own[name] = pa.table([rng.integers(0, 700, n_rows), np.arange(n_rows), times * SECOND], schema=schema)
        for harness in running:
            harness.epoch(own)
    for harness in running:
        harness.epoch({n: pa.table([[-1 - i], [-1], [10**6 * SECOND]], schema=schema) for i, n in enumerate("ABC")})
    whole, kept = (stories.found(harness, "q") for harness in running)
    assert is_part(kept, whole)
    truth = kept.total() / whole.total()
    assert truth < 0.97, "nothing was shed that mattered"
    told = completeness_of(running[1].manifest)[1]["q"]
    assert told.low <= truth <= told.high, (told, truth)
