"""Epochs in one process take turns: compiled loops or NumPy's, and stored segments probed as they are or gathered.

So every test that compares epochs with the oracle does it for all four, and for state that one wrote and another reads.
Where `BRAIDSTREAM_KERNELS` names one sort of loops, all epochs have that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from braidstream.kernels import loops
from braidstream.lab.testing.harness import Harness
from braidstream.slot.pools import group_pools

WAYS = (("native", 1), ("numpy", 1 << 40), ("native", 1 << 40), ("numpy", 1))
"""Which loops, and the rows of a segment from which on it is probed as it is."""


@pytest.fixture(autouse=True)
def _all_ways_in_turns() -> Iterator[None]:
    epoch = Harness.epoch

    def in_turn(self: Harness, *arguments: Any, **options: Any) -> None:
        choice, few = WAYS[(self.manifest.epoch + 1) % len(WAYS)]
        few_rows = mock.patch.object(group_pools, "_FEW", few), mock.patch.object(group_pools, "_MANY", 1 << 40)
        with few_rows[0], few_rows[1], loops.only(os.environ.get(loops.VARIABLE) or choice):
            epoch(self, *arguments, **options)

    with mock.patch.object(Harness, "epoch", in_turn):
        yield
