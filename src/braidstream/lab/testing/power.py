"""A disk that loses power: of a folder, what may be left of it after the machine has died.

    disk = PowerDisk(folder)
    with disk.watched():             # what `state.syncing` syncs is sure from then on; nothing else is
        ...                          # anything that writes below the folder, until it fails
    disk.lose_power(random.Random(7), other)

A file has a content that was synced, or none, and a folder has the names that it had when it was synced. After the
failure each name that was made, renamed, replaced or deleted since may be as before or as after, by itself, whatever
else was lost; and of a file whose content was not synced there may be nothing, a beginning, zeros, an end of zeros, or
all of it. That is more than file systems do, which keep the order of some of it.

A step is whatever changes a name or syncs: `on_step` is told of each, and may raise. Cost: a look at the tree a step.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from braidstream.state import syncing
from braidstream.state.files import Files

__all__ = ["PowerDisk"]

_STEPS = ("replace", "add", "create", "creating", "move", "delete", "delete_folder", "make")


def _begin(*, durable: bool) -> None:
    """What the disk has begun with is not sure: nothing has happened yet."""


class PowerDisk:
    """A folder on such a disk. What is in it at the beginning is sure."""

    def __init__(self, folder: Path, on_step: Callable[[int], None] = lambda _: None) -> None:
        self.folder, self.steps, self._on_step, self._order = folder, 0, on_step, random.Random(0)
        self._held = folder.with_name(f"{folder.name}-inodes")
        """A link to every file that was ever seen: what was deleted may come back, and no number is used again."""
        self._held.mkdir()
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int | None]] = {}
        for place, _, files in os.walk(folder):
            self._sync_folder(Path(place))
            for name in files:
                self._sync_file(Path(place) / name)

    @contextmanager
    def watched(self) -> Iterator[PowerDisk]:
        """While this runs, syncs are seen and steps are told."""
        with ExitStack() as patched:
            patched.enter_context(mock.patch.object(syncing, "sync_files", self._sync_all))
            patched.enter_context(mock.patch.object(syncing, "begin", _begin))
            patched.enter_context(mock.patch.object(os, "fsync", self._fsync))
            for name in _STEPS:
                patched.enter_context(mock.patch.object(Files, name, self._told(getattr(Files, name))))
            yield self

    def lose_power(self, rng: random.Random, other: Path) -> None:
        """Write what is left to another folder."""
        self._look(self.folder)
        self._left(rng, self.folder, other)

    def _told(self, act: Callable[..., object]) -> Callable[..., object]:
        def told(*arguments: object, **named: object) -> object:
            self._step()
            return act(*arguments, **named)

        return told

    def _step(self) -> None:
        self.steps += 1
        self._look(self.folder)
        self._on_step(self.steps)

    def _sync_all(self, paths: Iterable[str]) -> None:
        """One after the other, in any order: they are synced at once, and the power fails in between."""
        listed = list(paths)
        self._order.shuffle(listed)
        for path in listed:
            self._sync(path)

    def _sync(self, path: str) -> None:
        self._step()
        place = Path(path)
        if not place.resolve().is_relative_to(self.folder.resolve()):
            return
        if place.is_dir():
            self._sync_folder(place)
        elif place.exists():
            self._sync_file(place)

    def _fsync(self, opened: int) -> None:
        place = Path(f"/proc/self/fd/{opened}").readlink()
        if place.is_relative_to(self.folder):
            self._sync_file(place)

    def _sync_file(self, path: Path) -> None:
        self._contents[self._seen(path)] = path.read_bytes()

    def _sync_folder(self, folder: Path) -> None:
        self._names[folder.resolve()] = self._listed(folder)

    def _listed(self, folder: Path) -> dict[str, int | None]:
        return {one.name: None if one.is_dir() else self._seen(one) for one in folder.iterdir()}

    def _seen(self, path: Path) -> int:
        number = path.stat().st_ino
        link = self._held / str(number)
        if not link.exists():
            link.hardlink_to(path)
        return number

    def _look(self, folder: Path) -> None:
        for one in folder.iterdir():
            if one.is_dir():
                self._look(one)
            else:
                self._seen(one)

    def _left(self, rng: random.Random, folder: Path, other: Path) -> None:
        """A folder as it is after the failure."""
        other.mkdir(parents=True)
        before = self._names.get(folder.resolve(), {})
        after = self._listed(folder) if folder.exists() else {}
        for name in sorted(before.keys() | after.keys()):
            is_kept = name in before and name in after and before[name] == after[name]
            chosen = after if is_kept or rng.random() < 0.5 else before
            if name not in chosen:
                continue
            number = chosen[name]
            if number is None:
                self._left(rng, folder / name, other / name)
            else:
                (other / name).write_bytes(self._content(rng, number))

    def _content(self, rng: random.Random, number: int) -> bytes:
        now, sure = (self._held / str(number)).read_bytes(), self._contents.get(number)
        if now == sure:
            return now
        cut = rng.randrange(len(now) + 1)
        torn = [b"", now[:cut], now[:cut] + bytes(len(now) - cut), bytes(len(now)), now]
        return rng.choice([*torn, *([] if sure is None else [sure])])
