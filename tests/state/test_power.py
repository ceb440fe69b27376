"""A machine loses power at any step of an epoch, and whatever was not synced is lost or torn: the answer is exact."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from braidstream.control.overflow import Overflow
from braidstream.errors import DamagedState
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.lab.testing.power import PowerDisk
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.verifying import verify
from tests.scale import examples
from tests.state.damage import SCHEMA, N, epoch_of

EPOCHS = 4


class OutageError(BaseException):
    """Nobody catches it on its way out."""


def flow_in(folder: Path, *, durable: bool = True) -> Harness:
    inputs = {"q": [Indexed(name, name, ("k",), 2 * N) for name in "RS"]}
    schemas, overflow = dict.fromkeys("RS", SCHEMA), Overflow(6_000)
    return Harness(folder, schemas, inputs, slots=2, keep=2, overflow=overflow, leased=True, durable=durable)


def results(flow: Harness) -> list[tuple[Any, ...]]:
    return sorted(tuple(sorted((name, str(value)) for name, value in row.items())) for row in flow.results("q"))


def to_the_end(flow: Harness) -> list[tuple[Any, ...]]:
    for number in range(flow.manifest.epoch + 1, EPOCHS):
        flow.epoch(epoch_of(number))
    flow.finish()
    return results(flow)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    return to_the_end(flow_in(tmp_path_factory.mktemp("whole"), durable=False))


def steps_of(folder: Path) -> int:
    """How many steps the epochs after the first one take."""
    folder.mkdir()
    flow = flow_in(folder / "flow")
    flow.epoch(epoch_of(0))
    watched = PowerDisk(folder / "flow")
    with watched.watched():
        to_the_end(flow)
    return watched.steps


def outage(folder: Path, seed: int, n_steps: int, *, durable: bool) -> Harness:
    """Epochs until the power fails at a random step; the same flow on what is left, not started."""
    rng = random.Random(seed)
    fatal = rng.randrange(1, n_steps + 1)
    folder.mkdir()
    flow = flow_in(folder / "flow", durable=durable)
    flow.epoch(epoch_of(0))

    def fails(step: int) -> None:
        if step == fatal:
            raise OutageError

    watched = PowerDisk(folder / "flow", fails)
    with suppress(OutageError), watched.watched():
        to_the_end(flow)
    watched.lose_power(rng, folder / "left")
    other = copy.copy(flow)
    other.folder, other._root, other._out = folder / "left", str(folder / "left" / "ck"), str(folder / "left")
    return other


def test_after_a_power_failure_at_any_step_the_answer_is_exact(tmp_path: Path, expected: list[Any]) -> None:
    n_steps = steps_of(tmp_path / "steps")
    assert n_steps > 50
    for seed in range(examples(40)):
        flow = outage(tmp_path / f"{seed}", seed, n_steps, durable=True)
        flow.restart()
        log = str(flow.folder / "ck" / "offsets")  # which this engine does not write
        assert [one for one in verify(Checkpoint(flow._root)).damaged if one.path != log] == [], f"seed {seed}"
        assert to_the_end(flow) == expected, f"seed {seed}"


@pytest.mark.acceptance
def test_after_a_thousand_power_failures(tmp_path: Path, expected: list[Any]) -> None:
    n_steps = steps_of(tmp_path / "steps")
    for seed in range(1000, 2000):
        flow = outage(tmp_path / f"{seed}", seed, n_steps, durable=True)
        flow.restart()
        assert to_the_end(flow) == expected, f"seed {seed}"


def test_with_durability_process_state_that_was_lost_is_named(tmp_path: Path) -> None:
    """Nobody has waited for the disk: segments may be torn, and then they are refused. The layer does lose things."""
    n_steps, refused = steps_of(tmp_path / "steps"), 0
    for seed in range(12):
        flow = outage(tmp_path / f"{seed}", seed, n_steps, durable=False)
        try:
            flow.restart()
            to_the_end(flow)
        except DamagedState:
            refused += 1
    assert refused
