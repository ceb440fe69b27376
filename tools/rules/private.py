"""Nothing in the repository depends on the machine it was written on: no home folders, no package registries.

Both rules read every text file as lines. Their own patterns are written so that they do not match themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.rules.tree import Finding, Tree

__all__ = ["no_machine_paths", "no_registry_hosts"]

_TOPS = ("root", "home", "work", "tmp", "Users")
# A slash that starts a path: not one inside a relative path or an address, but one that follows file://.
_MACHINE_PATH = re.compile(rf"(?:(?<![\w.~/}})*>-])|(?<=file://))/(?:{'|'.join(_TOPS)})(?![\w-])")

_PUBLIC = (
    r"pypi\.org",
    r"pythonhosted\.org",
    r"anaconda\.(?:org|com)",
    r"conda\.io",
    r"npmjs\.(?:org|com)",
    r"maven\.(?:org|apache\.org)",
    r"crates\.io",
    r"docker\.(?:io|com)",
    r"ghcr\.io",
    r"quay\.io",
    r"deb\.debian\.org",
    r"(?:archive|security)\.ubuntu\.com",
)
_MIRROR = r"https?://[^\s/]*(?:artifactory|nexus|devpi|verdaccio|mirror|registry|pypi|proxy)[^\s/]*"
_REGISTRY = re.compile(rf"(?<![\w-])(?:{'|'.join(_PUBLIC)})(?![\w-])|{_MIRROR}")


def no_machine_paths(tree: Tree) -> Iterator[Finding]:
    """No absolute path into somebody's folders."""
    yield from _matches(tree, _MACHINE_PATH, "an absolute path of one machine: make it relative or a parameter")


def no_registry_hosts(tree: Tree) -> Iterator[Finding]:
    """No address of a package registry: pip's own settings choose it."""
    yield from _matches(tree, _REGISTRY, "the address of a package registry: leave it to the tool's settings")


def _matches(tree: Tree, pattern: re.Pattern[str], message: str) -> Iterator[Finding]:
    for path in tree.files:
        for number, line in enumerate((tree.text(path) or "").splitlines(), 1):
            if found := pattern.search(line):
                yield Finding(path, number, f"{found.group()}: {message}")
