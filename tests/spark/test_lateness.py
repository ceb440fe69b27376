"""What is said of late rows: which share they are, and the delay that they needed, counted once whatever dies."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from braidstream.epoch.lateness import Lateness, late_in_all, warning
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.faults import InjectedFault, armed

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64())])


def some_tables(random: Random, n: int = 6) -> list[dict[str, pa.Table]]:
    """Times that wander forwards, with stragglers and rows without a time."""
    made = []
    for epoch in range(n):
        rows = {}
        for name in "RS":
            steps = [random.choice([5, 5, 5, 9, -20, None]) if epoch else 5 for _ in range(40)]
            times = [None if step is None else (epoch * 10 + step) * SECOND for step in steps]
            rows[name] = pa.table([pa.array([1] * 40), pa.array(times)], schema=SCHEMA)
        made.append(rows)
    return made


def a_harness(folder: Path, delays_us: dict[str, int]) -> Harness:
    joins = {"q": [Indexed("R", "R", ("k",), 5 * SECOND), Indexed("S", "S", ("k",), 5 * SECOND)]}
    return Harness(folder, dict.fromkeys("RS", SCHEMA), joins, delays_us=delays_us)


@pytest.mark.parametrize("point", [None, "after-results:3:raise", "before-manifest:4:raise", "after-manifest:2:raise"])
def test_the_delay_that_is_asked_for_lets_every_row_in(tmp_path: Path, point: str | None) -> None:
    tables = some_tables(Random(str(point)))
    harness = a_harness(tmp_path / "a", {"R": SECOND, "S": 0})
    for i, epoch in enumerate(tables):
        if point is not None and f":{i}:" in point:
            with armed(point), pytest.raises(InjectedFault):
                harness.epoch(epoch)
            harness.restart()
        if harness.manifest.epoch < i:
            harness.epoch(epoch)
    found = late_in_all(harness.manifest)
    for name, one in found.items():
        untimed = sum(epoch[name]["ts"].null_count for epoch in tables)
        assert (one.rows, one.untimed) == (240, untimed)
        assert one.late > one.untimed > 0
        assert f"{untimed} of them have no time" in warning(name, one, "all epochs")
    again = a_harness(tmp_path / "b", {name: one.needed_us for name, one in found.items()})
    for epoch in tables:
        again.epoch(epoch)
    assert all(one.late == one.untimed for one in late_in_all(again.manifest).values())
    assert harness.manifest.notes.lateness.keys() == {"R", "S"}


@pytest.mark.parametrize(
    ("of", "ends"),
    [
        (Lateness(1000, 20, 0, 3_200_000), 'delay = "4 seconds" or more, and start with a new checkpoint'),
        (Lateness(1000, 20, 0, 725 * SECOND), 'delay = "13 minutes" or more, and start with a new checkpoint'),
        (Lateness(1000, 20, 20), "(20 of 1,000); 20 of them have no time"),
        (Lateness(1000, 20), "give the stream a longer delay, and start with a new checkpoint"),
    ],
)
def test_the_warning_ends_with_the_remedy(of: Lateness, ends: str) -> None:
    said = warning("R", of, "epoch 7")
    assert said.startswith("stream R: 2.0% of the rows of epoch 7 were late")
    assert said.endswith(ends)
