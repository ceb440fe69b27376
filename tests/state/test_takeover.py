"""Two owners of one checkpoint: the first is stopped before each single thing it does to a file, and wakes up later.

Between two of its steps another takes over, replays what was not committed and goes on. Then the first wakes up. The
steps of one epoch, files of tasks included, are enumerated: it is stopped before every one of them, and once more right
after each look at the lease, so that no step is safe only because a look came before it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braidstream.errors import DamagedState, InputError, LeaseLost
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.lease import Lease
from braidstream.state.rolling_back import plan_rollback, roll_back
from tests.state import damage
from tests.state.test_rollback import noted, rolled

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
STEPS = [(Path, "rename"), (Path, "replace"), (Path, "hardlink_to"), (Path, "unlink")]
STEPS += [(Files, "_beside"), (Files, "move"), (Files, "create"), (Files, "delete"), (Files, "names")]  # type: ignore[list-item]
DISTURBED, LAST = 3, 4


def rows(epoch: int) -> dict[str, pa.Table]:
    """Rows of an epoch, in order but for a few that are late."""
    made = {}
    for seed, name in enumerate("RS"):
        rng = np.random.default_rng([epoch, seed])
        times = np.sort(rng.integers(epoch * 1000, (epoch + 1) * 1000, 40))
        times[rng.integers(0, 40, 2)] -= 5000
        made[name] = pa.table([rng.integers(0, 8, 40), np.arange(40) + 100 * epoch, times], schema=SCHEMA)
    return made


def started(folder: Path) -> Harness:
    joins = {"q": [Indexed(name, name, ("k",), 3000) for name in "RS"]}
    return Harness(folder, dict.fromkeys("RS", SCHEMA), joins, slots=2, groups=4, keep=2, late=True, leased=True)


def catch_up(harness: Harness, until: int) -> None:
    while harness.manifest.epoch < until:
        harness.epoch(rows(harness.manifest.epoch + 1))


def answers(harness: Harness) -> list[list[str]]:
    return [sorted(map(str, found)) for found in (harness.results("q"), harness.late("R"), harness.late("S"))]


def visible(folder: Path) -> dict[str, bytes]:
    """What counts: manifests, what they refer to, results; not what a later start sweeps."""
    store = Checkpoint(str(folder / "ck"))
    latest = store.latest()
    named = [folder / "ck" / name for name in {*latest.own_files(), *latest.shared_files()}]
    seen = [*(folder / "ck" / "manifests").glob("[0-9]*.root"), *named, folder / "ck" / "flow.json"]
    for out in ("out/q", "late/R", "late/S"):
        seen += (folder / out).glob("*.*")
    return {str(path): path.read_bytes() for path in seen}


class Stopper:
    """Lets something happen before the n-th step."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        self.at, self.then, self.steps, self.is_on = at, then, 0, False

    def step(self) -> None:
        if self.is_on:
            self.steps += 1
            if self.steps == self.at:
                self.is_on = False
                self.then()

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._before(getattr(owner, name)))
        check = Lease.check

        def checked(lease: Lease) -> None:
            check(lease)
            self.step()

        monkeypatch.setattr(Lease, "check", checked)

    def _before(self, real: Any) -> Any:
        def stepped(*given: Any, **named: Any) -> Any:
            self.step()
            return real(*given, **named)

        return stepped


def disturbed(folder: Path, at: int, undisturbed: list[list[str]], *, is_fast: bool = True) -> int:
    """Stop the owner before its step `at` of an epoch, and let another start; gives the number of steps it had.

    The other has gone on when the first wakes up, or, if it is not fast, has only swept what it takes for lost.
    """
    harness = started(folder)
    catch_up(harness, DISTURBED - 1)
    old, seen = harness.runner, {}

    def take_over() -> None:
        harness.restart()
        if is_fast:
            catch_up(harness, LAST)
        seen.update(visible(folder))

    with pytest.MonkeyPatch.context() as patched:
        stopper = Stopper(at, take_over)
        stopper.patch(patched)
        stopper.is_on = True
        try:
            harness.epoch(rows(DISTURBED))
        except (LeaseLost, DamagedState, FileNotFoundError):  # its tasks find files gone, its driver no gate
            assert seen, "lost without a successor"
        stopper.is_on = False
    if not seen:
        return stopper.steps
    assert visible(folder) == seen, f"step {at} changed something"
    for number in (DISTURBED, DISTURBED + 1):
        if number > old.manifest.epoch:
            with pytest.raises(LeaseLost):
                old([], number)
    assert visible(folder) == seen, f"an epoch after step {at} changed something"
    catch_up(harness, LAST)
    assert answers(harness) == undisturbed, f"step {at}"
    harness.restart()
    checkpoint = harness.runner.checkpoint
    checkpoint.verify(checkpoint.latest())
    return stopper.steps


def check_steps(tmp_path: Path, every: int, *, is_fast: bool) -> None:
    quiet = started(tmp_path / "quiet")
    catch_up(quiet, LAST)
    undisturbed = answers(quiet)
    assert min(map(len, undisturbed)) > 0
    n_steps = disturbed(tmp_path / "count", -1, undisturbed)
    assert n_steps > 30
    for at in range(1 + is_fast, n_steps + 1, every):
        disturbed(tmp_path / str(at), at, undisturbed, is_fast=is_fast)


@pytest.mark.parametrize("is_fast", [True, False], ids=["the other has gone on", "the other has just begun"])
def test_an_owner_that_wakes_up_after_a_takeover_changes_nothing(tmp_path: Path, is_fast: bool) -> None:
    check_steps(tmp_path, 4, is_fast=is_fast)


@pytest.mark.slow
@pytest.mark.parametrize("is_fast", [True, False], ids=["the other has gone on", "the other has just begun"])
def test_an_owner_is_stopped_before_each_of_its_steps(tmp_path: Path, is_fast: bool) -> None:
    check_steps(tmp_path, 1, is_fast=is_fast)


BACK = damage.BEFORE - 2


def numbers(flow: Harness) -> set[int]:
    """The epochs that results are there of."""
    return {int(path.name.split("-")[2]) for path in (flow.folder / "out" / "q").glob("part-*")}


def rolled_under(flow: Harness, at: int, expected: list[Any]) -> int:
    """Roll back while the flow is stopped before a step of an epoch; gives the number of steps."""
    seen = set[int]()

    def back() -> None:
        rolled(flow, BACK)
        seen.update(numbers(flow))

    with pytest.MonkeyPatch.context() as patched:
        stopper = Stopper(at, back)
        stopper.patch(patched)
        stopper.is_on = True
        try:
            flow.epoch(damage.epoch_of(damage.BEFORE))
        except (LeaseLost, DamagedState, FileNotFoundError):
            assert seen
        stopper.is_on = False
    if not seen:
        return stopper.steps
    assert max(seen) <= BACK
    assert numbers(flow) == seen, f"step {at} has put results there again"
    damage.start(flow)
    assert damage.finished(flow) == expected, f"step {at}"
    return stopper.steps


def rolled_twice(flow: Harness, at: int, expected: list[Any]) -> int:
    """A rollback is stopped before a step; another one is done, and the flow goes on; gives the number of steps."""
    seen = list[dict[str, bytes]]()

    def again() -> None:
        rolled(flow, BACK)
        damage.start(flow)
        assert damage.finished(flow) == expected
        seen.append(visible(flow.folder))

    with pytest.MonkeyPatch.context() as patched:
        stopper = Stopper(at, again)
        checkpoint = Checkpoint(flow._root, 3)
        checkpoint.take(ttl_s=0.0)
        plan = plan_rollback(checkpoint, BACK)
        stopper.patch(patched)
        stopper.is_on = True
        try:
            roll_back(checkpoint, plan, flow._identity.flow)
        except (LeaseLost, InputError, DamagedState):  # the last look is at a log that the other has renamed
            assert seen
        stopper.is_on = False
    if seen:
        assert visible(flow.folder) == seen[0], f"step {at} changed something"
        damage.start(flow)
        assert damage.finished(flow) == expected, f"step {at}"
    return stopper.steps


@pytest.mark.parametrize("act", [rolled_under, rolled_twice])
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_who_is_stopped_while_a_checkpoint_is_rolled_back_changes_nothing(
    tmp_path: Path, act: Callable[[Harness, int, list[Any]], int], every: int
) -> None:
    """Epochs are numbered anew after it: results of the same names may be others."""
    expected = damage.finished(damage.flow_in(tmp_path / "whole"))
    n_steps = act(noted(damage.flow_in(tmp_path / "count" / "flow")), -1, expected)
    assert n_steps > 30
    for at in range(2, n_steps + 1, every):
        act(noted(damage.flow_in(tmp_path / f"{at}" / "flow")), at, expected)
