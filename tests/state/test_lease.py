"""One process has a checkpoint at a time; whoever loses it changes nothing any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest

from braidstream.errors import CheckpointInUse, InputError, LeaseLost
from braidstream.model.directory import Directory
from braidstream.state import lease as leases
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.files import Files
from braidstream.state.lease import Lease, Owner, holder, take
from braidstream.state.manifest import Manifest


def tree(folder: Path, *, without: str = "lease") -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and without not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def put(folder: Path, term: int, owner: Owner) -> None:
    """A lease as another process has left it."""
    own = folder / "lease" / f"{term:010d}"
    (own / owner.id).mkdir(parents=True, exist_ok=True)
    (own / "owner.json").write_text(json.dumps(asdict(owner)), encoding="utf-8")


def other(ttl_s: float) -> Owner:
    """Another process of this machine, which lives."""
    parent = os.getppid()
    return replace(Owner.new(ttl_s), process=parent, began=leases._began(parent) or "")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(str(tmp_path))


@pytest.fixture(autouse=True)
def _no_lease_outlives_its_test() -> Iterator[None]:
    yield
    for held in list(leases._HELD.values()):
        held.release()


def test_a_second_start_is_refused_and_told_who_has_it(files: Files) -> None:
    first = take(files)
    with pytest.raises(CheckpointInUse) as refused:
        take(files)
    said = str(refused.value)
    assert isinstance(refused.value, InputError)
    assert refused.value.exit_code == 2
    for part in (files.root, f"process {os.getpid()}", first.owner.host, first.owner.since, "--wait", "30 seconds"):
        assert part in said
    assert first.is_held


def test_a_released_lease_is_taken_at_once_and_terms_never_come_again(files: Files) -> None:
    terms = []
    for _ in range(3):
        lease = take(files)
        terms.append(lease.term)
        assert not lease.took_over
        lease.release()
        assert holder(files) is None
    assert terms == [1, 2, 3]


@pytest.mark.parametrize("how", ["ended", "killed", "its number went to another process"])
def test_the_lease_of_a_dead_process_is_taken_at_once(files: Files, how: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(Owner.new(600.0), process=child.pid, began=leases._began(child.pid) or "", at=1e12)
    put(Path(files.root), 4, owner)
    with pytest.raises(CheckpointInUse, match=f"process {child.pid}"):
        take(files)
    if how == "ended":
        child.communicate(b"\n")
    elif how == "killed":
        child.kill()  # and not waited for: what is left of it is still listed
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    else:
        put(Path(files.root), 4, replace(owner, began="1"))
    lease = take(files)
    assert (lease.term, lease.took_over) == (5, True)
    child.kill()
    child.wait()


def test_a_lease_from_before_the_machine_was_started_again_is_taken_at_once(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_machine", lambda: "this one")
    monkeypatch.setattr(leases, "_space", lambda: leases._FIRST_SPACE)
    put(Path(files.root), 1, replace(Owner.new(600.0), boot="earlier", beat=7))
    assert take(files).took_over


def test_a_process_that_stands_still_loses_its_lease_after_its_time_to_live(files: Files) -> None:
    put(Path(files.root), 1, replace(other(30.0), at=leases.time.monotonic() - 29))
    with pytest.raises(CheckpointInUse):
        take(files)
    put(Path(files.root), 1, replace(other(30.0), at=leases.time.monotonic() - 31))
    assert take(files).took_over


def test_elsewhere_only_silence_for_a_time_to_live_counts(files: Files) -> None:
    """The other machine's clock says nothing: its lease was renewed in the far future."""
    put(Path(files.root), 1, replace(Owner.new(0.5), boot="elsewhere", host="other", at=1e12))
    assert holder(files) is None
    assert take(files).took_over


def test_elsewhere_a_lease_that_is_renewed_is_refused(files: Files) -> None:
    owner, ended = replace(Owner.new(600.0), boot="elsewhere", host="other"), threading.Event()

    def beat() -> None:
        for n in range(10_000):
            files.replace("lease/0000000001/owner.json", json.dumps(asdict(replace(owner, beat=n))).encode())
            if ended.wait(0.01):
                return

    put(Path(files.root), 1, owner)
    thread = threading.Thread(target=beat)
    thread.start()
    with pytest.raises(CheckpointInUse, match="on other"):
        take(files)
    ended.set()
    thread.join()


def test_a_lease_that_cannot_be_read_is_waited_out(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_TTL_S", 0.3)
    put(Path(files.root), 1, Owner.new(0.3))
    (Path(files.root) / "lease" / "0000000001" / "owner.json").write_bytes(b"")
    assert take(files).term == 2


@pytest.mark.parametrize("left", ["its gate", "nothing"])
def test_a_term_without_an_owner_beside_an_earlier_one_is_waited_out(
    files: Files, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """As a power failure may leave it: the earlier one is free, and its successor's place is taken."""
    monkeypatch.setattr(leases, "_TTL_S", 0.3)
    put(Path(files.root), 1, replace(Owner.new(0.3), released=True))
    (Path(files.root) / "lease" / "0000000002" / ("gate" if left == "its gate" else "")).mkdir(parents=True)
    lease = take(files)
    assert (lease.term, lease.took_over) == (3, True)
    assert files.folders("lease") == ["0000000003"]


def test_waiting_takes_the_lease_when_its_owner_ends(files: Files) -> None:
    first = take(files)
    timer = threading.Timer(0.5, first.release)
    timer.start()
    assert take(files, wait_s=60).term == 2
    timer.join()


def test_a_flow_of_this_process_that_has_ended_is_no_owner(files: Files) -> None:
    first, over = take(files), threading.Event()
    first.watch(over.is_set, lambda: None)
    with pytest.raises(CheckpointInUse):
        take(files)
    over.set()
    assert not take(files).took_over


def test_of_many_that_would_take_over_one_does(tmp_path: Path) -> None:
    for round_ in range(20):
        folder = tmp_path / str(round_)
        put(folder, 1, replace(Owner.new(600.0), process=1 << 30))
        together, got = threading.Barrier(6), []

        def contend(folder: Path = folder, together: threading.Barrier = together, got: list[Lease] = got) -> None:
            together.wait()
            try:
                got.append(take(Files(str(folder))))
            except CheckpointInUse:
                return

        threads = [threading.Thread(target=contend) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [lease.term for lease in got] == [2]
        got[0].check()


def test_who_is_swept_away_while_it_prepares_is_told_that_the_checkpoint_is_in_use(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, got = leases._plain, list[Lease]()

    def overtaken(owner: Owner) -> bytes:
        """Its folder is there, and what it is about to write into it is not: the other takes it for a leftover."""
        monkeypatch.undo()
        got.append(take(files))
        return plain(owner)

    monkeypatch.setattr(leases, "_plain", overtaken)
    with pytest.raises(CheckpointInUse):
        take(files)
    got[0].check()
    assert files.folders("lease") == [f"{got[0].term:010d}"]


def test_who_looked_long_ago_does_not_get_a_lower_term(files: Files) -> None:
    put(Path(files.root), 7, other(600.0))
    assert leases._claimed(files, 3, None, 30.0) is None
    assert files.folders("lease") == ["0000000007"]


def test_the_owner_renews_and_notices_that_it_lost(files: Files) -> None:
    lost = threading.Event()
    first = take(files, ttl_s=0.6)
    first.watch(lambda: False, lost.set)
    assert wait_until(lambda: first.owner.beat >= 3)
    put(Path(files.root), 2, other(600.0))
    leases._remove(Path(files.root) / "lease" / "0000000001")
    assert lost.wait(30)
    assert not first.is_held
    with pytest.raises(LeaseLost, match="taken over by process"):
        first.check()


def wait_until(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(condition() or pause.wait(0.05) for _ in range(600))


def test_a_start_that_fails_leaves_no_trace_of_a_checkpoint_that_was_not_there(tmp_path: Path) -> None:
    for root in (tmp_path / "new", tmp_path / "empty"):
        if root.name == "empty":
            root.mkdir()
        store = Checkpoint(str(root))
        with pytest.raises(RuntimeError), store.starting():
            raise RuntimeError
        assert root.exists() == (root.name == "empty")
        assert not (root / "lease").exists()


def made(folder: Path, **options: float) -> Checkpoint:
    store = Checkpoint(str(folder), 2)
    store.take(**options)
    if store.identity() is None:
        store.create(Identity.new("f", {}, {}), Manifest(-1, Directory.of(1), 1))
    store.sweep()
    return store


CHANGES: dict[str, Callable[[Checkpoint], object]] = {
    "commits": lambda store: store.commit(replace(store.latest(), epoch=store.latest().epoch + 1)),
    "rewrites a manifest": lambda store: store.latest().write(store.files),
    "adds one past the check": lambda store: replace(store.latest(), epoch=9).write(store.files, is_new=True),
    "retires": lambda store: store.retire(99),
    "sweeps": lambda store: store.sweep(),
    "deletes": lambda store: store.files.delete("flow.json"),
    "deletes a folder": lambda store: store.files.delete_folder("manifests"),
    "makes it anew": lambda store: store.create(Identity.new("g", {}, {}), store.latest()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_owner_that_lost_its_lease_changes_nothing(tmp_path: Path, change: Callable[[Checkpoint], object]) -> None:
    old = made(tmp_path, ttl_s=0.0)
    for epoch in range(3):
        old.commit(replace(old.latest(), epoch=epoch))
    new = made(tmp_path)
    (tmp_path / "segments" / "new.arrow").write_bytes(b"not committed yet")
    before = tree(tmp_path)
    with pytest.raises(LeaseLost):
        change(old)
    assert tree(tmp_path) == before
    new.commit(replace(new.latest(), epoch=new.latest().epoch + 1))


def test_a_manifest_of_another_is_never_replaced(tmp_path: Path) -> None:
    """Also without gates: on object stores, or when both hold what they take for a lease."""
    ours, theirs = made(tmp_path, ttl_s=0.0), Checkpoint(str(tmp_path), 2)
    theirs.sweep()
    theirs.commit(replace(theirs.latest(), epoch=0, totals={"by": 1}))
    with pytest.raises(LeaseLost):
        ours.commit(replace(ours.latest(), epoch=0, totals={"by": 2}))
    assert ours.latest().totals == {"by": 1}
    theirs.commit(replace(theirs.latest(), epoch=0, totals={"by": 3}))  # its own it may
    assert ours.latest().totals == {"by": 3}


def test_spark_s_log_has_another_name_after_a_takeover(tmp_path: Path) -> None:
    old = made(tmp_path, ttl_s=0.0)
    log = Path(old.offsets)
    (log / "offsets").mkdir(parents=True)
    (log / "offsets" / "0").write_text("v1\n{}\n{}")
    new = made(tmp_path)
    assert Path(new.offsets) != log
    assert (Path(new.offsets) / "offsets" / "0").exists()
    (log / "offsets").mkdir(parents=True)  # the other JVM makes its folder again
    (log / "offsets" / "0").write_text("v1\n{}\n{}")
    assert Checkpoint(str(tmp_path)).offsets == new.offsets
    new.release()
    again = made(tmp_path)
    assert (again.offsets, log.exists()) == (new.offsets, False)


def test_without_renames_the_lease_is_read_again_before_each_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "has_renames", property(lambda _: False))
    monkeypatch.setattr(leases, "_SETTLE_S", 0.0)
    old = made(tmp_path, ttl_s=0.0)
    old.commit(replace(old.latest(), epoch=0))
    new = made(tmp_path)
    before = tree(tmp_path)
    for act in (lambda: old.commit(replace(old.latest(), epoch=1)), lambda: old.retire(99), old.sweep):
        with pytest.raises(LeaseLost):
            act()
    assert tree(tmp_path) == before
    new.commit(replace(new.latest(), epoch=1))
    with pytest.raises(CheckpointInUse):
        made(tmp_path)
    new.release()
    made(tmp_path)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for root in (str(tmp_path / "file" / "ck"), "/proc/ck"):
        with pytest.raises(InputError, match="cannot be") as refused:
            Checkpoint(root).take()
        assert refused.value.exit_code == 2
        assert refused.value.fix


def test_terms_rise_over_random_releases_and_takeovers(tmp_path: Path) -> None:
    random, last = Random(5), 0
    for _ in range(40):
        store = made(tmp_path, ttl_s=0.0)
        assert store.lease is not None
        assert store.lease.term == last + 1
        last = store.lease.term
        if random.random() < 0.5:
            store.release()
    assert len(Files(str(tmp_path)).folders("lease")) == 1


def failing(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "the store does not answer")

    monkeypatch.setattr(owner, name, fails)


def test_a_takeover_that_fails_half_way_does_not_keep_this_process_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, ttl_s=0.0)
    (tmp_path / "offsets").mkdir()
    failing(monkeypatch, Files, "move")
    with pytest.raises(InputError, match="does not answer"):
        made(tmp_path, ttl_s=600.0)
    monkeypatch.undo()
    assert made(tmp_path).lease is not None


def test_a_start_that_fails_with_its_store_gives_the_lease_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it failed with is said, and not that the store does not answer when the lease is given back."""
    made(tmp_path).release()
    store = Checkpoint(str(tmp_path))

    def start() -> None:
        with store.starting():
            failing(monkeypatch, Files, "exists")
            raise RuntimeError("what it was")

    with pytest.raises(RuntimeError, match="what it was"):
        start()
    monkeypatch.undo()
    made(tmp_path)
