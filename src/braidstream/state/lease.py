"""The lease of a checkpoint: which process may change it, and a fence behind the one that might no longer.

    lease/0000000003/owner.json    who holds term 3: host, process, since when; its owner renews it
    lease/0000000003/OWNER/        the owner's gate

The highest term is the one that counts. A term is taken by renaming a prepared folder to its name, which only one of
many can do. It is free when its owner has released it, or is dead: known at once on the same machine (process id and
start time, boot id), elsewhere, or when the process is there and does not move, when the lease was not renewed for its
time to live, by the clock of who waits for it. Clocks of two machines are never compared.

Whoever takes over renames the folders of lower terms away before it reads anything. All that an owner changes in the
checkpoint passes through its gate, by one rename (or link) out of it or into it (`Files.gate`), so an owner that was
stopped, lost its lease and wakes up finds no gate: whatever it was about to do fails, however late it does it. Sinks
have a gate of their own in their staging folder, named after the owner.

Object stores have no rename. In S3 a term is taken, and renewed, by a conditional put, and so are changes that count
(`state.objects`). In others the lease is read again right before each act, and a stop between the two is not seen.
Cost: a small file every sixth of the time to live, a look at a folder before each act.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import msgspec

from braidstream.errors import CheckpointInUse, DamagedState, LeaseLost
from braidstream.state.files import Files

__all__ = ["FOLDER", "TTL_VARIABLE", "Lease", "Owner", "holder", "last_owner", "take"]

FOLDER = "lease"
TTL_VARIABLE = "BRAIDSTREAM_LEASE_TTL"
"""Seconds without renewal after which a lease is given up; for tests."""
_TTL_S = 30.0
_POLL_S = 0.2
_SETTLE_S = 1.0
_FIRST_SPACE = "pid:[4026531836]"
"""The process ids of the machine itself, not of a container on it."""
_OWNER = "owner.json"


@dataclass(frozen=True)
class Owner:
    """Who holds a lease."""

    id: str
    host: str
    machine: str
    boot: str
    space: str
    """Within which its process id means something."""
    process: int
    began: str
    """When the process began, by the machine's own count."""
    since: str
    ttl_s: float
    beat: int = 0
    """How often it was renewed."""
    at: float = 0.0
    """When it was last renewed, by the monotonic clock of this boot."""
    released: bool = False

    @classmethod
    def new(cls, ttl_s: float) -> Owner:
        """This process, about to take a lease."""
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        pid = os.getpid()
        return cls(
            uuid.uuid4().hex, platform.node(), _machine(), _boot(), _space(), pid, _began(pid) or "", since, ttl_s
        )

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"

    @property
    def is_near(self) -> bool:
        """Whether its process id and its clock are those of this machine, since it was started."""
        return bool(self.boot) and (self.boot, self.space) == (_boot(), _space())

    @property
    def is_gone(self) -> bool:
        """Whether it surely holds the lease no longer: released, dead, or silent for its time to live."""
        if self.released:
            return True
        if self.is_near:
            return _began(self.process) != self.began or self.silent_s >= self.ttl_s
        same_machine = bool(self.machine) and (self.machine, self.host) == (_machine(), platform.node())
        return same_machine and self.space == _space() == _FIRST_SPACE and self.boot != _boot()

    @property
    def silent_s(self) -> float:
        """How long ago it was renewed; only for one that is near."""
        return time.monotonic() - self.at


class Lease:
    """A term that this process holds, renewed by a thread of its own."""

    def __init__(self, files: Files, term: int, owner: Owner, *, took_over: bool) -> None:
        self.term, self.owner, self.took_over = term, owner, took_over
        self._files = files
        self._is_over: Callable[[], bool] = lambda: False
        self._on_loss: Callable[[], None] = lambda: None
        self._acting = threading.RLock()
        self._ended = threading.Event()
        self._was_lost = False

    @property
    def gate(self) -> str | None:
        """The folder that all changes pass through; None where there are no renames."""
        return f"{FOLDER}/{self.term:010d}/{self.owner.id}" if self._files.has_renames else None

    def renew_always(self) -> Lease:
        """Renew from now on, until it is released or lost; not one that may be taken over at any time, for tests."""
        if self.owner.ttl_s > 0:
            threading.Thread(target=self._renew, name="braidstream-lease", daemon=True).start()
        return self

    def watch(self, is_over: Callable[[], bool], on_loss: Callable[[], None]) -> None:
        """Release the lease once `is_over`; tell when it was lost."""
        self._is_over, self._on_loss = is_over, on_loss

    @property
    def is_held(self) -> bool:
        """Whether it was neither released nor lost, as far as this process knows."""
        return not self._ended.is_set()

    def check(self) -> None:
        """Refuse to go on when the lease is another's by now, or was released."""
        if self._was_lost or self.owner.released or not self._is_there():
            self._was_lost = self._was_lost or not self.owner.released
            raise LeaseLost(self._files.root, self._successor())

    def confirm(self) -> None:
        """As `check`, but nothing is wrong with a lease that was released in good order."""
        if not self.owner.released:
            self.check()

    def release(self) -> None:
        """Let the next start take the checkpoint at once; nothing is changed under this lease any more."""
        with self._acting:
            if self._ended.is_set():
                return
            self._ended.set()
            _HELD.pop(self.owner.id, None)
            with suppress(OSError, LeaseLost):
                self._write(replace(self.owner, released=True))

    def vanish(self, *, with_root: bool) -> None:
        """Release a lease of a checkpoint that was never made, and leave no trace of it."""
        self.release()
        if self.gate is not None:
            folder = Path(self._files.path(FOLDER))
            with suppress(OSError):
                _remove(folder / f"{self.term:010d}")
                folder.rmdir()
                if with_root:
                    folder.parent.rmdir()

    def _renew(self) -> None:
        while not self._ended.wait(self.owner.ttl_s / 6):
            if self._is_over():
                self.release()
                return
            with self._acting, suppress(OSError):  # a full disk passes; the lease then runs out, or does not
                if self._ended.is_set():
                    return
                try:
                    self.check()
                    self._write(replace(self.owner, beat=self.owner.beat + 1, at=time.monotonic()))
                    continue
                except LeaseLost:
                    self._was_lost = True
                    self._ended.set()
                    _HELD.pop(self.owner.id, None)
            if self._was_lost:
                self._on_loss()

    def _write(self, owner: Owner) -> None:
        self._files.replace(_name(self.term), _plain(owner), gate=self.gate)
        self.owner = owner

    def _is_there(self) -> bool:
        if self.gate is not None:
            return self._files.exists(self.gate)
        term, owner = _newest(self._files)
        return term == self.term and owner is not None and owner.id == self.owner.id

    def _successor(self) -> str:
        _, owner = _newest(self._files)
        return "" if owner is None or owner.id == self.owner.id else str(owner)


_HELD: dict[str, Lease] = {}
"""The leases that this process holds, by owner."""


def take(files: Files, *, wait_s: float = 0.0, ttl_s: float | None = None, above: int = 0) -> Lease:
    """Take the lease of a checkpoint; `CheckpointInUse` when its owner is alive, after `wait_s` of waiting.

    `above`: a term that is known to have been, should the lease have been deleted.
    """
    began = seen_at = time.monotonic()
    seen: object = None
    while True:
        term, owner = _newest(files)
        watched = (term, None if owner is None else (owner.id, owner.beat))
        if owner is not None and _has_ended(owner):
            continue
        is_free = term == 0 or (owner is not None and (owner.is_gone or _is_forgotten(owner)))
        has_changed = seen is not None and watched != seen
        if watched != seen:
            seen, seen_at = watched, time.monotonic()
        limit = _TTL_S if owner is None else owner.ttl_s
        if is_free or time.monotonic() - seen_at >= limit:
            own_s = float(os.environ.get(TTL_VARIABLE, _TTL_S)) if ttl_s is None else ttl_s
            claimed = _claimed(files, max(term, above) + 1, owner, own_s)
            if claimed is not None:
                return claimed.renew_always()
        elif owner is not None and (has_changed or owner.is_near) and time.monotonic() - began >= wait_s:
            raise CheckpointInUse(files.root, str(owner), owner.process, owner.ttl_s)
        else:
            time.sleep(_POLL_S)


def holder(files: Files) -> Owner | None:
    """Who has the lease and is known, without waiting, to be alive."""
    _, owner = _newest(files)
    is_known = owner is not None and owner.is_near and not (owner.is_gone or _is_forgotten(owner) or _has_ended(owner))
    return owner if is_known else None


def last_owner(files: Files) -> Owner | None:
    """Who took the lease last, alive or not."""
    return _newest(files)[1]


def _has_ended(owner: Owner) -> bool:
    """Whether it is a flow of this process that has ended and not been waited for; its lease is then released."""
    held = _HELD.get(owner.id)
    if held is None or not held._is_over():
        return False
    held.release()
    return True


def _is_forgotten(owner: Owner) -> bool:
    """Whether it is this very process, which could not say that it has released the lease."""
    return owner.is_near and owner.process == os.getpid() and owner.id not in _HELD


def _claimed(files: Files, term: int, before: Owner | None, ttl_s: float) -> Lease | None:
    """The lease, unless another was faster."""
    owner = replace(Owner.new(ttl_s), at=time.monotonic())
    took_over = term > 1 and not (before is not None and before.released)
    lease = Lease(files, term, owner, took_over=took_over)
    _HELD[owner.id] = lease
    is_ours = False
    try:
        is_ours = _put_by_rename(files, term, owner) if files.has_renames else _put(files, term, owner)
    finally:
        if not is_ours:
            del _HELD[owner.id]
    return lease if is_ours else None


def _put_by_rename(files: Files, term: int, owner: Owner) -> bool:
    folder = Path(files.path(FOLDER))
    prepared = folder / f".new-{owner.id}"
    try:
        (prepared / owner.id).mkdir(parents=True)
        (prepared / _OWNER).write_bytes(_plain(owner))
    except FileNotFoundError:  # another has the term, and took what was prepared here for a leftover
        return False
    try:
        prepared.rename(folder / f"{term:010d}")  # onto a folder that is not empty it fails: another has the term
    except OSError:
        _remove(prepared)
        return False
    others = [entry for entry in folder.iterdir() if entry.name != f"{term:010d}"]
    if any(entry.name.isdigit() and int(entry.name) > term for entry in others):
        _remove(folder / f"{term:010d}")  # it looked long ago
        return False
    for entry in others:
        _remove(entry)
    return True


def _put(files: Files, term: int, owner: Owner) -> bool:
    """Without renames: put on condition, or put and look whether it stayed; then whether it looked long ago."""
    if _newest(files)[0] >= term:
        return False
    files.make(f"{FOLDER}/{term:010d}")
    if files.objects is not None:
        try:
            files.add(_name(term), _plain(owner))
        except FileExistsError:
            return False
    else:
        files.replace(_name(term), _plain(owner))
        time.sleep(_SETTLE_S)
    newest, found = _newest(files)
    if newest != term or found is None or found.id != owner.id:
        return False
    for old in _terms(files):
        if old < term:
            files.delete(_name(old))
    return True


def _remove(folder: Path) -> None:
    """Take a folder away in one step, then delete it."""
    gone = folder.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        folder.rename(gone)
    except FileNotFoundError:
        return
    for path, folders, names in os.walk(gone, topdown=False):
        for name in names:
            (Path(path) / name).unlink(missing_ok=True)
        for name in folders:
            with suppress(OSError):
                (Path(path) / name).rmdir()
    with suppress(OSError):
        gone.rmdir()


def _terms(files: Files) -> list[int]:
    return sorted(int(name) for name in files.folders(FOLDER) if name.isdigit())


def _newest(files: Files) -> tuple[int, Owner | None]:
    """The highest term, 0 if there is none, and who holds it; None where that cannot be read.

    Never a lower one: its place is taken, whatever became of its owner's file.
    """
    term = max(_terms(files), default=0)
    return term, _owner(_content(files, _name(term))) if term else None


def _content(files: Files, name: str) -> bytes:
    """What is gone, or the disk does not give, is waited out like what nobody can read."""
    try:
        return files.read(name)
    except (FileNotFoundError, DamagedState):
        return b""


def _owner(content: bytes) -> Owner | None:
    try:
        found = msgspec.json.decode(content, type=Owner)
    except (msgspec.MsgspecError, ValueError):
        return None
    return found if 0 <= found.ttl_s < math.inf else None


def _plain(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def _name(term: int) -> str:
    return f"{FOLDER}/{term:010d}/{_OWNER}"


@cache
def _boot() -> str:
    return _text("/proc/sys/kernel/random/boot_id") or _said("sysctl", "-n", "kern.bootsessionuuid")


@cache
def _machine() -> str:
    return _text("/etc/machine-id")


@cache
def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _began(process: int) -> str | None:
    """When a process began; None when there is none, or only what is left of a dead one."""
    if not _space():
        return _said("ps", "-o", "lstart=", "-p", str(process)) or None
    rest = _text(f"/proc/{process}/stat").rpartition(")")[2].split()
    return rest[19] if rest and rest[0] not in "ZX" else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
