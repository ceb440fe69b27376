"""Folders of Delta tables, as delta-rs takes them: for addresses, in which some characters stand for others.

A blank, `%` alone or a letter beyond ASCII is found where it is, and is told as `%20`; so names of files are put
together here. What delta-rs looks for in another folder than it made, or ends the process at, is refused; so are
partitions whose folders delta-rs escapes in a way that Spark does not undo.

Cost: a look at each name of a file.
"""

from __future__ import annotations

import re
from typing import Any

from braidstream.errors import InputError, TableError
from braidstream.spark.names import resolved

__all__ = ["data_files", "refuse_delta_path"]

_SYNTAX = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\\x00-\x1f\x7f]")
_BEYOND_ASCII = re.compile(r"%[89A-Fa-f][0-9A-Fa-f]")
"""Bytes of UTF-8, each of which Spark takes for a letter."""
_OF_ADDRESSES = re.compile(r"[#?]")
"""What the path ends at, in the address of a bucket."""


def refuse_delta_path(path: str, error: type[InputError]) -> None:
    """Refuse a folder that delta-rs takes for another one."""
    place = resolved(path)
    found = _SYNTAX.search(place) or (_OF_ADDRESSES.search(place) if "://" in place else None)
    if found:
        raise error(
            f"a Delta table cannot be in {path!r}, because of {found[0]!r} in its path",
            r"a folder without what delta-rs takes for something else: [ ] ^ | \, and % before two digits",
            "choose another path, or rename the folder",
        )


def data_files(table: Any, path: str) -> list[str]:
    """The files of a table by their names on the disk; what is elsewhere, or in a bucket, as delta-rs has it.

    Spark takes the values of partitions from them.
    """
    home, told = resolved(path), str(table.table_uri).removeprefix("file://").rstrip("/") + "/"
    found = [
        f"{home}/{one.removeprefix(told)}" if one.startswith(told) and "://" not in home else one
        for one in map(str, table.file_uris())
    ]
    escaped = next((one for one in found if _BEYOND_ASCII.search(one)), None)
    if escaped is not None:
        raise TableError(
            f"the Delta table {path} has a partition that Spark would read as another one: {escaped}",
            "partitions whose values have letters of ASCII",
            "give a DataFrame of Spark's Delta: flow.table(name, spark.read.format('delta').load(path))",
        )
    return found
