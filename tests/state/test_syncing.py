"""Several flows in one process: nobody commits before the disk has what is referred to, whoever syncs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from braidstream.state import syncing


class Disk:
    """Remembers what was synced, and keeps who syncs waiting until it is let go."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.is_busy, self.may_go = threading.Event(), threading.Event()
        self.may_go.set()

    def sync(self, path: str) -> None:
        self.is_busy.set()
        assert self.may_go.wait(10)
        self.synced.append(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    syncing.settle(durable=False)
    disk = Disk()
    monkeypatch.setattr(syncing, "_sync", disk.sync)
    yield disk
    disk.may_go.set()
    syncing.settle(durable=False)


def thread(act: Callable[[], None]) -> threading.Thread:
    made = threading.Thread(target=act, daemon=True)
    made.start()
    return made


def test_who_settles_waits_for_what_another_thread_syncs(disk: Disk) -> None:
    disk.may_go.clear()
    syncing.written("a")
    other = thread(lambda: syncing.settle(durable=True))
    assert disk.is_busy.wait(10)
    own = thread(lambda: syncing.settle(durable=True))
    own.join(0.1)
    assert own.is_alive(), "it has returned although the disk has nothing"
    disk.may_go.set()
    own.join(10)
    other.join(10)
    assert disk.synced == ["a"]


def test_a_flow_that_does_not_wait_forgets_its_own_files_only(disk: Disk) -> None:
    syncing.written("durable")

    def careless() -> None:
        syncing.written("careless")
        syncing.settle(durable=False)

    thread(careless).join(10)
    syncing.settle(durable=True)
    assert disk.synced == ["durable"]


def test_what_is_written_again_while_it_is_synced_is_synced_again(disk: Disk) -> None:
    disk.may_go.clear()
    syncing.written("a")
    other = thread(lambda: syncing.settle(durable=True))
    assert disk.is_busy.wait(10)
    syncing.written("a")
    disk.may_go.set()
    other.join(10)
    syncing.settle(durable=True)
    assert disk.synced == ["a", "a"]


def test_files_that_the_disk_refuses_end_who_settles_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(syncing, "_sync", refused)
    syncing.written("a")
    syncing.begin(durable=True)
    with pytest.raises(OSError, match="Input/output"):
        syncing.settle(durable=True)
    syncing.settle(durable=True)


def test_threads_may_write_while_another_begins(disk: Disk) -> None:
    """Nothing is lost, and nobody trips over a change."""
    del disk.synced[:]

    def write(name: str) -> None:
        for n in range(500):
            syncing.written(f"{name}{n}")

    threads = [thread(lambda name=name: write(name)) for name in "abc"]  # type: ignore[misc]
    while any(one.is_alive() for one in threads):
        syncing.begin(durable=True)
    syncing.settle(durable=True)
    assert len(set(disk.synced)) == 1500
