"""What must hold of a checkpoint and of results in an object store, told of any store: in memory, or a real server.

The first owner is stopped before each single thing that it asks of the store, and wakes up after a takeover.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

from braidstream.errors import DamagedState, InputError, LeaseLost, SinkFailed
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.values import changed
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.lease import Lease, take
from braidstream.state.manifest import Manifest
from braidstream.state.objects import Objects
from braidstream.state.rolling_back import plan_rollback, roll_back
from braidstream.state.whole_epochs import result_files

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
STEPS = ("_put_if", "_seen", "_listed", "_below", "delete_file", "delete_dir", "copy_file", "open_output_stream")
DISTURBED, LAST = 2, 3
Act: TypeAlias = "Callable[[Harness], Callable[[], object]]"


def rows(epoch: int) -> dict[str, pa.Table]:
    """Rows of an epoch, in order but for a few that are late."""
    made = {}
    for seed, name in enumerate("RS"):
        rng = np.random.default_rng([epoch, seed])
        times = np.sort(rng.integers(epoch * 1000, (epoch + 1) * 1000, 30))
        times[rng.integers(0, 30, 2)] -= 5000
        made[name] = pa.table([rng.integers(0, 6, 30), np.arange(30) + 100 * epoch, times], schema=SCHEMA)
    return made


def started(folder: Path, root: str, slots: int = 2) -> Harness:
    """A flow with its checkpoint and its results in the store; its local copies are in the folder."""
    joins = {"q": [Indexed(name, name, ("k",), 3000) for name in "RS"]}
    schemas = dict.fromkeys("RS", SCHEMA)
    return Harness(folder, schemas, joins, slots=slots, groups=4, keep=2, leased=True, root=f"{root}/ck", out=root)


def catch_up(harness: Harness, until: int) -> None:
    while harness.manifest.epoch < until:
        harness.epoch(rows(harness.manifest.epoch + 1))


def named(root: str) -> list[str]:
    """The results that marks name."""
    files = Files(f"{root}/out/q")
    found = []
    for path in result_files(f"{root}/out/q"):
        with files.open(path.rpartition("/")[2]) as source:
            found += map(str, pa.parquet.read_table(source).to_pylist())
    return sorted(found)


def counted(root: str) -> dict[str, bytes]:
    """What counts: the last manifests, what they refer to, and results that marks name."""
    store = Checkpoint(f"{root}/ck")
    latest = store.latest()
    names = {*latest.own_files(), *latest.shared_files(), "flow.json"}
    seen = {name: store.files.read(name) for name in names}
    out = Files(f"{root}/out/q")
    return seen | {path: out.read(path.rpartition("/")[2]) for path in result_files(f"{root}/out/q")}


class Stopper:
    """Lets something happen before the n-th thing that is asked of the store, or after the n-th look at the lease."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        self.at, self.then, self.steps, self.is_on = at, then, 0, False

    def step(self) -> None:
        if self.is_on:
            self.steps += 1
            if self.steps == self.at:
                self.is_on = False
                self.then()

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in STEPS:
            monkeypatch.setattr(Objects, name, self._before(getattr(Objects, name)))
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


def lease_files(store: Files) -> list[str]:
    """Who holds each term."""
    return [f"lease/{term}/{name}" for term in store.folders("lease") for name in store.names(f"lease/{term}")]


def overwritten(content: bytes) -> Callable[[Files], None]:
    def damage(store: Files) -> None:
        for name in lease_files(store):
            store.replace(name, content)

    return damage


DAMAGES: dict[str, Callable[[Files], None]] = {
    "the owner's object is empty": overwritten(b""),
    "the owner's object is no JSON": overwritten(b"\xff\x00{"),
    "the owner's object is a list": overwritten(b'["id", "host"]'),
    "the owner's object is gone": lambda store: [store.delete(name) for name in lease_files(store)] and None,
    "all of the lease is gone": lambda store: store.delete_folder("lease"),
}


def nothing(_: Files) -> None:
    """No damage."""


def disturbed(
    folder: Path, root: str, at: int, expected: list[str], *, is_fast: bool, damage: Callable[[Files], None] = nothing
) -> int:
    """Stop the owner before its step `at` of an epoch and let another start; gives the number of steps it had.

    The other has gone on when the first wakes up, or, if it is not fast, has only swept what it takes for lost. Before
    it starts somebody may damage the lease.
    """
    harness = started(folder, root)
    catch_up(harness, DISTURBED - 1)
    old, seen = harness.runner, {}

    def take_over() -> None:
        damage(Files(f"{root}/ck"))
        harness.restart()
        if is_fast:
            catch_up(harness, LAST)
        seen.update(counted(root))

    with pytest.MonkeyPatch.context() as patched:
        stopper = Stopper(at, take_over)
        stopper.patch(patched)
        stopper.is_on = True
        try:
            harness.epoch(rows(DISTURBED))
        except (LeaseLost, DamagedState, FileNotFoundError, SinkFailed):  # what it staged may be swept
            assert seen, "lost without a successor"
        stopper.is_on = False
    if not seen:
        return stopper.steps
    assert counted(root).items() >= seen.items(), f"step {at} changed something"
    if old.manifest.epoch < DISTURBED:
        with pytest.raises(LeaseLost):
            old([], DISTURBED)
    catch_up(harness, LAST)
    assert named(root) == expected, f"step {at}"
    harness.restart()
    assert sorted(map(str, harness.results("q"))) == expected, f"after step {at} a sweep leaves what marks name"
    checkpoint = harness.runner.checkpoint
    checkpoint.verify(checkpoint.latest())
    return stopper.steps


def check_steps(folder: Path, root: str, every: int, *, is_fast: bool) -> None:
    """Stop an owner before every so many of its steps."""
    quiet = started(folder / "quiet", f"{root}/quiet")
    catch_up(quiet, LAST)
    expected = named(f"{root}/quiet")
    assert len(expected) > 100
    n_steps = disturbed(folder / "count", f"{root}/count", -1, expected, is_fast=is_fast)
    assert n_steps > 30
    for at in range(1 + is_fast, n_steps + 1, every):
        disturbed(folder / str(at), f"{root}/{at}", at, expected, is_fast=is_fast)


def check_restarts(folder: Path, root: str, seed: int) -> None:
    """Owners come one after the other, with other slots each; results are those of one that went through."""
    rng = np.random.default_rng(seed)
    quiet = started(folder / "quiet", f"{root}/quiet")
    catch_up(quiet, 6)
    harness = started(folder / "moved", f"{root}/moved")
    while harness.manifest.epoch < 6:
        catch_up(harness, harness.manifest.epoch + 1)
        if rng.random() < 0.6:
            harness.restart(slots=int(rng.integers(1, 4)))
    assert named(f"{root}/moved") == named(f"{root}/quiet")
    kept = {name.split(".")[0] for name in Files(f"{root}/moved/ck").names("manifests") if name.endswith(".root")}
    assert len(kept) == 2


def check_one_of_many(root: str) -> None:
    """Of many that add an object at once, one does; of many that take a lease, one has it."""
    won: list[int] = []

    def add(own: int) -> None:
        files = Files(root)
        try:
            files.add("manifests/1.root", f"content of {own}, which is longer than a claim is".encode())
            won.append(own)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=add, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert f"content of {won[0]}," in Files(root).read("manifests/1.root").decode()


def check_claims(root: str) -> None:
    """A claim is nobody's file; who has the lease may add, who had it before may not."""
    first, second, name = Files(root), Files(root), "manifests/0000000009.root"
    first.claim(name)
    assert Files(root).names("manifests") == []
    assert not first.exists(name)
    with pytest.raises(FileNotFoundError):
        first.read(name)
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) > 1:
            raise LeaseLost(root)
        second.claim(name)  # the other takes over between its look and its put

    first.check = look
    with pytest.raises(LeaseLost):
        first.add(name, b"of the first")
    assert not first.exists(name)
    second.add(name, b"of the second")
    assert first.read(name) == b"of the second"
    with pytest.raises(FileExistsError):
        first.claim(name)


def check_taken_away(root: str) -> None:
    """What comes again is taken away if it is what was there before the look at the lease, and put after it only."""
    first, second, name = Files(root), Files(root), "manifests/0000000009.root"

    def after(act: Callable[[], object]) -> Callable[[], None]:
        """The other does something between the first one's look at the lease and its act, and has the lease then."""
        looks = []

        def look() -> None:
            looks.append(1)
            if len(looks) > 1:
                raise LeaseLost(root)
            act()

        return look

    second.add(name, b"old")
    first.check = after(lambda: second.replace(name, b"new"))
    with pytest.raises(LeaseLost):
        first.delete(name)
    assert second.read(name) == b"new"
    first.check = after(lambda: (second.delete(name), second.add(name, b"again")))
    with pytest.raises(LeaseLost):
        first.delete(name)
    assert second.read(name) == b"again"
    second.delete(name)
    assert second.names("manifests") == []
    first.check = after(lambda: second.bar(name))
    with pytest.raises(LeaseLost):
        first.add(name, b"late")
    first.check = after(lambda: (second.add(name, b"retired"), second.delete(name), second.forget_claim(name)))
    with pytest.raises(LeaseLost):
        first.add(name, b"late")
    assert not second.exists(name)
    second.add(name, b"at last")
    second.forget_claim(name)
    assert second.read(name) == b"at last"


def check_replaced(root: str) -> None:
    """What is replaced is what was there before the look at the lease."""
    files, other = Files(root), Files(root)
    files.replace("flow.json", b"1")
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 1:
            other.replace("flow.json", b"2")
        else:
            raise LeaseLost(root)

    files.check = look
    with pytest.raises(LeaseLost):
        files.replace("flow.json", b"3")
    assert other.read("flow.json") == b"2"
    files.check = lambda: None
    files.expect("flow.json")
    other.replace("flow.json", b"4")
    with pytest.raises(FileExistsError):
        files.replace("flow.json", b"5")
    assert files.read("flow.json") == b"4"


def check_damaged_leases(folder: Path, root: str, every: int) -> None:
    """Whatever becomes of the lease while its owner is stopped, it changes nothing when it wakes up."""
    quiet = started(folder / "quiet", f"{root}/quiet")
    catch_up(quiet, LAST)
    expected = named(f"{root}/quiet")
    n_steps = disturbed(folder / "count", f"{root}/count", -1, expected, is_fast=True)
    for number, damage in enumerate(DAMAGES.values()):
        for at in range(2 + number, n_steps + 1, every):
            own = f"{number}-{at}"
            disturbed(folder / own, f"{root}/{own}", at, expected, is_fast=bool(at % 2), damage=damage)


def check_deleted_lease(folder: Path, root: str) -> None:
    """Its owner is alive, and so is that owner's JVM, which knows nothing of leases: terms and logs are new ones."""
    harness, store = started(folder, root), Files(f"{root}/ck")
    catch_up(harness, 0)
    store.make("offsets/offsets")
    store.replace("offsets/offsets/0", b"v1\n{}\n{}")
    terms = []
    for epoch in (1, 2):
        old, log = harness.runner, Checkpoint(store.root).log.folder
        store.delete_folder("lease")
        harness.restart()
        lease = harness.runner.checkpoint.lease
        assert lease is not None
        assert lease.took_over
        terms.append(lease.term)
        with pytest.raises(LeaseLost):
            old([], epoch)
        store.make(f"{log}/offsets")
        store.replace(f"{log}/offsets/9", b"v1\n{}\n{}")  # by the JVM of the old one
        found = Checkpoint(store.root).log
        assert found.folder == f"offsets-{lease.term}"
        assert found.last("offsets") == 0
        catch_up(harness, epoch)
    assert terms == [2, 3]


def check_leases(root: str) -> None:
    """Terms are taken once, and released; a renewal by who has lost one fails."""
    files = Files(root)
    first = take(files, ttl_s=0.0)
    second = take(files, ttl_s=0.0)
    assert (first.term, second.term, second.took_over) == (1, 2, True)
    with pytest.raises(LeaseLost):
        first.check()
    second.check()
    second.release()
    third = take(files, ttl_s=0.0)
    assert (third.term, third.took_over) == (3, False)


N_CHUNKS, BEFORE = 9, 4


def chunk(number: int) -> dict[str, pa.Table]:
    """Rows that are never late, however they are dealt to epochs."""
    made = {}
    for seed, name in enumerate("RS"):
        keys = np.random.default_rng([number, seed]).integers(0, 6, 30)
        made[name] = pa.table([keys, np.arange(30) + 100 * number, np.arange(30) + 30 * number], schema=SCHEMA)
    return made


def logged(store: Files, epoch: int) -> None:
    """What Spark logs of an epoch."""
    folder = Checkpoint(store.root).log.folder
    for name in ("metadata", f"offsets/{epoch}", f"commits/{epoch}", f"sources/0/{epoch}"):
        store.replace(f"{folder}/{name}", b"{}" if name == "metadata" else b'v1\n{}\n{"logOffset":%d}' % epoch)


def run_epoch(flow: Harness, root: str, tables: dict[str, pa.Table]) -> None:
    logged(Files(f"{root}/ck"), flow.manifest.epoch + 1)
    flow.epoch(tables)


def to_roll_back(folder: Path, root: str, n_epochs: int = BEFORE) -> Harness:
    """A flow after some epochs, a chunk each, which notes the folder of its results as a launch does."""
    flow = started(folder, root)
    notes = changed(flow.manifest.notes, folders={f"{root}/out/q": -1})
    flow.runner.manifest = flow.runner.flow.checkpoint.commit(flow.manifest.with_notes(notes))
    for number in range(n_epochs):
        run_epoch(flow, root, chunk(number))
    return flow


def rolled_back(flow: Harness) -> None:
    """Roll back as far as may be, and start again."""
    checkpoint = Checkpoint(flow._root, 2)
    checkpoint.take(ttl_s=0.0)
    epoch = Manifest.epochs(checkpoint.files)[0]
    roll_back(checkpoint, plan_rollback(checkpoint, epoch), flow._identity.flow)
    checkpoint.release()
    flow.restart()


def go_on_otherwise(flow: Harness, root: str) -> None:
    """Deal the rest of the rows to epochs otherwise than before."""
    epoch = flow.manifest.epoch
    first, second = chunk(epoch + 1), chunk(epoch + 2)
    run_epoch(flow, root, {name: pa.concat_tables([first[name], second[name]]) for name in first})
    for number in range(epoch + 3, N_CHUNKS):
        run_epoch(flow, root, chunk(number))


def roots(root: str) -> dict[str, bytes]:
    """The roots of all manifests that are kept."""
    store = Files(f"{root}/ck")
    return {name: store.read(f"manifests/{name}") for name in store.names("manifests") if name.endswith(".root")}


def rolled_back_under(folder: Path, root: str, at: int, expected: list[str], prepared: Act, *, is_fast: bool) -> int:
    """Stop an act before a step; meanwhile the checkpoint is rolled back. Gives the number of steps.

    The flow has gone on when who was stopped wakes up, or, if it is not fast, has only started.
    """
    flow, seen, kept = to_roll_back(folder, root), dict[str, bytes](), dict[str, bytes]()
    act = prepared(flow)

    def meanwhile() -> None:
        rolled_back(flow)
        if is_fast:
            go_on_otherwise(flow, root)
        seen.update(counted(root))
        kept.update(roots(root))

    with pytest.MonkeyPatch.context() as patched:
        stopper = Stopper(at, meanwhile)
        stopper.patch(patched)
        stopper.is_on = True
        try:
            act()
        except (LeaseLost, InputError, DamagedState, FileNotFoundError, SinkFailed):
            assert seen, "lost without a successor"
        stopper.is_on = False
    if not seen:
        return stopper.steps
    assert counted(root).items() >= seen.items(), f"step {at} changed something"
    assert roots(root) == kept, f"step {at} changed which epochs there are"
    if not is_fast:
        go_on_otherwise(flow, root)
    assert named(root) == expected, f"step {at}"
    flow.restart()
    assert sorted(map(str, flow.results("q"))) == expected, f"after step {at} others see something else"
    checkpoint = flow.runner.checkpoint
    checkpoint.verify(checkpoint.latest())
    assert checkpoint.orphans() == []
    return stopper.steps


def one_more(flow: Harness) -> Callable[[], object]:
    """An epoch, begun by Spark."""
    number = flow.manifest.epoch + 1
    logged(Files(flow._root), number)
    return lambda: flow.epoch(chunk(number))


def back(flow: Harness) -> Callable[[], object]:
    """A rollback that has the lease and is planned."""
    checkpoint = Checkpoint(flow._root, 2)
    checkpoint.take(ttl_s=0.0)
    plan = plan_rollback(checkpoint, Manifest.epochs(checkpoint.files)[0])
    return lambda: roll_back(checkpoint, plan, flow._identity.flow)


ACTS: dict[str, Act] = {"an epoch": one_more, "a rollback": back}


def check_rolled_back_under(folder: Path, root: str, every: int, kind: str, *, is_fast: bool) -> None:
    """A flow, or a rollback, is stopped before every so many of its steps, while the checkpoint is rolled back."""
    quiet = to_roll_back(folder / "quiet", f"{root}/quiet", N_CHUNKS)
    expected = sorted(map(str, quiet.results("q")))
    assert len(expected) > 100
    n_steps = rolled_back_under(folder / "count", f"{root}/count", -1, expected, ACTS[kind], is_fast=is_fast)
    assert n_steps > 30
    for at in range(2, n_steps + 1, every):
        rolled_back_under(folder / str(at), f"{root}/{at}", at, expected, ACTS[kind], is_fast=is_fast)


def new_root(bucket: str) -> str:
    """A folder that nobody has."""
    return f"s3://{bucket}/{uuid.uuid4().hex[:8]}"
