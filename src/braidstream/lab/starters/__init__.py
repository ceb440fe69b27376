"""First jobs: for each of a few uses a job file, made data and a page that explains both.

`braid new` writes them. A use is a folder beside this file with what is copied as it is (job.toml, README.md, modules
that the job names) and a function of `made_streams` that makes its streams.

Invariant: `write` leaves a whole folder or none: everything is written beside it and moved into place; a folder with
anything in it is refused. The same seed makes the same rows. Cost: under a second, a few megabytes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from braidstream.errors import InputError, nearest
from braidstream.lab.starters.made_streams import advertising, market, shop, vibration
from braidstream.lab.workloads import append_files, cut

__all__ = ["FILES", "USES", "Use", "find_use", "write"]

FILES = 4
"""Of each stream; the jobs read one an epoch, so that there is something to watch."""


@dataclass(frozen=True)
class Use:
    """What a first job is about, and what makes its streams."""

    name: str
    about: str
    streams: Callable[[int], Mapping[str, pa.Table]]


USES = {
    use.name: use
    for use in (
        Use("clicks", "which click belongs to which ad, and which ads were never clicked", advertising),
        Use("payments", "orders with their payments, and those that nobody paid in time", shop),
        Use("sensors", "the spectrum of a vibration, window by window, by a function in Python", vibration),
        Use("trades", "each trade with the quote that held when it was made", market),
    )
}


def find_use(name: str) -> Use:
    """A use by its name."""
    if name not in USES:
        raise InputError(f"there is no use {name!r}", f"one of {', '.join(USES)}", nearest(name, USES))
    return USES[name]


def write(use: Use, folder: Path, seed: int) -> Mapping[str, int]:
    """Write the files of a use into a new or empty folder; gives the rows of each stream."""
    _refuse_what_is_there(use, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        shutil.copytree(
            Path(__file__).parent / use.name,
            unfinished,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "__init__.py"),
        )
        rows = {}
        for name, table in use.streams(seed).items():
            append_files(unfinished / "data" / name, cut(table, -(-table.num_rows // FILES)))
            rows[name] = table.num_rows
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return rows


def _refuse_what_is_there(use: Use, folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is no folder", "a new or an empty folder", "choose another name")
    if folder.exists() and any(folder.iterdir()):
        fix = f"choose another name: braid new {use.name} {folder.with_name(folder.name + '-2')}"
        raise InputError(f"{folder} is not empty", "a new or an empty folder; nothing is overwritten", fix)
