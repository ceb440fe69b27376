"""Two and three owners of one checkpoint at every fault point, with a lease that is damaged or deleted meanwhile.

An owner is stopped where an epoch has a fault point; another takes over, is itself stopped at one, and a third goes on.
Then they wake up, the last one first. Between the stops somebody deletes or damages what the lease consists of. The
answer is that of an undisturbed run, each result once, and the checkpoint is usable.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidstream.errors import CheckpointInUse, DamagedState, LeaseLost
from braidstream.lab.testing.harness import Harness
from braidstream.model import faults
from braidstream.model.faults import DELIVERIES, POINTS
from braidstream.state import lease as leases
from braidstream.state.files import Files
from braidstream.state.lease import Owner, take
from tests.scale import examples
from tests.state.object_stories import check_deleted_lease
from tests.state.test_lease import put
from tests.state.test_takeover import DISTURBED, LAST, answers, catch_up, rows, started, visible

EPOCH_POINTS = [*(point for point in POINTS if not point.startswith(("clean-up", "spill", "compaction"))), *DELIVERIES]
"""What an epoch of this flow reaches."""


def owner_file(folder: Path) -> Path:
    return max((folder / "ck" / "lease").glob("[0-9]*")) / "owner.json"


def overwritten(content: bytes) -> Callable[[Path], None]:
    return lambda folder: void(owner_file(folder).write_bytes(content))


def rewritten(folder: Path, **values: object) -> None:
    known = json.loads(owner_file(folder).read_bytes())
    owner_file(folder).write_text(json.dumps({**known, **values}))


def void(_: object) -> None:
    """Nothing."""


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": void,
    "the owner's file is empty": overwritten(b""),
    "the owner's file is no JSON": overwritten(b"\xff\x00{"),
    "the owner's file is of other types": lambda folder: rewritten(folder, ttl_s="long", at=[1], process="1"),
    "the owner's time to live is no number": lambda folder: rewritten(folder, ttl_s=float("nan")),
    "the owner's file is a list": overwritten(b'["id", "host"]'),
    "the owner's file is gone": lambda folder: owner_file(folder).unlink(),
    "the folder of the term is gone": lambda folder: shutil.rmtree(owner_file(folder).parent),
    "all of the lease is gone": lambda folder: shutil.rmtree(folder / "ck" / "lease"),
}


@contextmanager
def stopped_at(point: str, then: Callable[[], None]) -> Iterator[list[str]]:
    """Once the epoch that is disturbed reaches the point for the first time, something happens."""
    met: list[str] = []

    def visit(_: object, reached: str, epoch: int | None) -> None:
        if reached == point and epoch in (None, DISTURBED) and not met:
            met.append(point)
            then()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(faults, "_fault", faults.Fault(point, DISTURBED, "raise"))
        patched.setattr(faults, "_visit", visit)
        yield met


@cache
def undisturbed() -> list[list[str]]:
    with TemporaryDirectory() as folder:
        quiet = started(Path(folder))
        catch_up(quiet, LAST)
        return answers(quiet)


def woken(harness: Harness) -> bool:
    """Run the epoch that is disturbed; whether this owner still could."""
    try:
        harness.epoch(rows(DISTURBED))
    except (LeaseLost, DamagedState, FileNotFoundError):
        return False
    return True


def play(folder: Path, points: list[str], damage: Callable[[Path], None], *, is_fast: bool) -> int:
    """Owners one in the other, each stopped at its point; gives how many were stopped."""
    harness, owners = started(folder), list[Any]()
    catch_up(harness, DISTURBED - 1)
    n_stopped = 0

    def take_over(left: list[str]) -> None:
        nonlocal n_stopped
        n_stopped += 1
        owners.append(harness.runner)
        damage(folder)
        harness.restart()
        if left and harness.manifest.epoch < DISTURBED:
            stop_in(left)
        elif is_fast:
            catch_up(harness, LAST)

    def stop_in(left: list[str]) -> None:
        with stopped_at(left[0], lambda: take_over(left[1:])) as met:
            went_on = woken(harness)
        assert went_on or met, "lost without a successor"

    stop_in(points)
    before = visible(folder)
    for owner in reversed(owners):
        if owner.manifest.epoch < LAST:
            with pytest.raises(LeaseLost):
                owner([], owner.manifest.epoch + 1)
    assert visible(folder) == before, "one that had lost the checkpoint changed something"
    harness.restart()
    catch_up(harness, LAST)
    assert answers(harness) == undisturbed()
    harness.restart()
    harness.runner.checkpoint.verify(harness.runner.checkpoint.latest())
    return n_stopped


@pytest.fixture(autouse=True)
def _unreadable_leases_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_TTL_S", 0.0)


@settings(max_examples=examples(40, least=5), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(EPOCH_POINTS), min_size=1, max_size=3),
    st.sampled_from(sorted(DAMAGES)),
    st.booleans(),
)
def test_owners_stopped_at_any_fault_points_keep_the_answer_whatever_becomes_of_the_lease(
    points: list[str], damage: str, is_fast: bool
) -> None:
    with TemporaryDirectory() as folder:
        assert play(Path(folder), points, DAMAGES[damage], is_fast=is_fast) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_owner_is_stopped_at_each_fault_point(damage: str) -> None:
    for point in EPOCH_POINTS:
        with TemporaryDirectory() as folder:
            assert play(Path(folder), [point], DAMAGES[damage], is_fast=True) == 1, point


class Clock:
    """The clock of who waits, and what happens elsewhere while it goes. Other threads have the clock that they had."""

    def __init__(self, then: Callable[[float], None]) -> None:
        self.now, self.then = 1000.0, then
        self.plain = time.monotonic, time.sleep
        self.waits = threading.get_ident()

    def monotonic(self) -> float:
        return self.now if threading.get_ident() == self.waits else self.plain[0]()

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self.waits:
            self.plain[1](seconds)
            return
        self.now += seconds
        self.then(self.now)


@settings(max_examples=examples(40, least=5), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.floats(0.35, 3.0),
    st.floats(-1e12, 1e12),
    st.sampled_from([1.0, 7.0, 30.0]),
    st.integers(0, 12),
    st.integers(0, 999),
)
def test_clocks_that_differ_decide_nothing(rate: float, offset: float, ttl_s: float, beats: int, seed: int) -> None:
    """An owner elsewhere, whose clock goes faster or slower and shows anything, renews some times and then is silent.

    Who waits by its own clock never takes the lease while it is renewed, and takes it once it has been silent so long.
    """
    random = Random(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        files, owner = Files(folder), replace(Owner.new(ttl_s), boot="elsewhere", host="other", machine="", at=offset)
        put(Path(folder), 1, owner)
        times = [1000.0 + (i + random.random() / 2) * ttl_s / 6 / rate for i in range(1, beats + 1)]

        def elsewhere(now: float) -> None:
            n = sum(time <= now for time in times)
            then = asdict(replace(owner, beat=n, at=offset + n * ttl_s / 6))
            Path(files.path("lease/0000000001/owner.json")).write_text(json.dumps(then))

        clock = Clock(elsewhere)
        patched.setattr(leases.time, "monotonic", clock.monotonic)
        patched.setattr(leases.time, "sleep", clock.sleep)
        taken = take(files, wait_s=1e9, ttl_s=0.0)
        last = max([1000.0, *times])
        assert taken.took_over
        assert last + ttl_s - leases._POLL_S <= clock.now <= last + ttl_s + 3 * leases._POLL_S
        taken.release()


def test_an_owner_elsewhere_that_renews_is_not_taken_over_by_who_does_not_wait(tmp_path: Path) -> None:
    files, owner = Files(str(tmp_path)), replace(Owner.new(30.0), boot="elsewhere", host="other", machine="")
    put(tmp_path, 1, owner)

    def elsewhere(now: float) -> None:
        put(tmp_path, 1, replace(owner, beat=int(now)))

    clock = Clock(elsewhere)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(leases.time, "monotonic", clock.monotonic)
        patched.setattr(leases.time, "sleep", clock.sleep)
        with pytest.raises(CheckpointInUse):
            take(files)
    assert clock.now < 1030.0


def test_a_lease_that_was_deleted_does_not_begin_anew(tmp_path: Path) -> None:
    check_deleted_lease(tmp_path, str(tmp_path))
