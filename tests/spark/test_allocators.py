"""Freed memory goes back to the system, when a worker has much of it; no Spark is needed for that."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json, sys
import numpy as np, pyarrow as pa
from braidstream.slot.allocators import anonymous_bytes, give_back

def some(i):
    return pa.table({"a": pa.array(np.random.default_rng(i).integers(0, 9, 20_000)).cast(pa.string())})

some(0)  # libraries load parts of themselves when they are first used
give_back(1)
start = anonymous_bytes()
tables = [some(i) for i in range(200)]
most = anonymous_bytes()
kept = tables[7]
del tables
given = give_back(int(sys.argv[1]))
sizes = {"start": start, "most": most, "end": anonymous_bytes()}
print(json.dumps({**sizes, "given": given, "kept": kept.equals(some(7))}))
"""


def run(piece_bytes: int) -> dict[str, Any]:
    """In a process of its own: what this one has is not known."""
    command = [sys.executable, "-c", PROGRAM, str(piece_bytes)]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_much_that_is_free_is_given_back_and_little_is_kept() -> None:
    short = run(1 << 10)
    assert short["given"]
    assert short["most"] - short["start"] > 15 << 20
    assert short["end"] - short["start"] < (short["most"] - short["start"]) / 2
    assert short["kept"]
    ample = run(1 << 30)
    assert not ample["given"]


SPARED = """
import gc
from braidstream.slot.allocators import spare_what_stays
from braidstream.slot import task
spare_what_stays("slot")
first = gc.get_freeze_count()
own = [[] for _ in range(1000)]
spare_what_stays("slot")
assert gc.get_freeze_count() <= first
loop = []; loop.append(loop); del loop
assert gc.collect() == 1
print(first)
"""


def test_what_modules_have_brought_is_spared_once_and_what_comes_later_is_collected() -> None:
    made = subprocess.run([sys.executable, "-c", SPARED], capture_output=True, text=True, check=True)
    assert int(made.stdout) > 10_000
