"""Names and paths as Spark takes them literally: whatever characters a column or a folder has in its name.

Spark reads dots and backquotes in the name of a column, and the characters of glob patterns in a path, as syntax. Here
they are quoted, so that they stand for themselves. Cost: nothing to speak of.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from braidstream.plan.keys import quoted
from braidstream.state.files import COPY, Files

__all__ = ["column_of", "literal_path", "pattern_of", "resolved"]

_PATTERN = re.compile(r"([*?\[\]{}\\])")


def column_of(name: str) -> Column:
    """The column of exactly that name."""
    return F.col(quoted(name))


def pattern_of(path: str) -> str:
    """A path for Spark's file sources, which take it for a glob pattern: an existing folder stands for itself."""
    return literal_path(path) if Path(path.removeprefix("file://")).is_dir() else path


def literal_path(path: str) -> str:
    """A path in which no character is taken for a part of a glob pattern."""
    return _PATTERN.sub(r"\\\1", path)


def resolved(path: str) -> str:
    """A folder under its one name: whatever links, dots, slashes or `file:` it was given with."""
    base = Files(path).path("")
    if "://" in path.removeprefix(COPY) and not path.removeprefix(COPY).startswith("file:"):
        return f"{path.split('://', 1)[0]}://{posixpath.normpath(base)}"
    return os.path.realpath(base)
