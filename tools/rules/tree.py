"""The files that a rule looks at, and what a rule says about one of them.

In a git checkout these are the files that git tracks and the new ones it does not ignore: a rule speaks before the
commit, and never of `.venv` or `build`. Elsewhere (an unpacked archive, a test's temporary tree) they are all files
outside hidden folders.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGE", "Finding", "Tree"]

PACKAGE = "src/braidstream"


@dataclass(frozen=True)
class Finding:
    """One breach of a rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Tree:
    """A folder and the files in it, by their paths relative to it."""

    root: Path
    files: tuple[str, ...]

    @classmethod
    def of(cls, root: Path) -> Tree:
        """The tree below `root`, without what git ignores."""
        names = _of_git(root) if (root / ".git").exists() else _of_folder(root)
        return cls(root, tuple(sorted(name for name in names if (root / name).is_file())))

    def python(self, below: str = "") -> Iterator[str]:
        """The Python files below a folder."""
        return (path for path in self.files if path.endswith(".py") and path.startswith(below))

    def text(self, path: str) -> str | None:
        """The file's text; None for a binary file."""
        content = (self.root / path).read_bytes()
        return None if b"\0" in content else content.decode("utf-8", errors="replace")

    def parsed(self, path: str) -> ast.Module:
        """The file's syntax tree."""
        return ast.parse((self.root / path).read_bytes(), filename=path)


def _of_git(root: Path) -> list[str]:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name]


def _of_folder(root: Path) -> list[str]:
    paths = (path.relative_to(root) for path in root.rglob("*"))
    return [path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts[:-1])]
