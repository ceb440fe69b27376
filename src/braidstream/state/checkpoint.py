"""The checkpoint of a flow: a folder with an identity, Spark's offset log, manifests, and segments.

    flow.json            what the checkpoint belongs to: the flow's id, its streams and queries
    lease/               which process may change it (`state.lease`)
    offsets/             Spark's own checkpoint of the streaming query; offsets-N after term N was taken over
    manifests/           the roots, routing tables and ledgers of the last epochs (`state.manifest`)
    sections/            what each slot has of the state (`state.section`)
    segments/*.arrow     state
    staged/              results on their way to a sink
    history/             what the last epochs did (`state.history`); nothing depends on it

Commit order: segments, sections, results, routing table and ledger, root, Spark's offset commit. A crash anywhere
replays the epoch from the manifest before it; what the lost attempt wrote is an orphan, and is swept at the next start.
Old manifests and the files that only they refer to are retired after `keep` epochs: each ledger names the files that
its manifest does not need any more, so nobody compares manifests.

Nothing is deleted unless every kept manifest could be read, and none is missing: a damaged checkpoint stays as it is.

Who starts a flow takes the lease first. Commits are create-if-absent and pass through the lease's gate like every other
change; Spark knows nothing of gates, so whoever takes over from an owner that did not release renames Spark's folder,
and what the other's JVM still writes goes where nobody looks. In an object store, which has no gates, who takes over
writes the last root again and claims the next one, so that whoever had the checkpoint before cannot commit, and copies
Spark's folder (`state.objects`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from braidstream.errors import CheckpointInUse, CheckpointMismatch, DamagedState, InputError, LeaseLost
from braidstream.model import snapshots as sections
from braidstream.model.values import changed
from braidstream.state import history, segments, syncing
from braidstream.state import lease as leases
from braidstream.state import manifest as manifests
from braidstream.state.begun_rollback import refuse_begun
from braidstream.state.files import Files, unwritable
from braidstream.state.gaps import gap
from braidstream.state.identity import FORMAT, IDENTITY, Identity, upgrade
from braidstream.state.kept import Kept, kept_names, written_in
from braidstream.state.lease import Lease
from braidstream.state.manifest import Manifest, manifest_name
from braidstream.state.offsetlog import OffsetLog

__all__ = ["IDENTITY", "STAGED", "Checkpoint", "Identity"]

_log = logging.getLogger("braidstream")

OFFSETS, STAGED = "offsets", "staged"
_COPIED = "_copied"
"""In a copy of Spark's log: all of it is there."""


class Checkpoint:
    """A checkpoint folder."""

    def __init__(self, root: str, keep: int = 10, *, history: int = 0, durable: bool = False) -> None:
        self.root, self.keep, self.history, self.durable = root, keep, history, durable
        self.files = Files(root)
        self._kept: dict[int, Kept] = {}
        self._last: Manifest | None = None
        self._uses: Counter[str] = Counter()
        """How often the last manifest refers to a file."""
        self._log: OffsetLog | None = None
        self.lease: Lease | None = None
        self._is_new = False

    def take(self, *, wait_s: float = 0.0, ttl_s: float | None = None) -> None:
        """Take the lease, before anything is written; `CheckpointInUse` when another has it and is alive."""
        self.refuse_unreachable()
        try:
            self._is_new = not self.files.exists()
            self.files.make("", leases.FOLDER)
            self.lease = leases.take(self.files, wait_s=wait_s, ttl_s=ttl_s, above=self._least_term())
        except OSError as error:
            raise _unusable(error, self.root) from None
        try:
            self._take_over(self.lease)
        except BaseException as error:
            self.release()  # else nobody of this process could start again
            if isinstance(error, OSError):
                raise _unusable(error, self.root) from error
            raise

    def _take_over(self, lease: Lease) -> None:
        """See to it that who had the checkpoint before changes nothing any more."""
        self.files.gate, self.files.check = lease.gate, lease.check
        if self.files.objects is not None and lease.term > 1:
            self._bar()
        self._log = self._renamed(lease) if lease.took_over else self._found_log()

    def _least_term(self) -> int:
        """A term that has been, by the names of Spark's logs; 1 where there is a checkpoint, which somebody made."""
        named = [int(name.partition("-")[2] or 0) for name in self.files.folders("") if _is_log(name)]
        return max([*named, int(self.files.exists(IDENTITY) or bool(Manifest.epochs(self.files)))])

    def _bar(self) -> None:
        """Without a gate: who had the checkpoint before can neither replace the last root nor add one."""
        while epochs := Manifest.epochs(self.files):
            self.files.expect(manifest_name(epochs[-1]))
            try:
                with suppress(DamagedState):  # said where it is read for the start
                    Manifest.read(self.files, epochs[-1]).write(self.files)
                self.files.claim(manifest_name(epochs[-1] + 1))
                return
            except FileExistsError:  # it has committed in between
                continue

    @contextmanager
    def starting(self, *, wait_s: float = 0.0) -> Iterator[None]:
        """Take the lease for a start; one that fails gives it back."""
        self.take(wait_s=wait_s)
        try:
            refuse_begun(self.files)
            yield
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise _unusable(error, self.root) from error
            raise

    @property
    def is_held(self) -> bool:
        """Whether somebody who is known to be alive has the lease."""
        return leases.holder(self.files) is not None

    def refuse_unreachable(self) -> None:
        """Refuse a bucket that does not answer soon, is not there, or may not be listed."""
        try:
            self.files.ask()
        except OSError as error:
            raise _unusable(error, self.root) from None

    def refuse_begun(self) -> None:
        """Refuse a bucket as above, and a checkpoint whose rollback was begun and not finished."""
        self.refuse_unreachable()
        refuse_begun(self.files)

    def refuse_held(self) -> None:
        """Refuse a checkpoint that somebody has who is known, without waiting, to be alive."""
        self.refuse_unreachable()
        owner = leases.holder(self.files)
        if owner is not None:
            raise CheckpointInUse(self.root, str(owner), owner.process, owner.ttl_s)

    @property
    def owner(self) -> str:
        """The holder of the lease, by term and id, so in their order; empty without one."""
        return "" if self.lease is None else f"{self.lease.term:010d}-{self.lease.owner.id}"

    def fence(self) -> None:
        """Refuse to go on when the lease is another's by now."""
        if self.lease is not None:
            self.lease.check()

    def confirm(self) -> None:
        """After the end of a flow: say it if the lease was lost to another."""
        if self.lease is not None:
            self.lease.confirm()

    def watch(self, is_over: Callable[[], bool], on_loss: Callable[[], None]) -> None:
        """Give the lease back once `is_over`; tell when it was lost."""
        if self.lease is not None:
            self.lease.watch(is_over, on_loss)

    def release(self) -> None:
        """Let the next start take the checkpoint; one that was never made is gone."""
        if self.lease is None:
            return
        if self._may_be_made():
            self.lease.release()
        else:
            self.lease.vanish(with_root=self._is_new)

    def _may_be_made(self) -> bool:
        """Whether there is a checkpoint, or nobody says."""
        try:
            return self.files.exists(IDENTITY) or bool(Manifest.epochs(self.files))
        except OSError:
            return True

    def _renamed(self, lease: Lease) -> OffsetLog:
        """Spark's log under a name that the owner before does not know."""
        log, name = self._found_log(), f"{OFFSETS}-{lease.term}"
        if not self.files.exists(log.folder) or not (self.files.has_renames or self.files.objects):
            return log
        if self.files.objects is None:
            self.files.move(log.folder, self.files, name)
        else:
            self.files.objects.copy_folder(self.files.path(log.folder), self.files.path(name))
            self.files.replace(f"{name}/{_COPIED}", b"")
        return OffsetLog(self.files, name)

    def _found_log(self) -> OffsetLog:
        """Spark's log: the last one, should an owner of earlier terms have made its own again."""
        known = {int(name.partition("-")[2] or 0): name for name in self.files.folders("") if self._is_whole_log(name)}
        return OffsetLog(self.files, known[max(known)] if known else OFFSETS)

    def _is_whole_log(self, name: str) -> bool:
        is_copy = _is_log(name) and name != OFFSETS and self.files.objects is not None
        return _is_log(name) and (not is_copy or self.files.exists(f"{name}/{_COPIED}"))

    @property
    def log(self) -> OffsetLog:
        """Spark's log."""
        return self._log or self._found_log()

    @property
    def offsets(self) -> str:
        """Where Spark keeps its offset log."""
        base = self.root.removeprefix("copy+")
        is_told = "://" in base and self.files.objects is None
        return f"{base}/{self.log.folder}" if is_told else self.files.address(self.log.folder)

    def identity(self) -> Identity | None:
        """What the checkpoint belongs to; None when there is none yet."""
        try:
            return Identity.read(self.files)
        except FileNotFoundError:
            if any(epoch >= 0 for epoch in Manifest.epochs(self.files)):  # else it died while it was made
                raise DamagedState(self.files.path(IDENTITY), "the checkpoint's identity is missing") from None
            return None

    def create(self, identity: Identity, first: Manifest) -> None:
        """Make an empty checkpoint; what Spark has logged for one that never committed an epoch does not count."""
        self.files.delete_folder(self.log.folder)
        self.files.make("", manifests.FOLDER, sections.FOLDER, segments.FOLDER, STAGED)
        self._remember(first.write(self.files, sync=lambda: self._sync(first.epoch)))
        self._sync_folders(manifests.FOLDER, "")  # an identity without a manifest would be damage
        identity.write(self.files)
        self._sync_folders("", "..")

    def latest(self) -> Manifest:
        """The last committed manifest."""
        return Manifest.read(self.files, self.kept()[-1])

    def kept(self) -> Sequence[int]:
        """The epochs that are kept; without any, everything would be an orphan."""
        epochs = Manifest.epochs(self.files)
        if not epochs:
            raise DamagedState(self.files.path(manifests.FOLDER), "no manifest is left")
        return epochs

    def committed(self, epoch: int) -> bool:
        """Whether an epoch's manifest is there."""
        return epoch in Manifest.epochs(self.files)

    def check_offsets(self, latest: int) -> None:
        """Refuse a checkpoint whose manifests and whose offset log do not fit together, or whose log is damaged."""
        last, committed = self.log.last_begun(latest), self.log.last("commits")
        if latest == last + 1 and self._is_closed(latest):
            latest = last  # the end of a flow is an epoch that Spark knows nothing of
        if committed > latest:
            raise DamagedState(
                self.files.path(manifest_name(committed)),
                f"this manifest is missing: Spark's log has committed epoch {committed}, the state ends at {latest}",
            )
        if last > latest + 1:
            raise DamagedState(
                self.files.path(manifest_name(last - 1)),
                f"the state ends at epoch {latest}, Spark's offset log at epoch {last}",
            )
        self.log.check(latest)
        self.log.check_logged(latest)

    def _is_closed(self, epoch: int) -> bool:
        try:
            return Manifest.read(self.files, epoch, whole=False).notes.is_closed
        except (DamagedState, CheckpointMismatch):
            return False

    def verify(self, latest: Manifest) -> None:
        """Refuse to start when a file of the last manifest is damaged, or a segment is missing or of another size."""
        _ = latest.directory.next_id
        sizes = self.files.sizes(segments.FOLDER)
        for entry in latest.sections.entries().values():
            for name, n_bytes in entry.section.sizes().items():
                size = sizes.get(name.removeprefix(f"{segments.FOLDER}/"))
                if size != n_bytes:
                    what = "is missing" if size is None else f"has {size} bytes, its manifest says {n_bytes}"
                    raise DamagedState(self.files.path(name), f"this segment {what}")

    def commit(self, manifest: Manifest) -> Manifest:
        """Write a manifest: the commit of its epoch. One that another process wrote is never replaced.

        What is given back is the same manifest, which knows its files.
        """
        self.fence()
        if self._last is None:
            self._remember(self.latest())
        assert self._last is not None
        last, is_new = self._last, manifest.epoch != self._last.epoch
        if (
            not is_new
            and last.ledger is not None
            and manifest.sections.are_those_of(last.sections)
            and manifest == last
        ):
            return last
        if is_new and self.files.objects is not None:
            manifest = manifest.with_notes(changed(manifest.notes, logged=self.log.checksum(manifest.epoch)))
        ready = manifest.prepared(self.files)
        dropped, garbage = self._changed(last, ready), ready.scratch - self._uses.keys()
        if not is_new:  # what was written for the epoch and is not needed now, no other manifest refers to
            own = frozenset(name for name in dropped if written_in(name) >= manifest.epoch)
            garbage |= own | ({last.ledger.name} if last.ledger is not None else set())
            dropped = last.dropped | (dropped - own)
        try:
            made = replace(ready, dropped=dropped, scratch=frozenset()).write(
                self.files, is_new=is_new, sync=lambda: self._sync(manifest.epoch)
            )
        except FileExistsError:
            raise LeaseLost(self.root) from None
        self.sync_roots()  # before anything is deleted that the root before needs
        self._last, self._kept[made.epoch] = made, Kept.of(made)
        for name in garbage:
            self.files.delete(name)
        return made

    def sync_offsets(self, epoch: int) -> None:
        """Have the disk begin with the offsets that Spark has logged for an epoch: the commit waits for them."""
        if self.durable and self.files.has_renames:
            for path in self.log.unsynced(epoch):
                syncing.written(path)
            syncing.begin(durable=True)

    def _sync(self, epoch: int) -> None:
        """Have the disk take what a root is going to refer to, and the offsets that Spark has logged for it.

        Contents and names at once: a root that refers to them comes after both.
        """
        self.sync_offsets(epoch)
        if self.durable and self.files.has_renames:
            for name in (manifests.FOLDER, sections.FOLDER, segments.FOLDER):
                syncing.written(self.files.path(name))
        syncing.settle(durable=self.durable)

    def sync_roots(self) -> None:
        """Have the disk take which roots there are."""
        self._sync_folders(manifests.FOLDER)

    def sync_names(self) -> None:
        """Have the disk take what is in the checkpoint's own folder."""
        self._sync_folders("")

    def _sync_folders(self, *names: str) -> None:
        if self.durable and self.files.has_renames:
            syncing.sync_folders(self.files.path(name) for name in names)

    def _changed(self, before: Manifest, after: Manifest) -> frozenset[str]:
        """Count anew what is referred to where sections changed; the files that nobody refers to any more."""
        old, new = before.sections.entries(), after.sections.entries()
        lost, gained = list[str](), list[str]()
        for key in old.keys() | new.keys():
            was, now = old.get(key), new.get(key)
            if was is now or (was is not None and now is not None and was.ref is not None and was.ref == now.ref):
                continue
            mine, theirs = (frozenset() if one is None else frozenset(one.files()) for one in (was, now))
            lost += mine - theirs
            gained += theirs - mine
        routes = [() if one.routing is None else (one.routing[0].name,) for one in (before, after)]
        if routes[0] != routes[1]:
            lost += routes[0]
            gained += routes[1]
        self._uses.update(gained)
        self._uses.subtract(lost)
        gone = frozenset(name for name in lost if self._uses[name] <= 0)
        for name in gone:
            del self._uses[name]
        return gone

    def _remember(self, last: Manifest) -> None:
        if last.ledger is None:  # written by 0.1.0, which knew of no sections
            self.files.make(sections.FOLDER)
        self._last, self._uses = last, Counter(last.shared_files())

    def retire(self, latest: int) -> None:
        """After a commit: drop manifests older than `keep` epochs, and the files that only they refer to."""
        self.fence()
        gone = sorted(epoch for epoch in self._kept if epoch <= latest - self.keep)
        if not gone:
            return
        for old in gone:
            self.files.delete(self._kept[old].own[0])
        self.sync_roots()  # a root that comes back after a power failure must find what it refers to
        for old in gone:
            self.files.forget_claim(self._kept[old].own[0])
            after = self._kept.get(old + 1)
            for name in (*self._kept[old].own[1:], *(() if after is None else after.dropped)):
                self.files.delete(name)
        for old in gone:
            del self._kept[old]

    def sweep(self) -> int:
        """At a start: delete what no kept manifest refers to, and what Spark left. Gives the number of files.

        Folders are made again: what copies a checkpoint may leave out empty ones.
        """
        self.fence()
        self.files.make(manifests.FOLDER, sections.FOLDER, segments.FOLDER, STAGED)
        epochs = self.kept()
        self._upgrade()
        read = [Manifest.read(self.files, epoch) for epoch in epochs]
        self._kept = {}
        for before, manifest in zip([None, *read[:-1]], read, strict=True):
            self._kept[manifest.epoch] = Kept.of(manifest)
            if before is not None and before.ledger is None:  # written by 0.1.0
                dropped = frozenset(before.shared_files()) - frozenset(manifest.shared_files())
                self._kept[manifest.epoch] = replace(self._kept[manifest.epoch], dropped=manifest.dropped | dropped)
        self._remember(read[-1])
        if (lost := gap(self.files, [manifest.epoch for manifest in read])) is not None:
            _log.warning("%s; nothing is deleted while it is", lost.wrong)
            return self._delete_all(self.log.leftovers(_latest(read)))  # no manifest refers to what Spark left
        return len(self._swept(read))

    def orphans(self) -> list[str]:
        """Files that no kept manifest refers to, and what Spark left; refused where one is damaged or missing."""
        return self._orphans(self._all_read())

    def repair(self) -> list[str]:
        """Delete orphans, and nothing else: the form of the checkpoint stays as it is."""
        self.fence()
        return self._swept(self._all_read())

    def _all_read(self) -> list[Manifest]:
        """Every manifest; refused where one cannot be read or is missing, or a rollback was begun."""
        refuse_begun(self.files)
        read = [Manifest.read(self.files, epoch) for epoch in self.kept()]
        self.check_offsets(_latest(read))
        if (lost := gap(self.files, [manifest.epoch for manifest in read])) is not None:
            raise lost
        return read

    def _orphans(self, read: Sequence[Manifest]) -> list[str]:
        kept = kept_names(read)
        orphans = [
            name
            for folder in (manifests.FOLDER, sections.FOLDER, segments.FOLDER, STAGED)
            for name in (f"{folder}/{base}" for base in self.files.names(folder))
            if name not in kept
        ]
        return [*orphans, *self.log.leftovers(_latest(read)), *history.leftovers(self.files)]

    def _swept(self, read: Sequence[Manifest]) -> list[str]:
        orphans, unused = self._orphans(read), self.log.is_unused(_latest(read))
        outlived = [name for name in self.files.folders("") if _is_log(name) and name != self.log.folder]
        self.fence()  # without a gate: what is listed now is not a successor's
        for folder in [*outlived, *([self.log.folder] if unused else [])]:
            self.files.delete_folder(folder)
        self._delete_all(orphans)
        return orphans

    def _delete_all(self, names: Sequence[str]) -> int:
        for name in names:
            self.files.delete(name)
        return len(names)

    def _upgrade(self) -> None:
        before = upgrade(self.files, (manifests.FOLDER, sections.FOLDER))
        if before is not None:
            _log.warning(
                "the checkpoint %s was of format %d and is of format %d from now on, which earlier versions cannot "
                "read; its metadata as it was is in before-format-%d",
                self.root, before, FORMAT, FORMAT,
            )  # fmt: skip


def _latest(read: Sequence[Manifest]) -> int:
    return max((manifest.epoch for manifest in read), default=-1)


def _is_log(name: str) -> bool:
    stem, dash, term = name.partition("-")
    return stem == OFFSETS and (not dash or term.isdigit())


def _unusable(error: OSError, root: str) -> Exception:
    """A checkpoint that cannot be made or written, said before anything was started."""
    lasting = unwritable(error, root)
    if lasting is not None:
        return InputError(f"the checkpoint {root} cannot be used: {lasting.wrong}", lasting.expected, lasting.fix)
    expected, fix = ("a folder", "choose another path")
    if "://" in root:
        expected, fix = "a bucket that is there, on a server that answers", "check its name, and AWS_ENDPOINT_URL"
    return InputError(f"the checkpoint {root} cannot be made: {error.strerror or error}", expected, fix)
