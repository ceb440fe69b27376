"""The log between two flows of a job, as its owner writes it: nothing twice, nothing lost. No Spark is started."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from braidstream.errors import DamagedState, LeaseLost
from braidstream.lab.testing.power import PowerDisk
from braidstream.model.directory import Directory
from braidstream.model.snapshots import Placed
from braidstream.spark.feeds import FeedingCheckpoint, FeedLog, make_feed
from braidstream.state import lease as leases
from braidstream.state import syncing
from braidstream.state.checkpoint import Identity
from braidstream.state.manifest import Manifest
from tests.state.test_takeover import Stopper


def log_of(folder: Path) -> FeedLog:
    return FeedLog(str(folder / "ck" / "feeds" / "f"), str(folder / "out"))


def started(folder: Path, ttl_s: float | None = None) -> FeedingCheckpoint:
    """An owner of the checkpoint of a flow that feeds another."""
    if not (folder / "ck").exists():
        make_feed(str(folder / "ck" / "feeds" / "f"))
    log = log_of(folder)
    store = FeedingCheckpoint(str(folder / "ck" / "0-functions-f"), 2, feeds={log.source: log}, durable=True)
    store.take(ttl_s=ttl_s)
    if store.identity() is None:
        store.create(Identity.new("f", {}, {}), Manifest(-1, Directory.of(1), 1))
    store._hand_on(store.latest())
    store.sweep()
    return store


def epoch(store: FeedingCheckpoint, folder: Path, *names: str) -> None:
    """One more, which has delivered these files."""
    last = store.latest()
    placed = tuple(Placed(name, 1, 0) for name in names)
    store.commit(replace(last, epoch=last.epoch + 1, delivered={str((folder / "out").resolve()): placed}))


def named(folder: Path) -> list[str]:
    """The files that whoever reads the feed takes."""
    numbered = {int(one.name.split(".")[0]): one for one in (folder / "ck/feeds/f/_spark_metadata").glob("[0-9]*")}
    last = max((number for number, one in numbered.items() if one.suffix), default=0)
    lines = [line for n in sorted(numbered) if n >= last for line in numbered[n].read_text().splitlines()[1:]]
    return [Path(json.loads(line)["path"]).name for line in lines]


class DiedError(BaseException):
    """Nobody catches it on its way out."""


@pytest.mark.parametrize("n_before", [3, 9], ids=["an entry", "an entry with all before it"])
def test_an_owner_that_was_stopped_and_wakes_up_names_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_before: int
) -> None:
    """Before each of its steps from the commit on another takes over, and is further when the first one wakes up."""
    for at in _counted(tmp_path):
        folder = tmp_path / f"{at}"
        old = started(folder, ttl_s=0.0)
        for number in range(n_before):
            epoch(old, folder, f"part-{number}")

        def take_over(folder: Path = folder) -> None:
            new = started(folder)
            for number in range(new.latest().epoch + 1, n_before + 4):
                epoch(new, folder, f"part-{number}")

        with monkeypatch.context() as patched:
            stopper = Stopper(at, take_over)
            stopper.patch(patched)
            stopper.is_on = True
            if at <= stopper.steps:
                continue
            with suppress(LeaseLost):
                epoch(old, folder, f"part-{n_before}")
        if stopper.is_on:  # it had no so many steps
            assert at > 5
            break
        with pytest.raises(LeaseLost, match="0-functions-f was taken over"):
            epoch(old, folder, "part-late")
        assert sorted(named(folder)) == sorted(f"part-{number}" for number in range(n_before + 4)), at


def _counted(folder: Path) -> Iterator[int]:
    """As many folders as are asked for."""
    for at in range(1, 100):
        (folder / f"{at}").mkdir()
        yield at


def test_what_a_dead_process_has_named_outlives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before the disk had the name; the next one finds it in memory, and commits epochs without results."""
    flow = tmp_path / "flow"
    flow.mkdir()
    store = started(flow)
    epoch(store, flow, "part-0")

    def dies(_: object) -> None:
        raise DiedError

    disk = PowerDisk(flow)
    with disk.watched():
        with monkeypatch.context() as patched:
            patched.setattr("braidstream.spark.feeds.syncing.sync_folders", _all_but(flow / "ck" / "feeds", dies))
            with pytest.raises(DiedError):
                epoch(store, flow, "part-1")
        store.release()
        store = started(flow)
        epoch(store, flow)
        epoch(store, flow)
    monkeypatch.setattr(leases, "_TTL_S", 0.0)  # a lease that the power took the owner of is not waited out here
    for seed in range(10):
        disk.lose_power(random.Random(seed), tmp_path / f"{seed}" / "flow")
        left = tmp_path / f"{seed}" / "flow"
        assert Manifest.epochs(started(left).files)[-1] == 3
        assert named(left) == ["part-0", "part-1"]


def _all_but(folder: Path, act: Callable[[object], None]) -> Callable[[object], None]:
    known = syncing.sync_folders

    def sync(paths: object) -> None:
        listed = [str(one) for one in paths]  # type: ignore[attr-defined]
        if any(one.startswith(str(folder)) for one in listed):
            act(listed)
        known(listed)

    return sync


@pytest.mark.parametrize("content", [b"", b"v1\n{", b'v1\n{"path": 3}', b"v1\n[]", b'v1\n{"path": "x"}', b"v1\n\xff"])
def test_an_entry_that_cannot_be_read_is_damage_with_a_name(tmp_path: Path, content: bytes) -> None:
    store = started(tmp_path)
    epoch(store, tmp_path, "part-0")
    store.release()
    (tmp_path / "ck" / "feeds" / "f" / "_spark_metadata" / "0").write_bytes(content)
    with pytest.raises(DamagedState, match=r"feeds/f/_spark_metadata/0: this entry of a feed"):
        started(tmp_path)
