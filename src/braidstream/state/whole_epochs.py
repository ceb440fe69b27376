"""Which files of a folder of results belong to epochs that are there as a whole.

    out/part-1f0c-0000000012-0000.parquet     a file of epoch 12
    out/part-1f0c-0000000012-0001.parquet     another one
    out/_epochs/0000000012                    written last: epoch 12 is whole

The files of an epoch are renamed into place one by one, so a reader that lists the folder in between sees some of them.
One that asks `result_files` does not: it looks first for the epochs that are whole, then for their files. Where an
epoch is delivered again after a crash, its mark goes before its files do and comes back after them.

A folder that an earlier version wrote has no marks: then all files count. When a flow takes it over, the epochs that
are there are marked, in one step. Names that begin with an underscore are left out by Spark and by most readers, so a
reader that takes all files still can.

In an object store a late process could put files, or take them away, after its successor. There the files of an owner
carry his name, the mark names them, and it is put once, on the condition that it is not there: who comes second takes
his own files away. Each owner leaves an object in the staging area when he begins (`begin_owner`), and who sees that a
later one has begun marks nothing (`refuse_later_owner`): after a rollback an epoch of the same number is another one.
`result_files` gives what the marks name; who takes all files may see those of a lost attempt until a start after the
epoch is whole, which drops what owners of earlier terms have left.

Cost: two listings of names for a reader; a small file an epoch for the sink.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path

from braidstream.errors import LeaseLost
from braidstream.state.files import Files

__all__ = [
    "BEGUN",
    "MARKS",
    "STAGING",
    "bar_mark",
    "begin_marks",
    "begin_owner",
    "is_whole",
    "refuse_later_owner",
    "remove_after",
    "result_files",
    "shown_number",
    "unmark",
    "unnamed",
    "whole",
]

MARKS = "_epochs"
STAGING = "_staging"
"""Where slots stage files, with the gate of who may change the folder (`spark.staged_folder`)."""
BEGUN = "begun"
"""A file among the marks, so that the folder is there before the first of them; and in the part of an owner."""
_FILE = re.compile(r"part-([^-]+)-(c?\d+)-\d+(?:-([^.]+))?\..+$")


def result_files(path: str | Path) -> list[str]:
    """The files, with their paths, of the epochs that are whole in a folder of results: those of one moment.

    Give them to any reader: `spark.read.parquet(*result_files("out"))`.
    """
    files = Files(str(path))
    marks = set(files.names(MARKS))
    shown = [name for name, number in _numbers(files).items() if number in marks or not marks]
    lost = set(unnamed(files, "~")) if files.objects is not None else set[str]()
    return [files.address(name) for name in shown if name not in lost]


def begin_marks(files: Files, staging: str) -> None:
    """Before the first delivery of a flow that leaves marks: those of what is there appear at once."""
    if files.exists(f"{MARKS}/{BEGUN}"):
        return
    beside = f"{staging}/{uuid.uuid4().hex}" if files.has_renames else MARKS
    files.make(beside)
    for name in {*_numbers(files).values(), BEGUN}:
        files.replace(f"{beside}/{name}", b"")
    if files.has_renames:
        files.delete_folder(MARKS)
        files.move(beside, files, MARKS)


def _numbers(files: Files) -> dict[str, str]:
    """The epoch, as its mark has it, of each file."""
    return {name: match[2] for name in files.names("") if (match := _FILE.match(name))}


def shown_number(number: int) -> str:
    """An epoch, or a step if it is below 0, as it stands in names: in their order."""
    return f"{number:010d}" if number >= 0 else f"c{-number:09d}"


def unmark(files: Files, number: int) -> None:
    """Before an epoch is taken away."""
    files.delete(f"{MARKS}/{shown_number(number)}")


def bar_mark(files: Files, number: int) -> None:
    """In an object store: take an epoch away, and let nobody who was about to mark it do so."""
    files.bar(f"{MARKS}/{shown_number(number)}")


def begin_owner(files: Files, place: str) -> None:
    """In an object store: show that an owner, by whose name his part of the staging area goes, has begun."""
    files.replace(f"{place}/{BEGUN}", b"")


def refuse_later_owner(files: Files, staging: str, owner: str) -> None:
    """`LeaseLost` where a later owner has begun; their names are in the order of their terms."""
    if any(name > owner for name in files.folders(staging)):
        raise LeaseLost(files.root)


def remove_after(files: Files, flow: str, epoch: int, step: int) -> list[str]:
    """Take away what a flow has delivered after an epoch, and in steps after `step`; gives the names of the files.

    The marks go first: a reader that asks for whole epochs never sees a part of one.
    """
    found = {}
    for name in files.names(""):
        match = _FILE.match(name)
        if match and match[1] == flow[:12] and _is_after(match[2], epoch, step):
            found[name] = match[2]
    for number in sorted(set(found.values()) | {n for n in files.names(MARKS) if _is_after(n, epoch, step)}):
        files.delete(f"{MARKS}/{number}")
    for name in found:
        files.delete(name)
    return sorted(found)


def _is_after(number: str, epoch: int, step: int) -> bool:
    plain = number.removeprefix("c")
    return plain.isdecimal() and int(plain) > (epoch if plain == number else step)


def whole(files: Files, number: int, names: Sequence[str] = ()) -> bool:
    """After the last file of an epoch. With names, which the mark then has: whether it was not there."""
    mark = f"{MARKS}/{shown_number(number)}"
    if not names:
        files.replace(mark, b"")
        return True
    try:
        files.add(mark, "\n".join(names).encode())
    except FileExistsError:
        return False
    return True


def is_whole(files: Files, number: int) -> bool:
    """Whether the mark of an epoch is there."""
    return files.exists(f"{MARKS}/{shown_number(number)}")


def unnamed(files: Files, owner: str) -> list[str]:
    """Files of earlier owners, of epochs that are whole, that no mark names.

    Of an epoch without a mark a late owner may still put one. Marks are read only where two have files of one epoch.
    """
    owners: dict[str, dict[str, list[str]]] = {}
    for name in files.names(""):
        if (match := _FILE.match(name)) and match[3]:
            owners.setdefault(match[2], {}).setdefault(match[3], []).append(name)
    found = []
    for number in {number for number, own in owners.items() if len(own) > 1} & set(files.names(MARKS)):
        named = set(files.read(f"{MARKS}/{number}").decode().split("\n"))
        found += [name for one, names in owners[number].items() if one < owner for name in names if name not in named]
    return found
