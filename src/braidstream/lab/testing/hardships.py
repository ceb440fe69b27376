"""What a test may do to the engine that should change nothing: keys that collide, small fans, processes that die at
their files, tasks that are lost and run again.

    with often_compacted(), dying(FileFault("kill", 7)) as struck:
        harness.epoch(rows)

A process that dies by `dying` changes no file any more, whatever it still does on its way out.

Cost: one comparison for each change of a file.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.control.overflow import Overflow
from braidstream.control.policies import generation_tiers
from braidstream.epoch.cluster import SlotFunction
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.harness import Harness, HashKeys, LocalCluster, by_slot
from braidstream.model.directory import HASH_BITS, Directory
from braidstream.model.numbers import SlotId
from braidstream.state import compaction, pushed
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest

__all__ = [
    "Died", "FileFault", "Pieced", "ShakyCluster", "Struck", "crowded", "dying", "leftovers", "often_compacted",
    "reorganized", "replaced",
]  # fmt: skip

_CHANGES = ("create", "replace", "add", "move", "delete", "delete_folder", "make", "_beside")
_WRITES = ("create", "replace", "add", "make", "_beside")


class Died(BaseException):
    """The process is gone: no error that anybody handles."""


@dataclass(frozen=True)
class FileFault:
    """At the n-th change of a file: `kill` before it, `kill-after` it, an `error`, or from then on a `full` disk."""

    what: str
    n: int


@dataclass
class Struck:
    """What a fault has met: how many changes of files there were, and whether it struck."""

    changes: int = 0
    is_struck: bool = False


@contextmanager
def dying(fault: FileFault) -> Iterator[Struck]:
    """Let the engine meet a fault at its files."""
    struck = Struck()
    with ExitStack() as stack:
        for name in _CHANGES:
            stack.enter_context(replaced(Files, name, _faulty(getattr(Files, name), name, fault, struck)))
        yield struck


def _faulty(change: Callable[..., Any], name: str, fault: FileFault, struck: Struck) -> Callable[..., Any]:
    def changed(self: Files, *args: Any, **named: Any) -> Any:
        if struck.is_struck and fault.what.startswith("kill"):
            raise Died
        struck.changes += 1
        is_now = struck.changes == fault.n
        if fault.what == "full" and struck.changes >= fault.n and name in _WRITES:
            struck.is_struck = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path(name))
        if not is_now or fault.what == "full":
            return change(self, *args, **named)
        struck.is_struck = True
        if fault.what == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path(name))
        if fault.what == "kill-after":
            change(self, *args, **named)
        raise Died

    return changed


@contextmanager
def replaced(where: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute is another one for a while."""
    before = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


@contextmanager
def often_compacted(fan: int = 2) -> Iterator[None]:
    """Merge segments and generations two by two, so that a few epochs have what otherwise takes dozens."""
    with ExitStack() as stack:
        for module in (compaction, generation_tiers, pushed):
            stack.enter_context(replaced(module, "FAN", fan))
        yield


@dataclass(frozen=True)
class Pieced(Overflow):
    """A budget with pieces of any size: small ones make clean-ups go in many steps, large ones let merges happen."""

    piece: int = 200

    @property
    def piece_bytes(self) -> int:
        """As it was asked for."""
        return self.piece


def crowded(n: int) -> HashKeys:
    """A hash with only n values, spread over the hash space: most keys collide."""

    def hash_keys(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        hashes, valid = hash_columns(columns)
        return (hashes % np.uint64(n)) << np.uint64(HASH_BITS - n.bit_length()), valid

    return hash_keys


def reorganized(directory: Directory, slots: int, random: Random) -> Directory:
    """The directory after some splits, merges and moves."""
    for _ in range(random.randint(1, 5)):
        group, to = random.choice(directory.groups), SlotId(random.randrange(slots))
        change = random.choice(["split", "merge", "move"])
        if change == "split" and group.depth < HASH_BITS:
            directory = directory.split(group.id, to)
        elif change == "merge" and directory.buddy(group.id):
            directory = directory.merge(group.id)
        elif change == "move":
            directory = directory.move(group.id, to)
    return directory


def leftovers(harness: Harness) -> list[str]:
    """Files that no kept manifest refers to, after a restart has swept."""
    harness.restart()
    files = harness.runner.checkpoint.files
    manifests = [Manifest.read(files, epoch) for epoch in Manifest.epochs(files)]
    kept = {Path(name).name for one in manifests for name in (*one.own_files(), *one.shared_files())}
    folders = ("manifests", "sections", "segments", "staged", "_staging")
    found = [p for p in harness.folder.rglob("*") if p.is_file() and p.parent.name in folders]
    return sorted(p.name for p in found if p.name not in kept)


class ShakyCluster(LocalCluster):
    """A cluster that loses tasks at their start, half way, and when they are done, and then runs them again.

    Tasks run in any order; of some that are done a second attempt is made, which nobody asked for.
    """

    def __init__(self, root: str, random: Random, met: Counter[str]) -> None:
        super().__init__(root)
        self._random, self._met = random, met

    def exchanged(self, batches: Sequence[pa.RecordBatch], run: SlotFunction) -> list[pa.RecordBatch]:
        """The envelopes at their slots, and what each slot's last attempt makes of its own."""
        made: list[pa.RecordBatch] = []
        tasks = sorted(by_slot(batches).items())
        self._random.shuffle(tasks)
        for _, own in tasks:
            how = self._random.choice(["", "", "half way", "when done", "run again"])
            if how:
                self._met[f"task lost: {how}" if how != "run again" else "task run again"] += 1
            if how in ("half way", "when done"):
                for number, _ in enumerate(run(iter(own))):
                    if how == "half way" and number == 0:
                        break
            made += run(iter(own))
            if how == "run again":
                list(run(iter(own)))
        return made
