"""A machine loses power at any step of an epoch, and whatever was not synced is lost or torn: the answer is exact."""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from braidstream.control.overflow import Overflow
from braidstream.errors import DamagedState
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.lab.testing.power import PowerDisk
from braidstream.state import lease as leases
from braidstream.state.begun_rollback import begun_rollback
from braidstream.state.checkpoint import IDENTITY, Checkpoint
from braidstream.state.files import Files
from braidstream.state.identity import FORMAT, upgrade
from braidstream.state.rolling_back import plan_rollback, roll_back
from braidstream.state.verifying import verify
from tests.scale import examples
from tests.state import damage
from tests.state.damage import SCHEMA, N, epoch_of
from tests.state.test_rollback import noted

EPOCHS = 4


class OutageError(BaseException):
    """Nobody catches it on its way out."""


def flow_in(folder: Path, *, durable: bool = True) -> Harness:
    inputs = {"q": [Indexed(name, name, ("k",), 2 * N) for name in "RS"]}
    schemas, overflow = dict.fromkeys("RS", SCHEMA), Overflow(6_000)
    return Harness(folder, schemas, inputs, slots=2, keep=2, overflow=overflow, leased=True, durable=durable)


def flow_again(folder: Path) -> Harness:
    """The same flow on a checkpoint that is there."""
    made = flow_in(folder.with_name("other"), durable=True)
    made.folder, made._root, made._out = folder, str(folder / "ck"), str(folder)
    made.restart()
    return made


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


def failing(disk: list[PowerDisk], folder: Path, fatal: int) -> PowerDisk:
    """A disk whose power fails at a step, if there is such a one."""

    def fails(step: int) -> None:
        if step == fatal:
            raise OutageError

    disk.append(PowerDisk(folder, fails))
    return disk[-1]


def replaced_by_what_is_left(disk: PowerDisk, rng: random.Random) -> None:
    """Under the old name: manifests name folders of results."""
    left = disk.folder.with_name("left")
    disk.lose_power(rng, left)
    disk.folder.rename(disk.folder.with_name("before"))
    left.rename(disk.folder)


def rolled_back(flow: Harness, epoch: int) -> None:
    checkpoint = Checkpoint(flow._root, 3, durable=True)
    checkpoint.take(ttl_s=0.0)
    roll_back(checkpoint, plan_rollback(checkpoint, epoch), flow._identity.flow)
    checkpoint.release()


def rollback_outage(folder: Path, seed: int, fatal: int) -> tuple[Harness, int, bool]:
    """A rollback whose power fails; the flow as it is then, the steps that there were, and whether it was begun."""
    flow, disks = noted(damage.flow_in(folder / "flow")), list[PowerDisk]()
    flow.runner.checkpoint.release()
    with suppress(OutageError), failing(disks, folder / "flow", fatal).watched():
        rolled_back(flow, damage.BEFORE - 3)
    replaced_by_what_is_left(disks[0], random.Random(seed))
    return flow, disks[0].steps, begun_rollback(Files(flow._root)) is not None


def test_after_a_power_failure_in_a_rollback_it_is_done_again_or_was_never_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_TTL_S", 0.0)
    expected = damage.finished(damage.flow_in(tmp_path / "whole"))
    _, n_steps, _ = rollback_outage(tmp_path / "steps", 0, -1)
    assert n_steps > 20
    n_begun, n_trials = 0, examples(40)
    for seed in range(n_trials):
        fatal = n_steps - seed * n_steps // n_trials
        flow, _, is_begun = rollback_outage(tmp_path / f"{seed}", seed, fatal)
        if is_begun:
            rolled_back(flow, damage.BEFORE - 3)
        damage.start(flow)
        assert damage.finished(flow) == expected, f"seed {seed}, step {fatal}"
        n_begun += is_begun
    assert n_begun > 2


def test_the_intent_of_a_rollback_is_on_the_disk_before_any_result_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power fails when results have gone and all manifests are there: something must say why."""
    monkeypatch.setattr(leases, "_TTL_S", 0.0)
    plain = Files.delete

    def fails(self: Files, name: str) -> None:
        if name.endswith(".root"):
            raise OutageError
        plain(self, name)

    for seed in range(8):
        flow = noted(damage.flow_in(tmp_path / f"{seed}" / "flow"))
        flow.runner.checkpoint.release()
        disk = PowerDisk(tmp_path / f"{seed}" / "flow")
        with pytest.MonkeyPatch.context() as patched, suppress(OutageError), disk.watched():
            patched.setattr(Files, "delete", fails)
            rolled_back(flow, damage.BEFORE - 3)
        replaced_by_what_is_left(disk, random.Random(seed))
        assert begun_rollback(Files(flow._root)) is not None


def test_a_checkpoint_whose_making_the_power_ended_is_made_again(
    tmp_path: Path, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_TTL_S", 0.0)
    fatal, n_made = 0, 0
    while fatal < 60:
        fatal += 1
        folder, disks = tmp_path / f"{fatal}", list[PowerDisk]()
        (folder / "flow").mkdir(parents=True)
        with suppress(OutageError), failing(disks, folder / "flow", fatal).watched():
            flow = flow_in(folder / "flow")
        replaced_by_what_is_left(disks[0], random.Random(fatal))
        if Checkpoint(str(folder / "flow" / "ck")).identity() is None:
            flow = flow_in(folder / "flow")
        else:
            n_made += 1
            flow = flow_again(folder / "flow")
        if fatal % 7 == 1:
            assert to_the_end(flow) == expected, f"step {fatal}"
        if disks[0].steps < fatal:
            break
    assert disks[0].steps < fatal
    assert 0 < n_made < fatal


def upgrade_outage(folder: Path, seed: int, fatal: int) -> int:
    """An upgrade whose power fails: it has its copies, or is none. Gives the steps that there were."""
    flow, disks = damage.flow_in(folder / "flow"), list[PowerDisk]()
    known = Checkpoint(flow._root).identity()
    assert known is not None
    old = json.dumps({"format": 1, **known.__dict__}).encode()
    Path(flow._root, IDENTITY).write_bytes(old)
    there = {path.name: path.read_bytes() for path in Path(flow._root, "manifests").iterdir()}
    with suppress(OutageError), failing(disks, folder / "flow", fatal).watched():
        upgrade(Files(flow._root), ("manifests", "sections"))
    replaced_by_what_is_left(disks[0], random.Random(seed))
    copies = Path(flow._root, f"before-format-{FORMAT}")
    if Path(flow._root, IDENTITY).read_bytes() != old:
        assert Checkpoint(flow._root).identity() == known
        assert (copies / IDENTITY).read_bytes() == old, f"step {fatal}"
        assert {name: (copies / "manifests" / name).read_bytes() for name in there} == there, f"step {fatal}"
    return disks[0].steps


def test_an_upgrade_that_the_power_ends_has_its_copies_or_is_no_upgrade(tmp_path: Path) -> None:
    n_steps = upgrade_outage(tmp_path / "whole", 0, -1)
    assert n_steps > 15
    for seed in range(8, 8 + examples(12)):  # the first with which the disk keeps the new identity
        upgrade_outage(tmp_path / f"{seed}", seed, n_steps + 1 - seed % 2)
